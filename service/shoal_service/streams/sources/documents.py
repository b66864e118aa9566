"""Sources of a stream in the store, as documents of two kinds. Methods block and raise StoreError.

Each change is one transaction, which is made again if others have changed the source since it was read.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from shoal_service.errors import UnknownSourceError
from shoal_service.store import SOURCE_DEFINITIONS as DEFINITIONS
from shoal_service.store import SOURCES as POSITIONS
from shoal_service.store import DocumentName, Store, decode_position
from shoal_service.streams.sources.definition import SourceDefinition, decode_definition, encode_definition
from shoal_service.streams.sources.state import SourceState, decode_state, encode_state

STATES = "source-state"
"""Kind of the documents of states."""
NO_OTHERS: Mapping[DocumentName, None] = MappingProxyType({})
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
        found = self._definitions().get(name)
        if found is None:
            raise UnknownSourceError(
                f"stream {self._stream[0]!r} has no configured source {name!r}; list them for their names"
            )
        return found

    def positions(self, source: SourceDefinition) -> dict[str, str] | None:
        """Return the stored positions of a source by partition. None when it was deleted or changed meanwhile.

        A deletion removes definition and positions in one transaction, so these are the positions of this source.
        """
        stored = self._store.documents(*self._stream, POSITIONS)
        found = [decode_position(document, value) for document, value in stored.items()]
        if source not in self.all():
            return None
        return {one.partition: one.position for one in found if one.source == source.name}

    def put(self, asked: SourceDefinition) -> bool:
        """Create a source, or change the one of its name, which goes on where it is. True when it was created.

        A definition that says nothing new changes nothing. LimitError beyond `MAX_SOURCES`.
        """
        while True:
            before = self._definitions().get(asked.name)
            if before is None:
                if self._replace(asked.name, None, asked, max_sources=MAX_SOURCES):
                    return True
            elif self._change(before, kind=asked.kind, enabled=asked.enabled, settings=asked.settings):
                return False

    def enable(self, name: str, enabled: bool) -> None:
        """Let a source run, or not. Raises UnknownSourceError."""
        while not self._change(self.get(name), enabled=enabled):
            pass

    def delete(self, name: str, *, keep_positions: bool) -> None:
        """Delete a source with its state, and its positions unless they are kept. Raises UnknownSourceError.

        The log accepts no batch of it afterwards, so none can leave a position behind.
        """
        while not self._replace(
            name, self.get(name), None, {(STATES, name): None}, None if keep_positions else (POSITIONS, f"{name}/")
        ):
            pass

    def forget(self, name: str, partition: str | None) -> bool:
        """Forget the positions of a source, or of one of its partitions. Returns whether the service runs the source.

        Then it gets another revision, so that its process is started again. The log accepts no batch of the earlier
        one. Raises UnknownSourceError if there is no such position.
        """
        document = f"{name}/{'' if partition is None else partition}"
        while True:
            source = self._definitions().get(name)
            stored = self._store.document_names(*self._stream, POSITIONS)  # a damaged position is forgotten like others
            if not any(one == document or (partition is None and one.startswith(document)) for one in stored):
                of = "" if partition is None else f" partition {partition!r} of"
                raise UnknownSourceError(
                    f"stream {self._stream[0]!r} has no position of{of} source {name!r}; list them for their names"
                )
            again = None if source is None else source._replace(revision=source.revision + 1)
            one_of_them = {} if partition is None else {(POSITIONS, document): None}
            all_of_them = (POSITIONS, document) if partition is None else None
            if self._replace(name, source, again, one_of_them, all_of_them):
                return source is not None

    def _definitions(self) -> dict[str, SourceDefinition]:
        return {one.name: one for one in self.all()}

    def _change(self, source: SourceDefinition, **changes: Any) -> bool:
        """Change the definition of a source, which gets another revision if that says anything new. False when others
        have changed it meanwhile.
        """
        changed = source._replace(**changes)
        return changed == source or self._replace(source.name, source, changed._replace(revision=source.revision + 1))

    def _replace(
        self,
        name: str,
        source: SourceDefinition | None,
        new: SourceDefinition | None,
        others: Mapping[DocumentName, None] = NO_OTHERS,
        dropped: DocumentName | None = None,
        max_sources: int | None = None,
    ) -> bool:
        """Replace a definition, and delete other documents with it, unless others have changed it meanwhile."""
        one = (DEFINITIONS, name)
        changes = {one: None if new is None else encode_definition(new), **others}
        expected = {one: None if source is None else source.document}
        return self._store.change_documents(
            *self._stream, changes, expected=expected, dropped=dropped, max_documents=max_sources
        )

    def state(self, source: SourceDefinition) -> SourceState:
        """Return what became of a source."""
        return self.states([source])[0]

    def states(self, sources: list[SourceDefinition]) -> list[SourceState]:
        """Return what became of each source."""
        stored = self._store.documents(*self._stream, STATES)
        found = [decode_state(stored[one.name]) if one.name in stored else None for one in sources]
        return [
            state if state is not None and state.source == one.id else SourceState(one.id)
            for one, state in zip(sources, found, strict=True)
        ]

    def save(self, source: SourceDefinition, state: SourceState) -> None:
        """Keep what became of a source, unless it was deleted or changed meanwhile."""
        changes = {(STATES, source.name): encode_state(state)}
        self._store.change_documents(*self._stream, changes, expected={(DEFINITIONS, source.name): source.document})

    def save_last(self, source: SourceDefinition, state: SourceState) -> None:
        """Keep what became of a source whose process has ended, also when the source was changed or paused meanwhile.

        Not when it was deleted, or when a process of a later revision has said how it is.
        """
        definition, last = (DEFINITIONS, source.name), (STATES, source.name)
        while True:
            defined = self._store.documents(*self._stream, DEFINITIONS).get(source.name)
            stored = self._store.documents(*self._stream, STATES).get(source.name)
            if defined is None or decode_definition(defined).id != source.id:
                return
            known = None if stored is None else decode_state(stored)
            if known is not None and known.source == source.id and known.revision > state.revision:
                return
            expected = {definition: defined, last: stored}
            if self._store.change_documents(*self._stream, {last: encode_state(state)}, expected=expected):
                return
