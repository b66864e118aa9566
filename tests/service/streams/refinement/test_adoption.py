"""Refinements through a registry: due, asked for, adopted through the log, replayed to the bit, overtaken."""

import asyncio
import json
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoal_service.errors import (
    IdempotencyMismatchError,
    NoPointsYetError,
    NotRefinableError,
    OverloadedError,
    ParameterError,
    StoreUnavailableError,
    UnknownRefinementError,
)
from shoal_service.logs import make_log
from shoal_service.store import EntryKind, NewEntry
from shoal_service.streams.events import EventPlace
from shoal_service.streams.learner import keyed_records
from shoal_service.streams.record_index import RecordReader
from shoal_service.streams.refinement import records, trigger
from shoal_service.streams.refinement.adopt import AdoptionEntry
from shoal_service.streams.refinement.trigger import AdoptionCounters, RefinementTrigger
from shoal_service.wire import Points, RecordFields, Texts

pytestmark = pytest.mark.anyio


def blobs(works: Any, name: str = "s") -> Any:
    return partial(works.store.get_blob, name, works.store.get_stream(name).incarnation)


async def ask(works: Any, name: str = "s", **options: Any) -> Any:
    given = {"method": "vdp", "window": None, "key": None, **options}
    return (await works.refinements.request(name, **given)).refinement


async def begun(works: Any, inside: Any, grid: np.ndarray, small: Any) -> tuple[Any, Any]:
    """A registry with a stream of 1,000 points, and a refinement of it that has begun and waits for the gate."""
    registry = works.begin()
    await registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    inside.gate.clear()
    asked = await ask(works)
    assert inside.running.wait(120)
    return registry, asked


async def test_a_stream_is_refined_by_itself_and_the_state_is_the_librarys_replay_of_the_log(
    works: Any, inside: Any, grid: np.ndarray, small: Any, library_replay: Any
) -> None:
    registry = works.begin()
    await registry.create("s", small)
    for start in range(0, len(grid), 500):
        await works.feed(grid[start : start + 500])
        await works.settled()
    found = await works.settled()
    assert found[-1].why == "warm-up"
    assert {r.why for r in found} >= {"warm-up", "doubled"}
    assert all(r.state in ("adopted", "not-adopted") for r in found)
    adopted = [r for r in found if r.state == "adopted"]
    assert adopted, found
    for r in adopted:
        assert r.report["bound_after"] > r.report["bound_before"]
        assert r.reason is None
        assert r.seconds is not None
    settings = registry.known.loaded[0].settings.to_dict()
    state = await works.state()
    assert state == library_replay(settings, works.entries(), blobs(works))
    view = registry.known.loaded[0].view_source.board.view
    assert view.snapshot.n_components == 9
    works.drop()
    if works.kind == "sqlite":
        works.begin(refine=False)
        assert await works.state() == state


async def test_an_adoption_brings_in_the_points_that_came_meanwhile(
    works: Any, inside: Any, grid: np.ndarray, small: Any, library_replay: Any
) -> None:
    registry = works.begin()
    await registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1500])
    inside.gate.clear()
    asked = await ask(works)
    assert inside.running.wait(120)
    await works.feed(grid[1500:1900], cut=70)
    inside.gate.set()
    (done,) = await works.settled(asked.id)
    assert done.state == "adopted"
    assert done.base_offset == 1500
    state = await works.state()
    assert registry.known.loaded[0].view_source.board.view.points_seen == 1900
    assert state == library_replay(registry.known.loaded[0].settings.to_dict(), works.entries(), blobs(works))


async def test_an_adoption_is_applied_once_although_the_store_is_away_while_records_are_assigned_again(
    works: Any, inside: Any, grid: np.ndarray, small: Any, library_replay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry was applied again to a state that it had consumed, and its adoption counted twice."""
    registry = works.begin()
    await registry.create("s", {**small, "refinement": None})
    keys = [b"%d" % i for i in range(1000)]
    await registry.ingest("s", Points(grid[:1000], RecordFields(0.0, Texts.of(keys), None, None, None)))
    await works.state()
    read, failing = type(works.store).read, [1, 1]
    own = keyed_records.READ_BYTES + 1  # no other reader reads so many

    def away(self: Any, *arguments: Any, max_bytes: int) -> Any:
        if failing and max_bytes == own:
            failing.pop()
            raise StoreUnavailableError("busy")
        return read(self, *arguments, max_bytes=max_bytes)

    monkeypatch.setattr(keyed_records, "READ_BYTES", own)
    monkeypatch.setattr(type(works.store), "read", away)
    asked = await ask(works)
    await works.settled(asked.id)
    state = await works.state()
    assert not failing
    (done,) = await works.settled(asked.id)
    assert (done.state, done.reason) == ("adopted", None)
    feed = registry.known.loaded[0].view_source.feed
    kinds = [event.kind for event in feed.after(feed.begins).events]
    assert (kinds.count("adopted"), kinds.count("refused")) == (1, 0)
    assert registry.known.loaded[0].view_source.learner.counters.refinements.adopted == 1
    assert state == library_replay(registry.known.loaded[0].settings.to_dict(), works.entries(), blobs(works))
    incarnation = works.store.get_stream("s").incarnation
    found = RecordReader(lambda places: works.store.read_pages("s", incarnation, places)).find(keys)
    assert all(record is not None and record.refined >= 0 for record in found)


async def test_what_is_not_worth_it_is_not_adopted_and_moves_the_schedule_on(
    works: Any, inside: Any, grid: np.ndarray, small: Any, library_replay: Any
) -> None:
    registry = works.begin()
    await registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    for _ in range(8):
        asked = await ask(works)
        (done,) = await works.settled(asked.id)
        if done.state == "not-adopted":
            break
    assert done.state == "not-adopted"
    assert done.reason
    assert done.report["bound_after"] - done.report["bound_before"] <= 1e-6 * 1000
    verdicts = [json.loads(e.payload)["verdict"] for e in works.entries() if e.kind is EntryKind.ADOPTION]
    assert verdicts[-1] == "postpone"
    assert await works.state() == library_replay(
        registry.known.loaded[0].settings.to_dict(), works.entries(), blobs(works)
    )


async def test_a_restore_overtakes_a_refinement_on_every_replay(
    works: Any, inside: Any, grid: np.ndarray, small: Any
) -> None:
    registry = works.begin()
    await registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:800])
    saved = await works.state()
    await works.feed(grid[800:1500])
    inside.gate.clear()
    asked = await ask(works)
    assert inside.running.wait(120)
    await registry.restore("s", saved)
    await works.feed(grid[1500:2400])  # past the base again, in points seen
    expected = await works.state()
    inside.gate.set()
    (done,) = await works.settled(asked.id)
    assert done.state == "not-adopted"
    assert "restore" in done.reason
    assert await works.state() == expected
    feed = registry.known.loaded[0].view_source.feed
    kinds = [e.kind for e in feed.after(feed.begins).events]
    assert kinds.count("restored") == 1
    assert kinds.count("refused") == 1
    works.drop()
    if works.kind == "sqlite":
        registry = works.begin(refine=False)
        assert await works.state() == expected
        again = registry.known.loaded[0].view_source.feed
        assert [e.kind for e in again.after(again.begins).events] == kinds


async def test_a_settings_change_that_begins_the_window_again_overtakes_a_refinement(
    works: Any, inside: Any, grid: np.ndarray, small: Any
) -> None:
    registry, asked = await begun(works, inside, grid, small)
    await registry.create_or_change("s", {"half_life": 5000.0})
    await works.feed(grid[1000:1200])
    expected = await works.state()
    inside.gate.set()
    (done,) = await works.settled(asked.id)
    assert done.state == "not-adopted"
    assert "window" in done.reason
    assert await works.state() == expected


async def test_a_delete_overtakes_a_refinement_and_the_next_stream_of_the_name_knows_nothing_of_it(
    works: Any, inside: Any, grid: np.ndarray, small: Any
) -> None:
    registry, old = await begun(works, inside, grid, small)
    await registry.delete("s")
    await registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:300])
    inside.gate.set()
    expected = await works.state()
    await works.feed(grid[300:1000])
    asked = await ask(works)
    (done,) = await works.settled(asked.id)
    assert done.state == "adopted"
    assert [e.kind for e in works.entries()].count(EntryKind.ADOPTION) == 1
    assert expected != await works.state()
    with pytest.raises(UnknownRefinementError):
        await works.refinements.find("s", old.id)


async def test_two_workers_at_one_refinement_do_no_harm(
    works: Any, inside: Any, grid: np.ndarray, small: Any, library_replay: Any
) -> None:
    """The second entry is refused: its base precedes the first, on every replay alike."""
    registry = works.begin()
    stream, _ = await registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    first = await ask(works)
    await works.settled(first.id)
    adoption = [e for e in works.entries() if e.kind is EntryKind.ADOPTION][-1]
    expected = await works.state()
    words = AdoptionEntry.from_payload(adoption.payload)
    from shoal_service.store import References

    entry = NewEntry(EntryKind.ADOPTION, adoption.payload, references=References(words.blob, words.base_seq))
    works.store.append("s", stream.record.incarnation, entry, budget_bytes=1 << 40).result(120)
    stream.view_source.appended(0, 0, 0)
    assert await works.state() == expected
    feed = stream.view_source.feed
    refused = [e for e in feed.after(feed.begins).events if e.kind == "refused"]
    assert len(refused) == 1
    assert "another refinement was adopted" in refused[0].data["reason"]
    (done,) = await works.settled(first.id)
    assert done.state == "adopted", "the outcome of the first stands"


async def test_batches_set_aside_are_no_part_of_the_window_nor_of_what_came_since(
    works: Any, inside: Any, grid: np.ndarray, small: Any, monkeypatch: pytest.MonkeyPatch, library_replay: Any
) -> None:
    from shoal_service.streams.learner import apply

    decoded = apply._decoded

    def picky(state: Any, entry: Any) -> Any:
        if entry.n_points == 7:
            raise RuntimeError("seven")
        return decoded(state, entry)

    monkeypatch.setattr(apply, "_decoded", picky)
    registry = works.begin()
    await registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:700])
    await works.feed(1e3 + grid[:7], cut=7)
    await works.feed(grid[700:1300])
    inside.gate.clear()
    asked = await ask(works)
    assert inside.running.wait(120)
    await works.feed(1e3 + grid[:7], cut=7)
    await works.feed(grid[1300:1500])
    inside.gate.set()
    (done,) = await works.settled(asked.id)
    assert done.state == "adopted"
    learnt = [e for e in works.entries() if e.n_points != 7]
    assert await works.state() == library_replay(registry.known.loaded[0].settings.to_dict(), learnt, blobs(works))


# -- asking


async def test_asking_is_checked(works: Any, inside: Any, grid: np.ndarray, small: Any) -> None:
    registry = works.begin(refine=False)
    await registry.create("s", {**small, "refinement": None})
    await registry.create("none", {**small, "window": 0})
    await registry.create("plain", {**small, "method": "sva"})
    with pytest.raises(NoPointsYetError):
        await ask(works)
    for name in ("none", "plain"):
        with pytest.raises(NotRefinableError, match="keeps no window"):
            await ask(works, name)
    await works.feed(grid[:300])
    with pytest.raises(ParameterError, match="choose one of vdp"):
        await ask(works, method="magic")
    with pytest.raises(ParameterError, match="1,000"):
        await ask(works, window=999)
    assert (await ask(works, window=1000)).state == "queued"


async def test_a_key_asks_once_and_too_many_are_refused(works: Any, small: Any, grid: np.ndarray) -> None:
    registry = works.begin(refine=False)
    await registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:300])
    one = await ask(works, key="k")
    assert (await ask(works, key="k")).id == one.id
    for other in ({"method": "tsb"}, {"window": 1000}):
        with pytest.raises(IdempotencyMismatchError, match="of method vdp"):
            await ask(works, key="k", **other)
    for _ in range(records.MAX_OPEN - 1):
        await ask(works)
    with pytest.raises(OverloadedError):
        await ask(works)
    assert (await ask(works, key="k")).id == one.id


async def test_a_stream_that_warms_up_says_so(works: Any, inside: Any, grid: np.ndarray, small: Any) -> None:
    registry = works.begin()
    await registry.create("s", small)
    await works.feed(grid[:100])
    asked = await ask(works)
    (done,) = await works.settled(asked.id)
    assert done.state == "not-adopted"
    assert "warming up" in done.reason
    assert not any(e.kind is EntryKind.ADOPTION for e in works.entries())


async def test_refinements_of_one_stream_come_one_after_another(
    works: Any, inside: Any, grid: np.ndarray, small: Any
) -> None:
    registry = works.begin()
    await registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    inside.gate.clear()
    asked = [await ask(works) for _ in range(3)]
    assert inside.running.wait(120)
    await asyncio.sleep(0.2)
    states = [r.state for r in (await works.refinements.recent("s"))[1]]
    assert states == ["queued", "queued", "running"]
    inside.gate.set()
    for one in asked:
        (done,) = await works.settled(one.id)
        assert done.state in ("adopted", "not-adopted")
    assert inside.made == 3


async def test_a_shorter_window_is_the_newer_part(works: Any, inside: Any, grid: np.ndarray, small: Any) -> None:
    registry = works.begin()
    await registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:3600])
    whole = (await works.settled((await ask(works)).id))[0]
    part = (await works.settled((await ask(works, window=1000)).id))[0]
    assert whole.report["window_rows"] == 1600
    assert part.report["window_rows"] == 600


async def test_events_of_a_refinement_name_it(works: Any, inside: Any, grid: np.ndarray, small: Any) -> None:
    registry = works.begin()
    await registry.create("s", {**small, "refinement": None})
    order = np.argsort(grid[:1500, 0] + grid[:1500, 1], kind="stable")  # sorted: one pass does badly
    await works.feed(grid[:1500][order])
    asked = await ask(works)
    (done,) = await works.settled(asked.id)
    assert done.state == "adopted"
    feed = registry.known.loaded[0].view_source.feed
    events = [e for e in feed.after(EventPlace(done.entry_seq, 0)).events if e.data.get("refinement") == asked.id]
    assert events
    assert all(e.place.seq == done.entry_seq for e in events)
    events = [e for e in events if not e.kind.startswith("cluster-")]  # whose parents and children are clusters
    assert {e.kind for e in events[:-1]} <= {"split", "merged", "refined", "born", "pruned"}
    assert events[-1].kind == "adopted"
    view = registry.known.loaded[0].view_source.board.view
    parents = {p for e in events for p in e.data["parents"]} - {c for e in events for c in e.data["children"]}
    assert not parents & set(view.snapshot.ids.tolist())
    for gone in parents:
        assert view.snapshot.past(gone).successors


@pytest.mark.parametrize(("came", "rests"), [(2_000, False), (2_001, True)])
def test_a_stream_that_outruns_its_refinements_rests_between_them(
    came: int, rests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = RefinementTrigger(SimpleNamespace(), AdoptionCounters(), make_log("error"), lambda: None)  # type: ignore[arg-type]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    asked._requested_at, asked._requested_time = 10_000, now - 5.0
    state = SimpleNamespace(points_seen=10_000 + came, settings=SimpleNamespace(window_rows=2_000))
    due_in_s = asked._end_of_pause(state) - now  # type: ignore[arg-type]
    assert due_in_s == pytest.approx(3 * 5.0) if rests else due_in_s <= 0.0


def test_a_refinement_that_is_due_waits_until_it_can_be_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    due, queued = list[Any](), list[str]()
    others = [SimpleNamespace(refinement=SimpleNamespace(open=True))]
    monkeypatch.setattr("shoal.refinement.refinement_due", lambda state: due[0] if due else None)
    monkeypatch.setattr(trigger, "CHECK_S", 0.0)

    def queue(method: str, why: str) -> SimpleNamespace:
        queued.append(why)
        return SimpleNamespace(id="r1")

    kept: Any = SimpleNamespace(all=lambda: others, queue=queue)
    asked = RefinementTrigger(kept, AdoptionCounters(), make_log("error"), lambda: None)
    settings = SimpleNamespace(warmup_points=100, window_step=100)
    state: Any = SimpleNamespace(points_seen=1_000, settings=settings)
    assert asked.waiting, "a state that was loaded was not looked at yet"
    asked.check_due(state)
    assert not asked.waiting
    due.append(SimpleNamespace(why="schedule"))
    asked.check_due(state)
    assert asked.waiting, "another one is open"
    others.clear()
    asked.check_due(state)
    assert (queued, asked.waiting) == (["schedule"], False)
