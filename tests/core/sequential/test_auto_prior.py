"""The automatic prior: standardisation, its scale invariance, and that it finds the scale of clusters."""

from types import SimpleNamespace

import numpy as np
import pytest

from harness.short_form import longer
from shoal.families import AnyFamily, NormalInverseGamma, NormalInverseWishart
from shoal.sequential.prior.choose import (
    choose_prior,
    located_prior,
    standardisation,
    univariate_deviation,
    within_deviation,
)
from shoal.sequential.prior.race import best_of


def test_columns_are_standardised() -> None:
    rows = np.random.default_rng(0).normal([3.0, -1e6, 0.0], [2.0, 1e-2, 1e5], size=(500, 3))
    location, scale = standardisation(rows)
    np.testing.assert_allclose(location, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scale, rows.std(axis=0), rtol=1e-9)


@pytest.mark.parametrize("value", [0.0, 7.3, -1e6 / 3, 1e140])
def test_a_constant_column_is_given_the_median_deviation_of_the_others(value: float) -> None:
    rows = np.random.default_rng(1).normal(0.0, [1.0, 0.0, 5.0, 25.0], size=(400, 4))
    rows[:, 1] = value
    scale = standardisation(rows)[1]
    assert scale[1] == np.median(scale[[0, 2, 3]])


def test_columns_that_are_all_constant_are_left_as_they_are() -> None:
    location, scale = standardisation(np.full((5, 2), 4.0))
    assert location.tolist() == [4.0, 4.0]
    assert scale.tolist() == [1.0, 1.0]


def test_rounding_noise_is_no_variance() -> None:
    rows = np.full((100, 2), 1e9) + np.random.default_rng(2).integers(0, 2, (100, 2)) * 2.0**-23
    rows[:, 1] = np.linspace(0, 1, 100)
    scale = standardisation(rows)[1]
    assert scale[0] == scale[1]


def test_within_deviation_pools_over_components() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(5, size=20_000)
    within = np.array([0.1, 0.5, 1.0])
    z = rng.normal(size=(5, 3))[labels] * np.sqrt(1 - within**2) + within * rng.normal(size=(20_000, 3))
    found = within_deviation(z / z.std(axis=0), labels)
    np.testing.assert_allclose(found, within / z.std(axis=0), rtol=0.03)
    np.testing.assert_array_equal(within_deviation(z / z.std(axis=0), 3 * labels + 2), found)  # names without a row


def test_within_deviation_of_a_constant_or_perfectly_parted_column_is_bounded() -> None:
    labels = np.arange(100) % 2
    z = np.stack([2.0 * labels - 1.0, np.zeros(100), np.linspace(-1.7, 1.7, 100)], axis=1)
    assert within_deviation(z, labels).tolist()[:2] == [1 / 64, 1.0]


def test_it_depends_on_the_rows_alone_and_not_on_their_units(stream: SimpleNamespace, family: str) -> None:
    x, _ = stream.nine(600, seed=1)
    settings = stream.settings(n_features=2, family=family)
    plain = choose_prior(x, settings)
    assert choose_prior(x.copy(), settings).prior == plain.prior
    moved = choose_prior(x * [2.0, 0.25] + 4.0, settings)  # exact in binary, but for the mean
    np.testing.assert_allclose(moved.scale, plain.scale * [2.0, 0.25], rtol=1e-9)
    for name, value in moved.prior.to_arrays().items():
        np.testing.assert_allclose(value, plain.prior.to_arrays()[name], rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("spread", [0.02, 0.2, 1.0])
def test_it_finds_how_large_clusters_are(stream: SimpleNamespace, spread: float) -> None:
    """Clusters on a grid of spacing 4: the deviation that the prior expects is within a factor of three of theirs."""
    rng = np.random.default_rng(4)
    z = rng.integers(9, size=1_000)
    x = 4.0 * np.stack([z % 3, z // 3], axis=1) + spread * rng.normal(size=(1_000, 2))
    chosen = choose_prior(x, stream.settings(n_features=2))
    prior = chosen.prior
    assert isinstance(prior, NormalInverseWishart)
    expected = np.sqrt(np.diag(prior.scale_matrix) / (prior.dof - 3)) * chosen.scale
    assert np.all(np.abs(np.log(expected / spread)) < np.log(3.0))


def test_features_that_do_not_part_clusters_are_given_more_room(stream: SimpleNamespace) -> None:
    """One feature parts the clusters, one does not: the second round scales them differently."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1_000, 2))
    x[:, 0] += 12.0 * rng.integers(6, size=1_000)
    chosen = choose_prior(x, stream.settings(n_features=2, family="diagonal"))
    ratio = chosen.scale / x.std(axis=0)
    assert ratio[1] / ratio[0] > 8.0


@pytest.mark.parametrize("n", [33, 64, 500])
def test_the_kernel_finds_in_a_feature_alone_what_a_race_of_diagonal_priors_finds(
    n: int, stream: SimpleNamespace
) -> None:
    """One to twenty clusters, sharp or blurred, with long tails; then steps, nothing, and something tiny."""
    rng = np.random.default_rng(n)
    clusters, blur = np.arange(60) % 20 + 1, 10.0 ** rng.uniform(-3.0, 0.0, size=60)
    x = rng.normal(size=(20, 60))[rng.integers(clusters, size=(n, 60)), np.arange(60)]
    x += blur * rng.standard_t(3, size=(n, 60))
    x = np.column_stack([x, x[:, 0].round(), np.full(n, 7.0), x[:, 5]])
    z = (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0.0, x.std(axis=0), 1.0)
    z[:, -1] *= 1e-3
    settings = stream.settings(n_features=63, family="diagonal", max_components=100)
    found = univariate_deviation(z, settings)
    other = np.ones(63)
    for b in np.flatnonzero(z.var(axis=0) >= 0.5):
        total = z[:, b].var()
        priors = list[AnyFamily]()
        for variance in 4.0 ** -np.arange(6):
            strength = variance / max(total - variance, total / 20)
            priors.append(NormalInverseGamma([0.0], strength, 17.0, [16.0 * variance]))
        labels = best_of(settings, priors, z[:, b : b + 1])[1].labels
        other[b] = within_deviation(z[:, b : b + 1], labels)[0]
    np.testing.assert_allclose(found, other, rtol=1e-9)
    assert len(set(found.round(6))) > 25, "many features show clusters"
    assert found[-2] == 1.0, "a constant one"


def test_few_rows_are_given_the_default(stream: SimpleNamespace, family: str) -> None:
    x, _ = stream.nine(31)
    settings = stream.settings(n_features=2, family=family)
    assert choose_prior(x, settings).prior == choose_prior(x[:20], settings).prior
    one = choose_prior(x[:1], stream.settings(n_features=2, family=family))
    assert one.location.tolist() == x[0].tolist()
    assert one.scale.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("family", ["gaussian", "diagonal", "known_covariance"])
@pytest.mark.parametrize(("variance", "dof"), [(0.5, 32.0), longer(0.02, 256.0)])
def test_a_choice_is_the_prior_whose_components_vary_by_as_much(family: str, variance: float, dof: float) -> None:
    """On average: what is drawn from it says so."""
    prior = located_prior(family, 3, 1.0, variance, dof)
    params = prior.posterior(prior.empty_stats(1))
    spread = float(prior.predictive_variance(params)[0, 0])
    assert spread == pytest.approx(variance + max(1.0 - variance, 0.05), rel=1e-12)  # within and between
    rng = np.random.default_rng(3)
    points = np.stack([prior.sample_points(prior.sample_parameters(params, rng), 50, rng)[0] for _ in range(4_000)])
    within = points.var(axis=1, ddof=1).mean()
    assert within == pytest.approx(variance, rel=0.03)  # of 12,000 clusters; seen: below one in a hundred


def test_a_constant_column_does_not_change_the_prior_of_the_others(stream: SimpleNamespace) -> None:
    """Its noise looked like a feature without clusters. On iris it cost one of three clusters in two of six orders."""
    x = stream.nine(400, seed=4)[0]
    plain = choose_prior(x, stream.settings(n_features=2))
    more = choose_prior(np.insert(x, 1, 7.0, axis=1), stream.settings(n_features=3))
    others = [0, 2]
    np.testing.assert_array_equal(more.scale[others], plain.scale)
    assert isinstance(plain.prior, NormalInverseWishart)
    assert isinstance(more.prior, NormalInverseWishart)
    assert more.prior.mean_strength == plain.prior.mean_strength
    assert more.prior.dof == plain.prior.dof + 1
    assert any(finding.startswith("1 feature of 3 did not vary") for finding in more.findings)
