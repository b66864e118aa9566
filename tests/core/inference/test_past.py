"""The past under joins and shared splits, against responsibilities that are kept in full."""

from typing import Any

import numpy as np
import pytest
from scipy.special import entr

from harness.refinement_problems import GAUSSIANS, pair_entropies, points_for
from shoal.families import take
from shoal.inference.past import PastStats, join_past, past_of, split_past, stats_by_share
from shoal.mixture import Past
from shoal.points.arrays import Array

FAMILY = GAUSSIANS["gaussian"]
X = points_for("gaussian", 40, np.random.default_rng(1))
RESP = np.random.default_rng(3).dirichlet(np.full(4, 0.4), size=len(X))


def _past(resp: Array) -> Past:
    return Past(FAMILY.suffstats(X, resp), pair_entropies(resp, np.ones(len(X))))


def _same_stats(a: Any, b: Any) -> None:
    for left, right in zip(a, b, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)


def _change(before: Array, after: Array) -> float:
    return float(entr(after).sum() - entr(before).sum())


@pytest.fixture
def given() -> PastStats:
    return past_of(_past(RESP))


def test_the_entropy_it_begins_with_is_no_more_than_there_was(given: PastStats) -> None:
    assert 0.0 < given.entropy <= entr(RESP).sum()


def test_two_components_have_their_entropy_exactly() -> None:
    resp = RESP[:, :2] / RESP[:, :2].sum(axis=1, keepdims=True)
    assert past_of(_past(resp)).entropy == pytest.approx(entr(resp).sum(), rel=1e-12)


def test_a_join_adds_statistics_and_takes_off_the_entropy_between_the_two(given: PastStats) -> None:
    after = join_past(FAMILY, given, 1, 3)
    resp = np.column_stack([RESP[:, 0], RESP[:, 1] + RESP[:, 3], RESP[:, 2]])
    _same_stats(after.stats, FAMILY.suffstats(X, resp))
    assert after.entropy - given.entropy == pytest.approx(_change(RESP, resp), rel=1e-9)
    exact = pair_entropies(resp, np.ones(len(X)))
    assert np.all(after.pairs >= exact - 1e-12)
    np.testing.assert_allclose(after.pairs, after.pairs.T)


def test_after_a_join_of_points_shared_alike_pairs_have_no_more_entropy_than_their_masses_allow() -> None:
    """The sum of what the two had with the third is more than that."""
    resp = np.full((len(X), 3), 1.0 / 3.0)
    after = join_past(FAMILY, past_of(_past(resp)), 0, 1)
    exact = pair_entropies(np.column_stack([resp[:, 0] + resp[:, 1], resp[:, 2]]), np.ones(len(X)))
    np.testing.assert_allclose(after.pairs, exact, rtol=1e-12)


@pytest.mark.parametrize("first", [0.5, 0.2, 0.93])
def test_a_shared_split_adds_the_entropy_of_its_shares(given: PastStats, first: float) -> None:
    after = split_past(FAMILY, given, 2, first)
    resp = np.column_stack([RESP[:, :2], first * RESP[:, 2], RESP[:, 3], (1.0 - first) * RESP[:, 2]])
    _same_stats(after.stats, FAMILY.suffstats(X, resp))
    assert after.entropy - given.entropy == pytest.approx(_change(RESP, resp), rel=1e-9)
    exact = pair_entropies(resp, np.ones(len(X)))
    assert np.all(after.pairs >= exact - 1e-12)
    assert after.pairs[2, 4] == pytest.approx(exact[2, 4], rel=1e-9)


def test_what_is_given_back_is_the_past_itself_wherever_it_went(given: PastStats) -> None:
    after = join_past(FAMILY, split_past(FAMILY, given, 0, 0.3), 1, 2)
    past = _past(RESP)
    stats, rows = stats_by_share(FAMILY, after, past)
    _same_stats(stats, after.stats)
    assert stats.mass.sum() == pytest.approx(past.stats.mass.sum(), rel=1e-12)
    assert rows.tolist() == [3, 1, 1, 2]


@pytest.mark.parametrize(("first", "order"), [(1.0, [0, 1, 2, 3, 4]), (0.0, [0, 1, 4, 3, 2])])
def test_a_past_that_is_not_divided_goes_whole_to_one_side(given: PastStats, first: float, order: list[int]) -> None:
    """Of five rows, the last one new, without anything in common with others."""
    after = split_past(FAMILY, given, 2, first)
    for values, before in zip((*after.stats, after.share), (*given.stats, given.share), strict=True):
        np.testing.assert_array_equal(values[order[:4]], before)
        assert np.all(values[order[4]] == 0.0)
    np.testing.assert_array_equal(after.pairs[np.ix_(order, order)], np.pad(given.pairs, (0, 1)))
    assert after.entropy == given.entropy


def test_a_past_that_was_only_placed_elsewhere_is_given_back_row_by_row(given: PastStats) -> None:
    past, order = _past(RESP), [2, 0, 3, 1]
    elsewhere = PastStats(
        take(given.stats, order), given.pairs[np.ix_(order, order)], given.entropy, given.share[order]
    )
    stats, rows = stats_by_share(FAMILY, elsewhere, past)
    assert rows.tolist() == [1, 3, 0, 2]
    for found, kept in zip(stats, past.stats, strict=True):
        np.testing.assert_array_equal(found, kept[order])
