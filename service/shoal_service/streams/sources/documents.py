"""Sources of a stream in the store, as documents of two kinds. Methods block and raise StoreError."""

from shoal_service.errors import LimitError, UnknownSourceError
from shoal_service.store import SOURCES as POSITIONS
from shoal_service.store import Store, decode_position
from shoal_service.streams.sources.definition import SourceDefinition, decode_definition, encode_definition
from shoal_service.streams.sources.state import SourceState, decode_state, encode_state

DEFINITIONS, STATES = "source", "source-state"
"""Kinds of documents."""
MAX_SOURCES = 16
"""Most sources of one stream."""


class SourceDocuments:
    """The sources of one incarnation of a stream."""

    def __init__(self, store: Store, name: str, incarnation: str) -> None:
        self._store = store
        self._stream = (name, incarnation)

    def all(self) -> list[SourceDefinition]:
        """Return the sources by name."""
        return [decode_definition(data) for data in self._store.documents(*self._stream, DEFINITIONS).values()]

    def get(self, name: str) -> SourceDefinition:
        """Return one source. Raises UnknownSourceError."""
        found = self._store.documents(*self._stream, DEFINITIONS).get(name)
        if found is None:
            raise UnknownSourceError(
                f"stream {self._stream[0]!r} has no configured source {name!r}; list them for their names"
            )
        return decode_definition(found)

    def positions(self, source: SourceDefinition) -> dict[str, str] | None:
        """Return the stored positions of a source by partition. None when it was deleted or changed meanwhile.

        A deletion removes the definition before it forgets the positions, so these are the positions of this source.
        """
        held = self._store.documents(*self._stream, POSITIONS)
        found = [decode_position(document, value) for document, value in held.items()]
        if source not in self.all():
            return None
        return {one.partition: one.position for one in found if one.source == source.name}

    def put(self, asked: SourceDefinition) -> tuple[SourceDefinition, bool]:
        """Create a source, or change the one of its name, which goes on where it is. True when it was created.

        A definition that says nothing new changes nothing. LimitError beyond `MAX_SOURCES`.
        """
        held = {one.name: one for one in self.all()}
        before = held.get(asked.name)
        if before is None and len(held) >= MAX_SOURCES:
            raise LimitError(
                f"stream {self._stream[0]!r} has {len(held)} sources, the limit of {MAX_SOURCES}; delete one first"
            )
        if before is not None:
            asked = asked._replace(id=before.id, revision=before.revision, created_at=before.created_at)
            if asked == before:
                return before, False
            asked = asked._replace(revision=before.revision + 1)
        self._store.set_document(*self._stream, DEFINITIONS, asked.name, encode_definition(asked))
        return asked, before is None

    def begin_again(self, name: str) -> bool:
        """Give a source another revision, so that its process is started again. False if there is no such source."""
        try:
            source = self.get(name)
        except UnknownSourceError:
            return False
        changed = source._replace(revision=source.revision + 1)
        self._store.set_document(*self._stream, DEFINITIONS, name, encode_definition(changed))
        return True

    def delete(self, name: str) -> None:
        """Delete a source with its state. Raises UnknownSourceError."""
        self.get(name)
        self._store.set_document(*self._stream, DEFINITIONS, name, None)
        self._store.set_document(*self._stream, STATES, name, None)

    def state(self, source: SourceDefinition) -> SourceState:
        """Return what became of a source."""
        return self.states([source])[0]

    def states(self, sources: list[SourceDefinition]) -> list[SourceState]:
        """Return what became of each source."""
        held = self._store.documents(*self._stream, STATES)
        found = [decode_state(held[one.name]) if one.name in held else None for one in sources]
        return [
            state if state is not None and state.source == one.id else SourceState(one.id)
            for one, state in zip(sources, found, strict=True)
        ]

    def save(self, source: SourceDefinition, state: SourceState) -> None:
        """Keep what became of a source."""
        self._store.set_document(*self._stream, STATES, source.name, encode_state(state))
