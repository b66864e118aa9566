"""Labels of components: a text and a note that people give to them, and that their successors get.

A label is a document of the stream under the id of the component that it was given to. A live component has its own
one, else that of a retired component whose successor it is: the oldest of its live descendants, as it is for records.
"""

import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shoal_service.store import Store
from shoal_service.streams.events import FeedEvent
from shoal_service.streams.record_index import FamilyTree, Resolver
from shoal_service.streams.view import PublishedView

if TYPE_CHECKING:
    from shoal.mixture import MixtureSnapshot

KIND = "labels"
"""Kind of the documents."""
FRESH_S = 0.5
"""Longest time for which what was read from the store is used. Labels by other processes are shown within a second."""


class Label(NamedTuple):
    """Label and note of a component. None means that there is none, which also hides the label of an ancestor."""

    label: str | None = None
    """Up to 200 characters."""
    note: str | None = None
    """Up to 4 KiB."""


NO_LABEL = Label()


class Labels(NamedTuple):
    """The labels of a stream, by the component that each was given to."""

    given: Mapping[int, Label]
    version: str
    """A tag that is equal for equal labels. Empty without labels."""

    def shown(self, view: PublishedView) -> dict[int, Label]:
        """The label of each live component of a view that has one, and the own one of each retired component."""
        return self.among(view.snapshot)

    def among(self, snapshot: "MixtureSnapshot | FamilyTree | None") -> dict[int, Label]:
        """As `shown`, for the components of a snapshot."""
        if not self.given:
            return {}
        resolver = Resolver(snapshot)
        live = {component: resolver.live(component) for component in self.given}
        found: dict[int, Label] = {}
        for component in sorted(self.given):
            successor = live[component]
            if successor is None or successor in self.given:  # its own label counts
                continue
            shadowed = any(
                other != component and live[other] == successor and resolver.descends(other, component)
                for other in self.given
            )
            if not shadowed:  # by a younger label on the way to the successor
                found.setdefault(successor, self.given[component])
        return {**found, **self.given}


NO_LABELS = Labels({}, "")


class LabelBook:
    """The labels of one stream in the store, read again when they may have changed. Its methods block."""

    def __init__(
        self, read: Callable[[], Mapping[str, bytes]], replace: Callable[[str, bytes | None, bytes | None], bool]
    ) -> None:
        """`read` gives the documents by name. `replace` writes one, or deletes it (None), if the store holds the value
        that is given first (None: no such document), and returns whether it did.
        """
        self._read, self._replace = read, replace
        self._lock = threading.Lock()
        self._labels = NO_LABELS
        self._read_at = float("-inf")

    @property
    def fresh(self) -> Labels | None:
        """The labels, if they were read a moment ago."""
        return self._labels if time.monotonic() - self._read_at < FRESH_S else None

    @property
    def last(self) -> Labels:
        """The labels as they were read last."""
        return self._labels

    @property
    def known(self) -> bool:
        """Whether the labels were ever read."""
        return self._read_at > float("-inf")

    def labels(self) -> Labels:
        """The labels, from the store unless they were read a moment ago. Raises StoreError."""
        with self._lock:
            if self.fresh is None:
                self._load()
            return self._labels

    def change(self, view: PublishedView, component: int, changes: Mapping[str, str | None]) -> Label:
        """Change the label of a component, and give the new one. What is not named stays. Raises StoreError."""
        name = str(component)
        with self._lock:
            while True:  # again if another process has changed it meanwhile
                before = self._load().get(name)
                shown = self._labels.shown(view).get(component, NO_LABEL)
                new = shown._replace(**changes)
                without = Labels({k: v for k, v in self._labels.given.items() if k != component}, "")
                needed = new != without.shown(view).get(component, NO_LABEL)
                if self._replace(name, before, msgspec.json.encode(new._asdict()) if needed else None):
                    self._load()
                    return new

    def _load(self) -> Mapping[str, bytes]:
        began = time.monotonic()
        documents = self._read()
        self._labels = Labels({int(name): _decoded(value) for name, value in documents.items()}, _tag(documents))
        self._read_at = began
        return documents


def label_book(store: Store, name: str, incarnation: str) -> LabelBook:
    """The labels of one stream in a store."""

    def replace(document: str, before: bytes | None, value: bytes | None) -> bool:
        one = (KIND, document)
        return store.change_documents(name, incarnation, {one: value}, expected={one: before})

    return LabelBook(lambda: store.documents(name, incarnation, KIND), replace)


def of_each(ids: Iterable[int], labels: Mapping[int, Label]) -> list[Label]:
    """The label of each component, by its id."""
    return [labels.get(component, NO_LABEL) for component in ids]


def texts_of(ids: Iterable[int], labels: Mapping[int, Label]) -> dict[str, str]:
    """The texts of some components by id, as an answer shows them, where they have labels."""
    return {str(i): text for i in ids if (text := labels.get(i, NO_LABEL).label) is not None}


def labelled(event: FeedEvent, labels: Mapping[int, Label]) -> FeedEvent:
    """The event with the texts of its parents and children, by id, where they have labels."""
    kin = (*event.data.get("parents", ()), *event.data.get("children", ()))
    return event._replace(data={**event.data, "labels": texts_of(kin, labels)})


def _decoded(value: bytes) -> Label:
    found = msgspec.json.decode(value)
    return Label(found.get("label"), found.get("note"))


def _tag(documents: Mapping[str, bytes]) -> str:
    tag = 0
    for name, value in sorted(documents.items()):
        tag = zlib.crc32(value, zlib.crc32(name.encode(), tag))
    return f"{tag:08x}" if documents else ""
