"""The noise under tied features: which get it, how much, and that it is noise and yet a function of the offset."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.short_form import longer
from shoal import StreamingDPMixture
from shoal.mixture import to_bytes
from shoal.sequential.prior.jitter import jitter_deviations, jittered, noise, normal_of


def test_features_without_repeats_get_none() -> None:
    rows = np.random.default_rng(0).normal(size=(1_000, 3)) * [1.0, 1e-6, 1e6] + [0.0, 1.0, 1e9]
    assert jitter_deviations(rows).tolist() == [0.0, 0.0, 0.0]
    assert jittered(rows, np.zeros(3), 5) is rows


def test_a_rounded_feature_is_spread_over_its_cell() -> None:
    rows = np.random.default_rng(1).normal(size=(1_000, 3)) * 8.0
    rows[:, 1] = np.round(rows[:, 1])
    rows[:, 2] = np.round(rows[:, 2] * 4) / 4
    np.testing.assert_allclose(jitter_deviations(rows), [0.0, 1 / np.sqrt(12), rows[:, 2].std() / 64])


@pytest.mark.parametrize("share", [0.5, 0.05])
def test_a_flag_is_spread_over_its_step_however_rare(share: float) -> None:
    """A Gaussian of a sure flag then gains as many nats over an even one as the probabilities do, log 2."""
    rows = (np.random.default_rng(2).random((1_000, 1)) < share).astype(np.float64)
    (noise_deviation,) = jitter_deviations(rows)
    sure = noise_deviation**2
    assert 0.5 * np.log((sure + 0.25) / sure) == pytest.approx(np.log(2.0))


def test_a_feature_with_one_value_in_most_of_the_rows_gets_a_quarter_of_its_deviation() -> None:
    rng = np.random.default_rng(6)
    amounts = rng.lognormal(size=(1_000, 2)).round(2)
    amounts[:610, 0] = 0.0
    amounts[:590, 1] = 0.0
    expected = [amounts[:, 0].std() / 4, amounts[:, 1].std() / 64]
    np.testing.assert_allclose(jitter_deviations(amounts), expected)


def test_a_constant_feature_gets_a_quarter_of_the_others_deviation() -> None:
    rows = np.random.default_rng(3).normal(size=(1_000, 4)) * [1.0, 0.0, 3.0, 9.0]
    assert jitter_deviations(rows)[1] == pytest.approx(rows[:, 2].std() / 4)


def test_linear_functions_of_other_features_get_a_sixty_fourth_of_their_deviations() -> None:
    x = np.random.default_rng(4).normal(size=(1_000, 4)) * [1.0, 2.0, 30.0, 1.0]
    shares = x[:, :2] / 10.0 + 0.3
    rows = np.column_stack([x[:, 2:], 32.0 + 1.8 * x[:, 2], shares, 1.0 - shares.sum(axis=1)])
    expected = rows.std(axis=0) / 64 * [1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(jitter_deviations(rows), expected)
    np.testing.assert_allclose(jitter_deviations(rows.astype(np.float32).astype(np.float64)), expected, rtol=1e-6)
    assert not jitter_deviations(rows + 1e-3 * np.random.default_rng(5).normal(size=rows.shape)).any()
    assert not jitter_deviations(np.random.default_rng(6).normal(size=(40, 50))).any()


def test_a_feature_whose_squares_are_below_the_smallest_number_stops_no_warm_up() -> None:
    rows = np.random.default_rng(7).normal(size=(200, 3)) * [1.0, 1e-170, 1e-300]
    assert not jitter_deviations(rows).any()


def test_groups_in_features_and_their_copies_stay_apart() -> None:
    rng = np.random.default_rng(0)
    side = rng.integers(3, size=4_000)
    x = rng.normal(size=(4_000, 2)) + 6.0 * np.stack([side == 1, side == 2], axis=1)
    model = StreamingDPMixture().fit(np.hstack([x, x]))
    np.testing.assert_allclose(model.weights_, 1 / 3, atol=0.03)


def test_few_rows_or_nothing_but_constants_get_none() -> None:
    assert jitter_deviations(np.zeros((31, 2))).tolist() == [0.0, 0.0]
    assert jitter_deviations(np.full((500, 2), 7.0)).tolist() == [0.0, 0.0]


def test_rounding_errors_are_no_values() -> None:
    rows = np.random.default_rng(4).normal(size=(500, 2))
    rows[:, 0] = 0.1 + 0.2 * (np.arange(500) % 2) * 2.0**-52
    assert jitter_deviations(rows)[0] == pytest.approx(rows[:, 1].std() / 4)


def test_noise_looks_normal_and_independent() -> None:
    """Each limit is passed by true noise but for one seed in a thousand or fewer."""
    drawn = noise(0, 20_000, np.arange(6))
    for column in drawn.T:
        assert stats.kstest(column, "norm").pvalue > 1e-4
        assert abs(np.corrcoef(column[:-1], column[1:])[0, 1]) < 4 / np.sqrt(20_000)
    correlation = np.corrcoef(drawn.T) - np.eye(6)
    assert np.abs(correlation).max() < 4 / np.sqrt(20_000)


@pytest.mark.parametrize("key", [0, (1 << 64) - 1])
def test_noise_is_finite_at_the_extreme_keys(key: int) -> None:
    drawn = normal_of(np.array([key], dtype=np.uint64))
    assert np.isfinite(drawn).all()
    assert 8.0 < abs(drawn[0]) < 8.3


def test_noise_is_a_function_of_offset_and_feature_alone() -> None:
    whole = noise(100, 50, np.array([3, 9]))
    assert np.array_equal(noise(120, 10, np.array([9]))[:, 0], whole[20:30, 1])


@pytest.mark.parametrize(
    ("family", "refinement"),
    [("diagonal", None), *(longer(family, "auto") for family in ("gaussian", "diagonal", "known_covariance"))],
)
def test_cuts_do_not_matter_with_it(stream: SimpleNamespace, family: str, refinement: Any) -> None:
    x = np.round(stream.nine(900, seed=1)[0])
    settings = stream.settings(n_features=2, family=family, warmup_points=300, refinement=refinement)
    whole = stream.feed(settings, x).state
    assert whole.jitter.tolist() == pytest.approx([12**-0.5] * 2)
    single = [*range(20, 280, 20), *range(290, 310), *range(320, 900, 40)]  # rows around the end of the warm-up
    for cut in (single, 77):
        assert to_bytes(stream.feed(settings, x, cut, through_bytes=True).state) == to_bytes(whole)


@pytest.mark.parametrize("refinement", [None, longer("auto")])
def test_features_that_are_nearly_always_zero_do_not_rule(stream: SimpleNamespace, refinement: Any) -> None:
    """Nine Gaussians and three features that are zero 49 times in 50: the Gaussians are found all the same."""
    rng = np.random.default_rng(5)
    x, z = stream.nine(3_000, seed=2, spacing=6.0)
    rare = (rng.random((3_000, 3)) < 0.02) * rng.integers(1, 5, size=(3_000, 3))
    settings = stream.settings(n_features=5, family="diagonal", refinement=refinement)
    run = stream.feed(settings, np.column_stack([x, rare]))
    best = [np.bincount(run.labels[1_000:][z[1_000:] == k]) for k in range(9)]
    assert all(counts.max() > 0.7 * counts.sum() for counts in best)
    assert len({int(counts.argmax()) for counts in best}) == 9


def test_flags_beside_gaussians_do_not_make_a_component_of_each_pattern(stream: SimpleNamespace) -> None:
    """Four groups by four reals and six flags were 52 components in one pass."""
    rng = np.random.default_rng(0)
    z = rng.integers(4, size=1_500)
    flags = rng.random((1_500, 6)) < rng.beta(0.5, 0.5, size=(4, 6))[z]
    x = np.hstack([flags, rng.normal(scale=2.5, size=(4, 4))[z] + rng.normal(size=(1_500, 4))])
    assert stream.feed(stream.settings(n_features=10, refinement=None), x).state.n_components <= 8
