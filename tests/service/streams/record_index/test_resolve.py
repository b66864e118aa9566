"""Components that records follow, through drawn histories: the answers for an earlier moment are those given then."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.short_form import short_form
from shoal.mixture.lineage import empty_lineage, retire
from shoal_service.streams.record_index import Resolver
from shoal_service.streams.record_service import records_of


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


def test_a_record_of_a_point_after_the_view_has_the_component_that_was_assigned() -> None:
    """After a restart records are known before the log is replayed, and in another process before its next snapshot.
    A component that the view does not know and should, as after a restore, is gone.
    """
    snapshot = history(0)[5]
    unknown = int(max(*snapshot.ids, *snapshot.lineage.ids)) + 1
    stored = [
        SimpleNamespace(log_offset=offset, assigned=unknown, refined=refined)
        for offset, refined in ((9, -1), (10, -1), (10, unknown + 1))
    ]
    reader: Any = SimpleNamespace(find=lambda keys, bounds: stored)
    view: Any = SimpleNamespace(snapshot=snapshot, log_offset=10)
    settings: Any = SimpleNamespace(record_ttl_s=None)
    found = records_of(reader, view, settings, ["a", "b", "c"])
    assert [record and tuple(record.resolved) for record in found] == [
        (None, "inherited"),
        (unknown, "exact"),
        (unknown + 1, "refined"),
    ]
