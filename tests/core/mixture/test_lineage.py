"""The past: who took over whom, to the end of the chain, in bounded memory."""

from typing import Any

import numpy as np
import pytest

from shoal.errors import UnknownComponentError
from shoal.families import NormalInverseGamma
from shoal.mixture import Lineage, empty_lineage, recall, retire, successors_of, without_stats

PRIOR = NormalInverseGamma(np.zeros(2), 1.0, 1.0, 1.0)
PLENTY = 1 << 20


def stats_of(*masses: float) -> Any:
    x = np.arange(2.0 * len(masses)).reshape(-1, 2)
    return PRIOR.suffstats(x, np.diag(masses))


def end(past: Lineage, component: int, *successors: int, stats: Any = None, budget: int = PLENTY) -> Lineage:
    ids = np.array([component])
    return retire(
        past,
        ids=ids,
        born_at=ids * 10,
        last_seen_at=ids * 10 + 5,
        retired_at=component * 100,
        successors=[successors],
        stats=stats,
        budget_bytes=budget,
    )


def test_nothing_is_known_of_ids_never_retired() -> None:
    with pytest.raises(UnknownComponentError, match="component 3"):
        recall(empty_lineage(), 3)


def test_a_record_says_when_it_lived_and_what_it_was() -> None:
    record = recall(end(empty_lineage(), 4, 9, stats=stats_of(2.5)), 4)
    assert record[:4] == (4, 40, 45, 400)
    assert record.successors == (9,)
    assert record.stats.mass.tolist() == [2.5]


def test_successors_are_those_live_now() -> None:
    past = end(empty_lineage(), 1, 2)  # 1 -> 2
    past = end(past, 5)  # 5 was pruned
    past = end(past, 2, 3, 4)  # 2 was split
    past = end(past, 3, 7)
    past = end(past, 4, 5)  # a link to what is itself gone leads nowhere
    past = end(past, 7, 8)
    assert recall(past, 1).successors == (8,)
    assert recall(past, 2).successors == (8,)
    assert recall(past, 5).successors == ()
    assert successors_of(past, 6) == ()


def test_records_that_meet_again_are_counted_once() -> None:
    past = end(end(end(empty_lineage(), 1, 2, 3), 2, 4), 3, 4)
    assert successors_of(past, 1) == (4,)


@pytest.mark.parametrize("budget", [400, 4_000, 40_000])
@pytest.mark.short_form("400", "4000")
def test_memory_is_bounded_and_what_is_remembered_is_right(budget: int) -> None:
    past = empty_lineage()
    for component in range(600):
        past = end(past, component, component + 1, stats=stats_of(component + 0.5), budget=budget)
        assert sum(array.nbytes for array in past.arrays()) <= budget + 64
    assert 0 < past.ids.size < 600
    oldest = int(past.ids[0])
    assert past.ids.tolist() == list(range(oldest, 600))
    assert recall(past, oldest).successors == (600,)  # the whole chain is still there
    with pytest.raises(UnknownComponentError):
        recall(past, oldest - 1)
    assert recall(past, 599).stats.mass.tolist() == [599.5]
    held = [component for component in past.ids.tolist() if recall(past, component).stats is not None]
    assert held == list(range(600 - len(held), 600))
    assert all(recall(past, component).stats.mass[0] == component + 0.5 for component in held)


def test_statistics_too_large_for_the_budget_are_forgotten_but_not_the_record() -> None:
    wide = NormalInverseGamma(np.zeros(8), 1.0, 1.0, 1.0).suffstats(np.ones((1, 8)), np.ones((1, 1)))  # 136 bytes
    past = end(empty_lineage(), 1, 2, stats=wide, budget=128)
    assert recall(past, 1).stats is None
    assert recall(past, 1).successors == (2,)


def test_statistics_can_be_dropped_and_come_again() -> None:
    past = without_stats(end(empty_lineage(), 1, 2, stats=stats_of(1.0)))
    past = end(past, 2, 3, stats=stats_of(2.0))
    assert recall(past, 1).stats is None
    assert recall(past, 2).stats.mass.tolist() == [2.0]
    past = end(past, 3, 4)  # retired without statistics: rows are those of the last records, so the older ones' go
    assert recall(past, 2).stats is None


def test_many_retire_at_once() -> None:
    ids = np.array([3, 1, 2])
    past = retire(
        empty_lineage(),
        ids=ids,
        born_at=ids,
        last_seen_at=ids,
        retired_at=50,
        successors=[(1,), (), (4, 5)],
        stats=stats_of(3.0, 1.0, 2.0),
        budget_bytes=PLENTY,
    )
    assert recall(past, 2).successors == (4, 5)
    assert recall(past, 3).successors == ()  # 1 was live when 3 ended, and is gone
    assert [recall(past, i).stats.mass[0] for i in (1, 2, 3)] == [1.0, 2.0, 3.0]
