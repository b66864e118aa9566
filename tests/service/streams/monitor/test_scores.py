"""Rules over the scores of a stream: exact against SciPy, the same however the points are cut, one event a change."""

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from shoal_service.streams.monitor.scores import (
    BLOCK,
    FALSE_ALARM,
    WINDOW,
    Scores,
    add_points_inplace,
    critical_value,
    new_scores,
    predictive_score,
    scores_from_plain,
    scores_to_plain,
)

OFF = {"threshold": 0.5, "level": 0.1}


def tell(log_density: np.ndarray, novelty: np.ndarray | None = None, *, cuts: list[int] | None = None) -> list[tuple]:
    """The events of live points, with the number of all points up to each."""
    novelty = np.zeros(len(log_density)) if novelty is None else novelty
    scores, told, start = new_scores(), [], 0
    for stop in [*(cuts or []), len(log_density)]:
        scores, found = add_points_inplace(scores, log_density[start:stop], novelty[start:stop], live=True, **OFF)
        told += [(one.kind, start + one.n_points, one.before, one.after) for one in found]
        scores, start = scores_from_plain(scores_to_plain(scores)), stop
    return told


@pytest.mark.parametrize(("n", "m"), [(20, 10), (60, 10), (7, 3), (5, 5)])
@pytest.mark.parametrize("probability", [1e-6, 1e-3, 0.05, 1.0])
def test_the_critical_value_is_that_of_the_exact_distribution(n: int, m: int, probability: float) -> None:
    def chance(u: int) -> float:
        """P(U <= u), from two samples that have this U."""
        full, rest = divmod(u, n)
        other = np.arange(n, dtype=float)
        ours = [n + 1.0 + i for i in range(full)] + ([rest - 0.5] if full < m else [])
        ours += [-2.0 - i for i in range(m - len(ours))]
        return float(mannwhitneyu(ours, other, alternative="less", method="exact").pvalue)

    found = critical_value(n, m, probability)
    assert found == -1 or chance(found) <= probability * (1 + 1e-9)
    assert found == n * m or chance(found + 1) > probability * (1 - 1e-9)


def test_a_drop_is_one_event_and_a_rise_is_none() -> None:
    rng = np.random.default_rng(0)
    for drop in (0.5, 3.0, 40.0):
        levels = np.repeat([-4.0, -4.0 - drop, -4.0], [20_000, 30_000, 10_000])
        told = tell(rng.normal(levels, 1.0))
        assert [(kind, at) for kind, at, *_ in told] == [("drift", 21_000)], drop
        _, _, before, after = told[0]
        assert before == pytest.approx(-4.0, abs=5 / np.sqrt(6_000))
        assert after == pytest.approx(-4.0 - drop, abs=5 / np.sqrt(1_000))


def test_a_second_drop_is_a_second_event() -> None:
    levels = np.repeat([-1.0, -2.0, -3.0], 15_000)
    told = tell(np.random.default_rng(1).normal(levels))
    assert [at for _, at, *_ in told] == [16_000, 31_000]


def test_streams_without_change_are_quiet_whatever_their_distribution() -> None:
    """Of 4 x 1,000 tests, each alarms with probability 1e-6 at most: this fails by chance once in 250 runs."""
    rng = np.random.default_rng(2)
    n = 1_000 * WINDOW
    heavy = rng.standard_t(1.5, size=n) * 10.0
    for x in (rng.normal(size=n), -rng.exponential(size=n), -np.exp(2.0 * rng.normal(size=n)), heavy):
        assert tell(x) == []


def test_the_rate_of_false_alarms_is_that_of_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rule of 1 in 50, alarms are binomial: at most the stated share, and not far below it."""
    monkeypatch.setattr("shoal_service.streams.monitor.scores.FALSE_ALARM", 0.02)
    n = 2_000
    told = tell(np.random.default_rng(3).normal(size=n * WINDOW))
    assert 0.3 * 0.02 * n < len(told) < 0.02 * n + 5 * np.sqrt(0.02 * n)
    assert FALSE_ALARM == 1e-6


def test_absurd_points_are_no_drift_and_do_not_hide_one() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(-3.0, 1.0, size=40_000)
    x[7_000:37_000:5_000] = -1e300
    x[9_500] = -np.inf
    assert tell(x[:20_000]) == []
    x[20_000:] -= 2.0
    assert [at for _, at, *_ in tell(x)] == [21_000]


def test_a_share_of_novel_points_is_told_once_until_it_has_fallen() -> None:
    rng = np.random.default_rng(5)
    shares = np.repeat([0.3, 0.01, 0.2, 0.08, 0.2, 0.04, 0.12], 5_000)
    novelty = (rng.random(len(shares)) < shares).astype(float)
    told = tell(np.zeros(len(shares)), novelty)
    assert [(kind, at) for kind, at, *_ in told] == [("novelty-rate", 11_000), ("novelty-rate", 31_000)]
    for (_, _, before, after), low, high in zip(told, (0.01, 0.04), (0.2, 0.12), strict=True):
        assert before == pytest.approx(low, abs=5 * np.sqrt(low / WINDOW))
        assert after == pytest.approx(high, abs=5 * np.sqrt(high / WINDOW))


def test_events_do_not_depend_on_how_points_are_cut_or_on_restarts() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(np.repeat([0.0, -5.0], [8_000, 12_000]))
    novelty = (rng.random(len(x)) < np.repeat([0.0, 0.5], [8_000, 12_000])).astype(float)
    whole = tell(x, novelty)
    assert {kind for kind, *_ in whole} == {"drift", "novelty-rate"}
    for n_cuts in (1, 7, 300, 4_000):
        assert tell(x, novelty, cuts=sorted(rng.choice(len(x), n_cuts, replace=False).tolist())) == whole


def test_the_score_is_the_mean_of_the_last_thousand_known_log_densities() -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=5_000)
    x[:10] = np.nan
    scores: Scores = new_scores()
    assert predictive_score(scores) == (None, 0)
    for start, stop in ((0, 1), (1, 10), (10, 700), (700, 1_800), (1_800, 1_801), (1_801, 5_000)):
        scores, _ = add_points_inplace(scores, x[start:stop], np.zeros(stop - start), live=stop > 1_500, **OFF)
        known = x[10:stop][-1_000:]
        mean, n = predictive_score(scores)
        assert n == len(known)
        assert (mean is None) == (n == 0)
        assert mean is None or mean == pytest.approx(known.mean(), abs=1e-12)


def test_points_of_the_warm_up_count_for_no_event() -> None:
    rng = np.random.default_rng(8)
    scores, told = new_scores(), []
    for start, live in ((0.0, False), (-50.0, True)):
        for _ in range(WINDOW // BLOCK):
            found: list = []
            scores, found = add_points_inplace(
                scores, rng.normal(start, 1.0, WINDOW), np.ones(WINDOW), live=live, **OFF
            )
            told += found
    assert told == []
