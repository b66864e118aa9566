"""Components that records follow, through drawn histories: the answers for an earlier moment are those given then."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.short_form import short_form
from shoal.mixture.lineage import empty_lineage, retire
from shoal_service.streams.record_index import Resolver


def history(seed: int) -> list[Any]:
    """Snapshots at 0, 1, 2, ...: at each step one or two components retire into some, one or none of the others."""
    rng = np.random.default_rng(seed)
    live, lineage, next_id = [0, 1, 2, 3], empty_lineage(), 4
    taken = [SimpleNamespace(ids=np.array(live), lineage=lineage)]
    for step in range(1, 25):
        gone = sorted(rng.choice(live, size=min(int(rng.integers(1, 3)), len(live)), replace=False).tolist())
        live = [one for one in live if one not in gone] + list(range(next_id, next_id + int(rng.integers(1, 3))))
        next_id = max(live) + 1
        successors = [
            tuple(sorted(rng.choice(live, size=int(rng.integers(0, min(3, len(live)) + 1)), replace=False).tolist()))
            for _ in gone
        ]
        zeros = np.zeros(len(gone), dtype=np.int64)
        lineage = retire(
            lineage,
            ids=np.array(gone),
            born_at=zeros,
            last_seen_at=zeros,
            retired_at=step,
            successors=successors,
            stats=None,
            budget_bytes=1 << 20,
        )
        taken.append(SimpleNamespace(ids=np.array(live), lineage=lineage))
    return taken


@pytest.mark.parametrize("seed", short_form(range(6), (0, 1)))
def test_what_a_component_led_to_earlier_is_known_later(seed: int) -> None:
    taken = history(seed)
    several = 0
    for step, snapshot in enumerate(taken):
        for then, earlier in enumerate(taken[: step + 1]):
            known = {*earlier.ids.tolist(), *earlier.lineage.ids.tolist()}
            several += len(earlier.lineage.successors)
            for component in known:
                given = Resolver(earlier).live(component)
                assert Resolver(snapshot).live_at(component, then) == (-1 if given is None else given)
    assert several


@pytest.mark.parametrize("seed", short_form(range(6), (0, 1)))
def test_a_record_moves_only_when_a_component_on_its_way_retires(seed: int) -> None:
    taken = history(seed)
    moved = 0
    for then, earlier in enumerate(taken):
        for later in taken[then:]:
            before, after = Resolver(earlier), Resolver(later)
            for component in earlier.ids.tolist():
                differs = before.live(component) != after.live(component)
                moved += differs
                assert after.retired_after(component, then) or not differs
    assert moved


def test_a_record_of_a_component_that_the_snapshot_does_not_know_yet_is_not_without_one() -> None:
    """After a restart records are known before the log is replayed, and in another process before its next snapshot."""
    lineage = history(0)[5].lineage
    newest = int(lineage.ids.max()) + 10
    snapshot: Any = SimpleNamespace(ids=np.array([newest]), lineage=lineage)
    assert Resolver(snapshot).of(newest + 1, -1) == (newest + 1, "exact")
    assert Resolver(snapshot).of(0, newest + 2) == (newest + 2, "refined")
    assert Resolver(None).of(3, -1) == (3, "exact")
    assert Resolver(snapshot).of(newest - 1, -1) == (None, "inherited")
