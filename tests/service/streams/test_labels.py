"""Labels: which component shows which one, beside a search through the whole family tree."""

import asyncio
import gc
import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.waiting import eventually_async
from shoal.mixture import Lineage
from shoal_service.errors import StoreUnavailableError
from shoal_service.streams import labels as labels_module
from shoal_service.streams import stream_labels
from shoal_service.streams.labels import Label, LabelBook, Labels


def view_of(live: list[int], retired: dict[int, list[int]]) -> Any:
    """A view with these live components, and what each retired one left its points to."""
    ids = sorted(retired)
    links = np.cumsum([0, *(len(retired[i]) for i in ids)])
    none = np.zeros(len(ids), dtype=np.int64)
    successors = np.array([one for i in ids for one in retired[i]], dtype=np.int64)
    lineage = Lineage(np.array(ids, dtype=np.int64), none, none, none, links, successors, None)
    return SimpleNamespace(snapshot=SimpleNamespace(ids=np.array(live, dtype=np.int64), lineage=lineage))


def shown(given: dict[int, str | None], live: list[int], retired: dict[int, list[int]]) -> dict[int, str | None]:
    labels = Labels({i: Label(text) for i, text in given.items()}, "v").shown(view_of(live, retired))
    return {i: label.label for i, label in labels.items() if i in live}


@pytest.mark.parametrize(
    ("given", "live", "retired", "expected"),
    [
        ({3: "a"}, [3, 4], {}, {3: "a"}),
        ({9: "b"}, [3], {9: [3]}, {3: "b"}),  # a merge: the survivor has none of its own
        ({3: "a", 9: "b"}, [3], {9: [3]}, {3: "a"}),  # and here it has one
        ({5: "c"}, [6, 7], {5: [7, 6]}, {6: "c"}),  # a split: the oldest successor
        ({5: "c"}, [7, 9], {5: [6, 7], 6: [9]}, {7: "c"}),  # the oldest that lives
        ({8: "x", 9: "y"}, [3], {9: [3], 8: [3]}, {3: "x"}),  # of two, the older one's
        ({9: "y", 8: "x"}, [3], {9: [8], 8: [3]}, {3: "x"}),  # the later one on the way counts
        ({9: "y", 8: None}, [3], {9: [8], 8: [3]}, {3: None}),  # also where it was taken away
        ({9: "y"}, [3], {9: []}, {}),  # pruned: nobody has its points
        ({9: "y"}, [], {9: [8], 8: []}, {}),
    ],
)
def test_a_label_follows_the_heir(
    given: dict[int, str | None], live: list[int], retired: dict[int, list[int]], expected: dict[int, str | None]
) -> None:
    assert shown(given, live, retired) == expected


def test_labels_of_random_families_are_those_of_a_plain_search() -> None:
    rng = np.random.default_rng(8)
    for _ in range(200):
        n = int(rng.integers(3, 14))
        retired: dict[int, list[int]] = {}
        for i in range(n - 1):
            if rng.random() < 0.6:
                later = rng.choice(np.arange(i + 1, n), size=min(n - 1 - i, int(rng.integers(0, 3))), replace=False)
                retired[i] = sorted(map(int, later))
        live = [i for i in range(n) if i not in retired]
        given = {i: f"label {i}" for i in range(n) if rng.random() < 0.4}

        def descendants(i: int, retired: dict[int, list[int]] = retired) -> set[int]:
            return {i} | {h for s in retired.get(i, []) for h in descendants(s)}

        expected: dict[int, str] = {}
        for c in live:
            if c in given:
                expected[c] = given[c]
                continue
            sources = [i for i in given if i in retired and min(descendants(i) & set(live), default=None) == c]
            nearest = [i for i in sources if not any(j != i and j in descendants(i) for j in sources)]
            if nearest:
                expected[c] = given[min(nearest)]
        assert shown(given, live, retired) == expected


class Documents:
    """Documents of a stream, which can fail."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.reads = 0
        self.failing = False
        self.meanwhile: Callable[[], Any] | None = None
        """What happens once, just before a write."""

    def read(self) -> dict[str, bytes]:
        self.reads += 1
        if self.failing:
            raise StoreUnavailableError("away")
        return dict(self.held)

    def replace(self, name: str, before: bytes | None, value: bytes | None) -> bool:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        if self.held.get(name) != before:
            return False
        if value is None:
            self.held.pop(name, None)
        else:
            self.held[name] = value
        return True

    def book(self) -> LabelBook:
        return LabelBook(self.read, self.replace)


def test_only_what_is_named_changes_and_nothing_is_kept_of_nothing() -> None:
    documents, view = Documents(), view_of([3], {})
    book = documents.book()
    assert book.change(view, 3, {"label": "a", "note": "n"}) == ("a", "n")
    assert book.change(view, 3, {"note": "m"}) == ("a", "m")
    assert json.loads(documents.held["3"]) == {"label": "a", "note": "m"}
    assert book.change(view, 3, {"label": None}) == (None, "m")
    assert book.change(view, 3, {"note": None}) == (None, None)
    assert documents.held == {}


def test_a_note_that_another_process_writes_meanwhile_stays() -> None:
    documents, view = Documents(), view_of([3], {})
    here, there = documents.book(), documents.book()
    here.change(view, 3, {"label": "a"})
    documents.meanwhile = lambda: there.change(view, 3, {"note": "n"})
    assert here.change(view, 3, {"label": "b"}) == ("b", "n")
    assert json.loads(documents.held["3"]) == {"label": "b", "note": "n"}
    documents.meanwhile = lambda: there.change(view, 3, {"label": None, "note": None})
    assert here.change(view, 3, {"note": "m"}) == (None, "m")


def test_an_inherited_label_is_changed_and_taken_away_on_the_heir_alone() -> None:
    documents, view = Documents(), view_of([3], {9: [3]})
    book = documents.book()
    book.change(view, 9, {"label": "old", "note": "n"})
    assert book.labels().shown(view)[3] == ("old", "n")
    assert book.change(view, 3, {"label": "new"}) == ("new", "n")
    assert book.change(view, 3, {"label": None, "note": None}) == (None, None)
    assert book.labels().shown(view)[3] == (None, None)
    assert book.labels().shown(view)[9] == ("old", "n"), "the ancestor is as it was"
    assert book.change(view, 3, {"label": "old", "note": "n"}) == ("old", "n")
    assert "3" not in documents.held, "inherited again"


def test_another_process_is_seen_soon_and_the_store_is_not_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=100.0)
    monkeypatch.setattr(labels_module, "time", clock)
    documents = Documents()
    here, there = documents.book(), documents.book()
    assert here.labels().given == {}
    version = here.labels().version
    there.change(view_of([3], {}), 3, {"label": "a"})
    reads = documents.reads
    assert here.labels().given == {}
    assert documents.reads == reads
    clock.now += 0.9
    assert here.labels().given == {3: ("a", None)}
    assert here.labels().version not in ("", version)
    assert here.labels().version == there.labels().version


def test_labels_stay_known_while_the_store_is_away() -> None:
    documents = Documents()
    book = documents.book()
    book.change(view_of([3], {}), 3, {"label": "a"})
    documents.failing = True
    assert book.last.given == {3: ("a", None)}
    book._read_at = float("-inf")
    with pytest.raises(StoreUnavailableError):
        book.labels()
    assert book.last.given == {3: ("a", None)}


@pytest.mark.anyio
async def test_a_reading_that_fails_after_its_reader_has_gone_on_leaves_no_traceback(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During an outage of Redis, the log of a service had one for each of them."""
    stream, _ = await running.begin().create("s", {"n_features": 1})
    await stream.labels.all()
    fails, told = threading.Event(), list[Any]()

    def away(self: LabelBook) -> Labels:
        fails.wait(120)
        raise StoreUnavailableError("away")

    monkeypatch.setattr(stream_labels, "LABELS_S", 0.01)
    monkeypatch.setattr(LabelBook, "fresh", None)
    monkeypatch.setattr(LabelBook, "labels", away)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    await stream.labels.all()
    fails.set()
    await eventually_async(lambda: stream.labels._reading.done())
    stream.labels._reading = None
    gc.collect()
    assert told == []
