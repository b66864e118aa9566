"""Proportions: evidence, joins and predictions by quadrature over log alpha, the kernel beside NumPy, draws, learned
hyperparameters, and states of an earlier version.

Laplace's method is held to .08 nats a feature, to .015 where two components share eight points, and to .004 where they
share fifty. Limits on sampled
quantities are five standard errors: a false alarm in 10^6 tests.
"""

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats as sps
from scipy.special import gammaln, logsumexp, polygamma, psi

from harness.short_form import longer
from shoal import StreamingDPMixture
from shoal.errors import SettingError
from shoal.families import DirichletObservations, join_gain, log_marginal
from shoal.families.dirichlet import laplace
from shoal.families.dirichlet.prior import gradients, log_partitions, posterior_modes
from shoal.mixture import from_bytes, to_bytes
from shoal.refinement.solve import reestimated
from shoal.sequential import assimilate_inplace

EARLIER = Path(__file__).parents[2] / "data" / "snapshots" / "dirichlet-0.1.0.shoal"
FAMILIES = [
    DirichletObservations(12.0, [1.0, 1.5], 0.5),
    DirichletObservations(30.0, [0.8, 2.0], 0.2),
    DirichletObservations(20.0, [1.0, 0.7, 1.3], 0.4),
    DirichletObservations(40.0, [1.0, 1.0], 1.0),
]


def drawn(alpha, n, rng):
    """(n, D) points of a Dirichlet distribution."""
    x = rng.standard_gamma(np.broadcast_to(alpha, (n, np.size(alpha))))
    return x / x.sum(axis=1, keepdims=True)


class Quadrature:
    """The trapezoid rule over log alpha, where the prior decays like an exponential."""

    def __init__(self, family):
        d = family.n_features
        u, step = np.linspace(-14.0, 7.0, 500 if d == 2 else 120, retstep=True)
        grid = np.exp(np.stack(np.meshgrid(*[u] * d, indexing="ij"), axis=-1).reshape(-1, d))
        whole = grid.sum(axis=1)
        prior = sps.dirichlet.logpdf((grid / whole[:, None]).T, family.pseudo_counts)
        prior += sps.gamma.logpdf(whole, family.spread**-2, scale=family.precision * family.spread**2)
        self.log_weight = prior + np.log(grid).sum(axis=1) - (d - 1) * np.log(whole) + d * np.log(step)
        self.alpha, self.log_norm = grid, gammaln(whole) - gammaln(grid).sum(axis=1)

    def terms(self, x, resp):
        """log of prior times weighted densities at the nodes."""
        return self.log_weight + resp.sum() * self.log_norm + (self.alpha - 1.0) @ (resp @ np.log(x))

    def evidence(self, x, resp):
        return logsumexp(self.terms(x, resp))


@pytest.mark.parametrize("family", FAMILIES, ids=["two", "two, narrow", "three", "two, wide"])
@pytest.mark.short_form("two", "two, narrow")
def test_evidence_joins_and_predictions_by_quadrature(family):
    rng, d = np.random.default_rng(3), family.n_features
    exact = Quadrature(family)
    assert_allclose(exact.evidence(np.full((1, d), 1.0 / d), np.zeros(1)), 0.0, atol=2e-3)
    for n, limit in ((1, 0.08 * d), (8, 0.015 * d), (50, 0.004 * d)):
        x, resp = drawn(rng.uniform(2.0, 9.0, d), n, rng), rng.dirichlet([2.0, 1.0], n)
        stats = family.suffstats(x, resp)
        due = [exact.evidence(x, resp[:, 0]), exact.evidence(x, resp[:, 1]), exact.evidence(x, resp.sum(axis=1))]
        assert_allclose(log_marginal(family, stats), due[:2], atol=limit)
        assert_allclose(join_gain(family, stats, [0], [1]), due[2] - due[0] - due[1], atol=2.0 * limit)
        more = np.vstack([x, drawn(np.full(d, 4.0), 1, rng)])
        for k in range(2):
            with_point = exact.evidence(more, np.append(resp[:, k], 1.0)) - due[k]
            assert_allclose(family.log_predictive(family.posterior(stats), more[-1:])[0, k], with_point, atol=limit)


def test_draws_are_of_the_posterior():
    family, rng, n = FAMILIES[0], np.random.default_rng(5), 4_000
    x = drawn([2.0, 1.0], 3, rng)
    exact = Quadrature(family)
    terms = exact.terms(x, np.ones(3))
    share = np.exp(terms - logsumexp(terms))
    params = family.posterior(family.suffstats(x, np.ones((3, 1))))
    many = type(params)(*(np.repeat(field, n, axis=0) for field in params))
    draws = np.log(family.sample_parameters(many, rng).alpha)
    for power in (1, 2):
        drawn_moment, due = draws**power, share @ np.log(exact.alpha) ** power
        assert (np.abs(drawn_moment.mean(axis=0) - due) < 5.0 * drawn_moment.std(axis=0) / np.sqrt(n) + 0.02).all()


@pytest.mark.parametrize("d", [2, 7, 40])
def test_the_kernel_is_numpy(d):
    rng = np.random.default_rng(d)
    family = DirichletObservations(8.0 * d, rng.uniform(0.02, 2.0, d))
    prior, mass = family.laplace_prior, np.array([0.0, 0.05, 1.0, 30.0, 1e4])
    mean = np.array([np.log(np.maximum(drawn(3.0 * prior.pseudo_counts, 20, rng), 1e-12)).mean(axis=0) for _ in mass])
    total = mean * mass[:, None]
    alpha = laplace.mode(prior, total, mass)
    assert_allclose(posterior_modes(family, total, mass), alpha, rtol=1e-9)
    value = laplace.log_partition(prior, total, mass, alpha)
    assert_allclose(log_partitions(family, total, mass, alpha), value, rtol=1e-11, atol=1e-11)
    slope = np.column_stack(laplace.gradient(prior, mass, alpha))
    assert_allclose(gradients(family, mass, alpha), slope, rtol=1e-10)
    for large in (1e-8, 1e9):
        assert_allclose(laplace.times_trigamma(large), large**2 * polygamma(1, large), rtol=1e-9)


def states(n, rng):
    """Priors and statistics of 2 to 59 features, masses below one and far above it, and shares down to 1e-12."""
    for _ in range(n):
        d, mass = int(rng.integers(2, 60)), np.exp(rng.uniform(np.log(0.02), np.log(1e5), 4))
        counts = rng.uniform(0.05, 2.0, d)
        family = DirichletObservations(d * np.exp(rng.uniform(-1.0, 7.0)), counts, rng.choice([0.001, 0.1, 0.7, 2.0]))
        alpha = np.maximum(rng.dirichlet(counts), 1e-6) * d * np.exp(rng.uniform(-1.0, 7.0))
        rows = np.log(np.maximum(drawn(alpha, 12, rng), 1e-12)).reshape(4, 3, d)
        yield family, mass, np.where(mass > 2.0, rows.mean(axis=1).T, rows[:, 0].T).T * mass[:, None]


@pytest.mark.parametrize("n", [40, longer(200)])
def test_the_kernel_is_numpy_and_slopes_are_differences(n):
    rng = np.random.default_rng(9)
    for family, mass, total in states(n, rng):
        prior = family.laplace_prior
        alpha = laplace.mode(prior, total, mass)
        assert_allclose(posterior_modes(family, total, mass), alpha, rtol=1e-7)
        value = laplace.log_partition(prior, total, mass, alpha)
        size = 1.0 + 10.0 * prior.shape + mass * np.abs(laplace.log_beta(alpha)) + np.abs(total * alpha).sum(axis=1)
        assert (np.abs(log_partitions(family, total, mass, alpha) - value) < 1e-13 * size).all()
        slope = np.column_stack(laplace.gradient(prior, mass, alpha))
        assert_allclose(gradients(family, mass, alpha), slope, rtol=1e-7, atol=1e-9)
        along = rng.standard_normal(total.shape) / (alpha * np.sqrt(total.shape[1]))
        more = rng.standard_normal(mass.size) * mass / (1.0 + mass * alpha.sum(axis=1))
        step = 1e-4
        ends = [(total + way * step * along, mass + way * step * more) for way in (1.0, -1.0)]
        up, down = (laplace.log_partition(prior, *end, laplace.mode(prior, *end)) for end in ends)
        due = (slope[:, :-1] * along).sum(axis=1) + slope[:, -1] * more
        parts = np.abs(slope[:, :-1] * along).sum(axis=1) + np.abs(slope[:, -1] * more)
        at = laplace.curvature(prior, mass, alpha)
        curved = at.rest * at.whole**2 / at.spread > 0.99 * prior.shape  # fractions of a point may have no clear mode
        wrong = np.abs((up - down) / (2.0 * step) - due) - 1e-4 * parts - 1e-11 * size / step
        assert (wrong[curved] < 0.0).all()
        assert curved[mass >= 3.0].all()


def test_the_mode_is_where_the_gradient_vanishes():
    """Also for components whose points repeat, or lie at the edge."""
    family = DirichletObservations(40.0, np.full(6, 0.3), 0.5)
    x = np.array([[1.0, 0.0, 0.0, 0.0, 0.0, 0.0], np.full(6, 1.0 / 6.0), [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]])
    for n in (1.0, 100.0, 1e5):
        stats = family.suffstats(x, n * np.eye(3))
        alpha = family.posterior_mode(stats)
        whole, c, a = alpha.sum(axis=1, keepdims=True), family.pseudo_counts, family.spread**-2
        slope = (a - c.sum()) / whole - a / family.precision + n * psi(whole)
        size = c + alpha * np.abs(stats.total) + n * np.abs(alpha * psi(alpha))
        assert (np.abs(c + alpha * (stats.total - n * psi(alpha) + slope)) < 1e-6 * size).all()


def test_densities_are_scipys():
    rng, family = np.random.default_rng(2), FAMILIES[2]
    x = drawn([3.0, 1.0, 2.0], 6, rng)
    draw = family.sample_parameters(family.posterior(family.suffstats(x, rng.dirichlet(np.ones(4), 6))), rng)
    for k in range(4):
        assert_allclose(family.log_likelihood(draw, x)[:, k], sps.dirichlet.logpdf(x.T, draw.alpha[k]), rtol=1e-9)


# Hyperparameters, streams, and states of an earlier version


def test_the_prior_is_learned_from_components():
    """Sixty components of precisions about 200, deviation .5 of that, and means of pseudo counts 6: each is known to a
    few hundredths from 80 points, their mean to .5 / sqrt(60) = .065."""
    rng, share = np.random.default_rng(8), np.array([0.4, 0.3, 0.2, 0.1])
    alpha = rng.dirichlet(6.0 * share, 60) * rng.gamma(4.0, 50.0, (60, 1))
    totals = [np.log(np.maximum(drawn(row, 80, rng), 1e-12)).sum(axis=0) for row in alpha]
    family = DirichletObservations(60.0, np.ones(4), 2.0)
    stats = family.empty_stats(60)._replace(mass=np.full(60, 80.0), total=np.array(totals))
    learned = family
    for _ in range(4):
        learned = reestimated(learned, stats, 0.0)
    assert abs(np.log(learned.precision / 200.0)) < 0.065 * 4 + 0.09
    assert learned.spread in (0.35, 0.5, 0.7)
    assert abs(np.log(learned.pseudo_counts.sum() / 6.0)) < 0.5
    assert_allclose(learned.pseudo_counts / learned.pseudo_counts.sum(), share, atol=0.08)
    assert log_marginal(learned, stats).sum() > log_marginal(family, stats).sum()


def test_components_of_many_precisions_are_told_apart_and_bounds_rise():
    rng = np.random.default_rng(0)
    share = 1.0 / np.arange(1, 13)
    z = rng.choice(12, size=1_200, p=share / share.sum())
    alpha = rng.dirichlet(np.ones(8), 12) * 150.0 * np.exp(0.7 * rng.standard_normal((12, 1)))
    x = np.array([drawn(alpha[k], 1, rng)[0] for k in z])
    model = StreamingDPMixture("dirichlet", refinement=None).fit(x)
    bounds = []
    for _ in range(3):
        report = model.refine()
        bounds += [report.bound_before, report.bound_after]
    assert all(b >= a - 1e-6 * len(x) for a, b in pairwise(bounds))
    assert 12 <= len(model.component_ids_) <= 13
    found = [np.bincount(z[model.predict(x) == i], minlength=12) for i in model.component_ids_]
    assert sum(counts.max() for counts in found) > 0.98 * len(x)
    assert model._fitted.state.prior.spread > 0.1


def test_a_stream_of_an_earlier_version_goes_on_and_is_refined():
    state, window = from_bytes(EARLIER.read_bytes())
    assert window is None
    heavy = np.flatnonzero(state.stats.mass[: state.n_components] > 10.0)
    theta = state.prior.posterior_mode(state.stats)[heavy]
    theta /= theta.sum(axis=1, keepdims=True)
    order = np.argmax(theta, axis=1)
    assert_array_equal(np.sort(order), [0, 1, 3])
    assert_allclose(theta.max(axis=1), [{0: 0.7, 1: 0.6, 3: 0.6}[k] for k in order], atol=0.03)
    assert (state.past.offset, state.past.stats.mass.sum()) == (240, pytest.approx(240.0))
    assert to_bytes(from_bytes(to_bytes(state))[0]) == to_bytes(state)
    ids = state.ids[heavy]
    more = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.1, 0.2, 0.6]])
    state, info = assimilate_inplace(state, more)
    assert_array_equal(info.labels, [ids[list(order).index(k)] for k in (0, 1, 3)])


def test_arrays_of_an_earlier_prior_are_read():
    family = DirichletObservations(7.0, [0.6, 0.8])
    arrays = family.to_arrays()
    del arrays["spread"]
    steps = {"step_offset": np.array(0.3), "step_power": np.array(1.0), "n_points": np.array(0.0)}
    assert DirichletObservations.from_arrays({**arrays, **steps}) == family
    for given in ({**arrays, "colour": np.zeros(())}, {"precision": arrays["precision"]}):
        with pytest.raises(SettingError, match="; give"):
            DirichletObservations.from_arrays(given)


def test_settings_out_of_range_are_refused():
    for given in ((0.0, [1.0, 1.0]), (1.0, [1.0]), (1.0, [1.0, -1.0]), (1.0, [1.0, 1.0], 0.0)):
        with pytest.raises(SettingError):
            DirichletObservations(*given)


@pytest.mark.parametrize("weight", [1e7, 1e8, 1e9])
def test_heavy_components_of_equal_points_are_loaded(weight):
    """A precision of about 1e14 has two digits: kernel and NumPy find different modes."""
    for row in np.random.default_rng(0).dirichlet(np.ones(5), size=10):
        prior = DirichletObservations(2.0**25, np.ones(5), 0.1)
        model = StreamingDPMixture("dirichlet", prior=prior, refinement=None).fit(row[None], sample_weight=[weight])
        loaded = pickle.loads(pickle.dumps(model))
        assert_array_equal(loaded.masses_, model.masses_)
        assert_array_equal(loaded.partial_fit(row[None]).masses_, model.partial_fit(row[None]).masses_)
