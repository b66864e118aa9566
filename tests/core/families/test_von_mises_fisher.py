"""Unit vectors: normalisers beside SciPy's, evidence and predictions by quadrature over directions and concentrations,
draws, learned hyperparameters, and states of an earlier version.

Limits on sampled quantities are five standard errors: a false alarm in 10^6 tests.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats as sps
from scipy.special import iv, ive, logsumexp

from harness.short_form import longer
from shoal import StreamingDPMixture
from shoal.errors import SettingError
from shoal.families import VonMisesFisher, join_gain, log_marginal
from shoal.families.von_mises_fisher.bessel import log_normaliser, mean_length
from shoal.families.von_mises_fisher.sampling import drawn
from shoal.mixture import from_bytes, to_bytes
from shoal.refinement.solve import reestimated
from shoal.sequential import assimilate_inplace

EARLIER = Path(__file__).parents[2] / "data" / "snapshots" / "von_mises_fisher-0.1.0.shoal"


def unit(rng, *shape):
    u = rng.standard_normal(shape)
    return u / np.linalg.norm(u, axis=-1, keepdims=True)


def sphere(n=120):
    """Nodes (M, 3) and log weights (M,): Gauss-Legendre in the height, equal angles about the axis."""
    height, weight = np.polynomial.legendre.leggauss(n)
    angle = 2.0 * np.pi * (np.arange(2 * n) + 0.5) / (2 * n)
    z, a = np.meshgrid(height, angle, indexing="ij")
    r = np.sqrt(1.0 - z * z)
    nodes = np.stack([r * np.cos(a), r * np.sin(a), z], axis=-1).reshape(-1, 3)
    return nodes, np.repeat(np.log(weight * np.pi / n), 2 * n)


def circle(n=2_048):
    """The same for the plane."""
    angle = 2.0 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angle), np.sin(angle)], axis=1), np.full(n, np.log(2.0 * np.pi / n))


def evidence(family, x, resp):
    """log of the integral over directions, summed over concentrations, of prior and weighted densities: SciPy's."""
    nodes, log_weights = circle() if family.n_features == 2 else sphere()
    prior = np.full(len(nodes), float(log_normaliser(family.n_features, 0.0)))
    if family.mean_concentration > 0.0:
        prior = sps.vonmises_fisher(family.mean, family.mean_concentration).logpdf(nodes)
    parts = []
    for k, log_share in zip(family.grid.concentration, family.grid.log_share, strict=True):
        front = sps.vonmises_fisher(family.mean, k).logpdf(family.mean) - k
        parts.append(log_share + resp.sum() * front + logsumexp(prior + log_weights + k * (nodes @ (resp @ x))))
    return logsumexp(parts)


FAMILIES = [
    VonMisesFisher([0.6, 0.8], 1.5, 6.0, 0.4),
    VonMisesFisher([0.6, 0.8], 0.0, 9.0),
    VonMisesFisher([0.0, 0.6, 0.8], 3.0, 10.0, 0.6),
]


# Bessel functions


@pytest.mark.parametrize("d", [2, 3, 5, 16, 101, 103, 384])
def test_normaliser_and_mean_length_are_scipys(d):
    z = np.geomspace(1e-3, 1e5, 40)
    order = 0.5 * d - 1.0
    known = ive(order, z) > 1e-280
    z = z[known]
    exact = order * np.log(z) - 0.5 * d * np.log(2.0 * np.pi) - np.log(ive(order, z)) - z
    assert_allclose(log_normaliser(d, z), exact, rtol=1e-10, atol=1e-9)
    assert_allclose(mean_length(d, z), iv(order + 1.0, z) / iv(order, z), rtol=1e-9) if z.max() < 600 else None
    assert_allclose(mean_length(d, z), ive(order + 1.0, z) / ive(order, z), rtol=1e-9)


@pytest.mark.parametrize("d", [2, 40, 102, 768, 10_000])
def test_the_mean_length_is_the_slope_of_the_normaliser(d):
    k = np.array([1.0, 40.0, 900.0, 1e5])
    slope = (log_normaliser(d, k * (1.0 + 1e-5)) - log_normaliser(d, k * (1.0 - 1e-5))) / (2e-5 * k)
    assert_allclose(mean_length(d, k), -slope, rtol=1e-5, atol=1e-6)
    assert (np.diff(mean_length(d, np.geomspace(1e-3, 1e6, 200))) > 0.0).all()


def test_the_normaliser_of_no_concentration_is_the_surface_of_the_sphere():
    assert_allclose(log_normaliser(3, 0.0), -np.log(4.0 * np.pi), rtol=1e-11)
    assert_allclose(log_normaliser(3, 5.0), np.log(5.0 / (4.0 * np.pi * np.sinh(5.0))), rtol=1e-11)
    for d in (2, 3, 64, 768):
        assert_allclose(log_normaliser(d, 1e-9), log_normaliser(d, 0.0), rtol=1e-12)


# Evidence, joins and predictions


@pytest.mark.parametrize("family", FAMILIES, ids=["plane", "plane, known", "sphere"])
def test_evidence_joins_and_predictions_by_quadrature(family):
    rng = np.random.default_rng(3)
    x, resp = unit(rng, 9, family.n_features), rng.dirichlet(np.ones(2), 9)
    x[:5] = unit(rng, 1, family.n_features) + 0.3 * x[:5]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    stats = family.suffstats(x, resp)
    exact = [evidence(family, x, resp[:, 0]), evidence(family, x, resp[:, 1]), evidence(family, x, resp.sum(axis=1))]
    assert_allclose(log_marginal(family, stats), exact[:2], rtol=1e-9, atol=1e-8)
    assert_allclose(join_gain(family, stats, [0], [1]), exact[2] - exact[0] - exact[1], rtol=1e-8, atol=1e-8)
    more = np.vstack([x, unit(rng, 1, family.n_features)])
    for k in range(2):
        with_point = evidence(family, more, np.append(resp[:, k], 1.0)) - exact[k]
        assert_allclose(family.log_predictive(family.posterior(stats), more[-1:])[0, k], with_point, atol=1e-8)


def test_densities_are_scipys():
    rng = np.random.default_rng(2)
    family, x = FAMILIES[2], unit(rng, 6, 3)
    draw = family.sample_parameters(family.posterior(family.suffstats(x, rng.dirichlet(np.ones(4), 6))), rng)
    for k in range(4):
        exact = sps.vonmises_fisher(draw.direction[k], draw.concentration[k]).logpdf(x)
        assert_allclose(family.log_likelihood(draw, x)[:, k], exact, rtol=1e-9)


@pytest.mark.parametrize(("d", "k"), [(2, 0.0), (2, 5.0), (3, 40.0), (30, 0.5), (384, 900.0)])
def test_draws_have_the_mean_and_the_spread_of_the_distribution(d, k):
    n, m = 8_000, np.full(d, d**-0.5)
    x = drawn(m[None], np.array([k]), n, np.random.default_rng(d))[0]
    assert_allclose(np.linalg.norm(x, axis=1), 1.0, rtol=1e-12)
    along, length = x @ m, float(mean_length(d, k))
    second = 1.0 - (d - 1.0) * (length / k if k else 1.0 / d)
    assert abs(along.mean() - length) < 5.0 * along.std() / np.sqrt(n)
    assert abs((along**2).mean() - second) < 5.0 * (along**2).std() / np.sqrt(n)
    across = unit(np.random.default_rng(0), d)
    across -= (across @ m) * m
    assert abs((x @ across).mean()) < 5.0 * (x @ across).std() / np.sqrt(n)


@pytest.mark.parametrize("n_points", [0, 4])
def test_predictive_moments_are_those_of_draws(n_points):
    family, rng, n = VonMisesFisher([0.0, 0.6, 0.8], 2.0, 6.0, 0.7), np.random.default_rng(6), 20_000
    x = drawn(np.array([[0.6, 0.0, 0.8]]), np.array([3.0]), 4, rng)[0][:n_points]
    params = family.posterior(family.suffstats(x, np.ones((n_points, 1))))
    many = type(params)(*(np.repeat(field, n, axis=0) for field in params))
    points = family.sample_points(family.sample_parameters(many, rng), 1, rng)[:, 0]
    mean, covariance = family.predictive_mean(params)[0], family.predictive_covariance(params)[0]
    products = (points - mean)[:, :, None] * (points - mean)[:, None, :]
    assert (np.abs(points.mean(axis=0) - mean) < 5.0 * points.std(axis=0) / np.sqrt(n)).all()
    assert (np.abs(products.mean(axis=0) - covariance) < 5.0 * products.std(axis=0) / np.sqrt(n)).all()
    assert_allclose(family.predictive_variance(params)[0], np.diag(covariance), rtol=1e-10)


# Hyperparameters, streams, and states of an earlier version


def test_the_prior_is_learned_from_components():
    """Sixty components of log concentrations about log 300, deviation .4, and 60 points each: their mean is known to
    .4 / sqrt(60) = .05, the deviation to .04."""
    rng = np.random.default_rng(8)
    k = 300.0 * np.exp(0.4 * rng.standard_normal(60))
    m = drawn(np.eye(1, 40), np.array([60.0]), 60, rng)[0]
    x = drawn(m, k, 60, rng)
    family = VonMisesFisher(np.eye(40)[1], 10.0, 500.0, 1.0)
    stats = family.empty_stats(60)._replace(mass=np.full(60, 60.0), total=x.sum(axis=1))
    learned = family
    for _ in range(4):
        learned = reestimated(learned, stats, 0.0)
    assert abs(np.log(learned.concentration / 300.0)) < 5 * 0.05 + 0.09
    assert learned.spread in (0.35, 0.5)
    assert abs(np.log(learned.mean_concentration / 60.0)) < 0.7
    assert learned.mean @ np.eye(40)[0] > 0.95
    assert log_marginal(learned, stats).sum() > log_marginal(family, stats).sum()


@pytest.mark.parametrize(("n", "n_components", "warmup"), [(600, 12, 300), longer(1_500, 20, 1_000)])
def test_components_of_many_concentrations_are_told_apart(n, n_components, warmup):
    """A dozen and more of Zipf masses, whose log concentrations have the deviation .5. With one concentration for all,
    the broad ones fall apart."""
    rng = np.random.default_rng(0)
    share = 1.0 / np.arange(1, n_components + 1)
    z = rng.choice(n_components, size=n, p=share / share.sum())
    m, k = unit(rng, n_components, 32), 150.0 * np.exp(0.5 * rng.standard_normal(n_components))
    x = np.empty((n, 32))
    for j in range(n_components):
        x[z == j] = drawn(m[j : j + 1], k[j : j + 1], int((z == j).sum()), rng)[0]
    model = StreamingDPMixture("von_mises_fisher", warmup_points=warmup).fit(x)
    assert n_components <= len(model.component_ids_) <= n_components + 2
    labels = model.predict(x)
    found = [np.bincount(z[labels == i], minlength=n_components) for i in model.component_ids_]
    assert sum(counts.max() for counts in found) > 0.998 * len(x)
    assert any(event.kind == "refined" for event in model.events_)


def test_a_stream_of_an_earlier_version_goes_on_and_is_refined():
    state, window = from_bytes(EARLIER.read_bytes())
    assert window is None
    assert_allclose(state.stats.mass, [85.0, 82.0, 73.0])
    lengths = np.linalg.norm(state.stats.total, axis=1) / state.stats.mass
    assert_allclose(lengths, mean_length(4, state.prior.concentration), rtol=1e-12)
    assert (state.past.offset, state.past.stats.mass.sum()) == (240, 240.0)
    assert to_bytes(from_bytes(to_bytes(state))[0]) == to_bytes(state)
    x = unit(np.random.default_rng(1), 40, 4)
    ids = state.ids[: state.n_components].copy()
    state, info = assimilate_inplace(state, np.vstack([x, np.eye(3, 4)]))
    assert_array_equal(state.ids[:3], ids)
    assert_array_equal(info.labels[-3:], [ids[0], ids[2], ids[1]])


def test_arrays_of_an_earlier_prior_are_read():
    family = VonMisesFisher([0.6, 0.8], 2.0, 7.0)
    arrays = family.to_arrays()
    del arrays["spread"]
    steps = {"step_offset": np.array(0.3), "step_power": np.array(1.0), "n_points": np.array(0.0)}
    assert VonMisesFisher.from_arrays({**arrays, **steps}) == family
    for given in ({**arrays, "colour": np.zeros(())}, {"mean": arrays["mean"]}):
        with pytest.raises(SettingError, match="; give"):
            VonMisesFisher.from_arrays(given)


def test_settings_out_of_range_are_refused():
    for given in (
        ([1.0, 1.0], 0.0, 1.0),
        ([1.0, 0.0], -1.0, 1.0),
        ([1.0, 0.0], 0.0, 0.0),
        ([1.0, 0.0], 0.0, 1.0, -0.1),
    ):
        with pytest.raises(SettingError):
            VonMisesFisher(*given)


def test_the_bound_rises_with_every_refinement_until_nothing_changes():
    rng = np.random.default_rng(4)
    z = rng.integers(6, size=700)
    x = np.empty((700, 16))
    m = unit(rng, 6, 16)
    for j in range(6):
        x[z == j] = drawn(m[j : j + 1], np.array([30.0]), int((z == j).sum()), rng)[0]
    model = StreamingDPMixture("von_mises_fisher", refinement=None, warmup_points=300).fit(x)
    bounds = []
    for _ in range(3):
        report = model.refine()
        bounds += [report.bound_before, report.bound_after]
    assert all(b >= a - 1e-6 * len(x) for a, b in pairwise(bounds))
    assert len(model.component_ids_) == 6


def test_rows_that_repeat_have_variances_and_draws() -> None:
    """Concentrations rise without bound there. Variances were below zero, and a draw never ended."""
    family = VonMisesFisher(np.eye(4)[0], 1.0, 8e15, 0.5)
    x = np.repeat([[0.5, -0.5, 0.1, 0.7]], 20, axis=0) / np.linalg.norm([0.5, -0.5, 0.1, 0.7])
    params = family.posterior(family.suffstats(x, np.ones((20, 1))))
    assert family.predictive_variance(params).min() >= 0.0
    rng = np.random.default_rng(0)
    points = family.sample_points(family.sample_parameters(params, rng), 50, rng)
    assert_allclose(points[0], np.repeat(x[:1], 50, axis=0), atol=1e-6)
