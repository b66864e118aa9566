"""The process ends at any step of a refinement, before it or after it: what is durable gives the same state."""

from typing import Any

import numpy as np
import pytest

from harness.waiting import eventually_async
from shoal_service.errors import StoreUnavailableError
from shoal_service.store import EntryKind
from shoal_service.streams.refinement.records import RefinementRecords

pytestmark = pytest.mark.anyio

STEPS = ("put_job", "put_blob", "append", "save_checkpoint", "mark_applied", "drop_blob")


class Mortal:
    """A store whose process ends at the n-th write, just before it is done or just after: nothing works then."""

    def __init__(self, store: Any, step: int, after: bool) -> None:
        self._store = store
        self._left = step
        self._after = after
        self.dead = False
        self.last = ""

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not callable(verb):
            return verb

        def call(*arguments: Any, **options: Any) -> Any:
            if self.dead:
                raise StoreUnavailableError("the process has ended")
            if name in STEPS:
                self._left -= 1
                if self._left == 0:
                    self.last = name
                    if self._after:
                        answer = verb(*arguments, **options)
                        if name == "append":
                            answer.result(120)
                    self.dead = True
                    raise StoreUnavailableError("the process ends")
            return verb(*arguments, **options)

        return call


@pytest.mark.short_form("*-before", "*-4-after")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(1, 9))
async def test_whatever_step_is_the_last_the_state_is_that_of_the_log(
    works: Any, inside: Any, grid: np.ndarray, small: Any, library_replay: Any, step: int, after: bool
) -> None:
    registry = works.begin(refine=False, checkpoint_points=1)
    await registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000], cut=250)
    asked = (await works.refinements.request("s", method="vdp", window=None, key=None)).refinement
    real = works.store
    mortal = Mortal(real, step, after)
    works.worker._store = mortal
    learner = registry.known.loaded[0].view_source.learner
    for part in (learner, learner._refinements._records, learner._checkpoints, learner._dead_letters):
        part._store = mortal
    works.worker.start()
    works.worker.notify("s", registry.known.loaded[0].record.incarnation)
    records = RefinementRecords(real, "s", registry.known.loaded[0].record.incarnation)
    await eventually_async(lambda: mortal.dead or not records.find(asked.id).refinement.open)
    if not mortal.dead:
        pytest.skip(f"a refinement takes fewer than {step} writes")
    works.drop()

    works.begin(refine=False)
    settings = works.registry.known.loaded[0].settings.to_dict()
    record = works.store.get_stream("s")

    def blob_of(key: str) -> bytes:
        return bytes(works.store.get_blob("s", record.incarnation, key))

    found = await works.state()
    assert found == library_replay(settings, works.entries(), blob_of), mortal.last
    named = {e.seq for e in works.entries() if e.kind is EntryKind.ADOPTION}
    assert len(works.store.blob_keys("s", record.incarnation)) == len(named), "an orphan is left, or a blob is missing"
    works.drop()

    works.begin()
    (done,) = await works.settled(asked.id)
    assert done.state in ("adopted", "not-adopted")
    assert await works.state() == library_replay(settings, works.entries(), blob_of)
