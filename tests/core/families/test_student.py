"""Student t components against SciPy, quadrature and enumeration, and what streams and refinements make of them."""

import io

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, logsumexp
from scipy.stats import gamma, multivariate_t
from sklearn.metrics import adjusted_rand_score

from harness.refinement_problems import CONCENTRATION, partitions
from harness.short_form import longer
from shoal import DPMixture, StreamingDPMixture
from shoal.errors import SettingError
from shoal.estimators.batch_engines import ENGINES
from shoal.families import MultivariateStudent, kl, log_marginal
from shoal.families.capabilities import (
    core_variance,
    fitted_suffstats,
    log_left_out,
    natural_rows_given,
    suffstats_given,
)
from shoal.families.natural_statistics import Origin
from shoal.families.prior_choices import choices
from shoal.families.student.precision import best_degrees, factor_given, log_prior
from shoal.inference import Model, Search, StickPrior, SweepStart, WindowData, no_past, swept, swept_from
from shoal.process import log_eppf
from shoal.variational import fit_vdp


def learned_degrees(model: StreamingDPMixture) -> float:
    return float(model._snapshot().prior.degrees)


def prior(d: int, degrees: float = 4.0, seed: int = 0) -> MultivariateStudent:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d + 2))
    return MultivariateStudent(rng.normal(size=d), 0.4, d + 3.5, root @ root.T, degrees)


def clusters(n: int, d: int, k: int, degrees: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """n points of k Student t clusters with covariances of their own, and their clusters."""
    rng = np.random.default_rng(seed)
    centres, z = rng.uniform(-8.0, 8.0, (k, d)), rng.integers(k, size=n)
    roots = 0.5 * np.eye(d) + 0.5 * rng.normal(size=(k, d, d)) / np.sqrt(d)
    noise = np.einsum("nij,nj->ni", roots[z], rng.normal(size=(n, d)))
    return centres[z] + noise / np.sqrt(rng.chisquare(degrees, n) / degrees)[:, None], z


@pytest.mark.parametrize("d", [1, 2, 6])
def test_density_given_parameters_is_scipys(d: int) -> None:
    family, rng = prior(d), np.random.default_rng(1)
    drawn = family.sample_parameters(family.posterior(family.empty_stats(2)), rng)
    x = family.sample_points(drawn, 5, rng).reshape(-1, d)
    for k in range(2):
        exact = np.atleast_1d(multivariate_t(drawn.mean[k], drawn.covariance[k], 4.0).logpdf(x))
        assert_allclose(family.log_likelihood(drawn, x)[:, k], exact, rtol=1e-12)


@pytest.mark.parametrize("d", [1, 3])
def test_expected_log_likelihood_is_the_integral_over_the_precision_factor(d: int) -> None:
    """max over q(u) of E_q[f(u)] - KL(q || p) is log of the integral of p(u) exp f(u): by quadrature here."""
    family, rng = prior(d), np.random.default_rng(2)
    params = family.posterior(family.suffstats(rng.normal(size=(9, d)), np.ones((9, 1))))
    x = 3.0 * rng.normal(size=(4, d))
    whole = params.dof[0] * np.linalg.inv(params.scale[0])
    away = x - params.mean
    square = np.einsum("nd,de,ne->n", away, whole, away) + d / params.mean_strength[0]
    log_det = sum(_digamma((params.dof[0] - i) / 2) for i in range(d)) + d * np.log(2)
    log_det -= np.linalg.slogdet(params.scale[0])[1]
    for n, q in enumerate(square):

        def integrand(u: float, q: float = q) -> float:
            return float(gamma.pdf(u, 2.0, scale=0.5) * np.exp(0.5 * (log_det + d * np.log(u / (2 * np.pi)) - u * q)))

        exact = quad(integrand, 0, 1, epsabs=0, epsrel=1e-11)[0] + quad(integrand, 1, np.inf, epsabs=0, epsrel=1e-11)[0]
        assert family.expected_log_likelihood(params, x)[n, 0] == pytest.approx(np.log(exact), rel=1e-9)


def _digamma(a: float) -> float:
    """By a central difference of the log-gamma function, to 1e-9."""
    h = 1e-3
    wide, near = (gammaln(a + 2 * h) - gammaln(a - 2 * h)) / (4 * h), (gammaln(a + h) - gammaln(a - h)) / (2 * h)
    return float((4 * near - wide) / 3)


def exact_log_predictive(family: MultivariateStudent, params: object, x: np.ndarray) -> np.ndarray:
    """log p(x) (N,) of one component by quadrature over u: given u it is the Student t of a Gaussian component."""
    u, w = np.polynomial.legendre.leggauss(400)
    u, w = (u + 1) / 2, w / 2  # the quantiles of u
    factor = gamma.ppf(u, family.degrees / 2, scale=2 / family.degrees)
    d, (dof,), (strength,) = family.n_features, params.dof, params.mean_strength  # type: ignore[attr-defined]
    n = float(dof) - d + 1
    values = [
        multivariate_t(params.mean[0], params.scale[0] / n * (1 / f + 1 / strength), n).logpdf(x)  # type: ignore[attr-defined]
        for f in factor
    ]
    return np.asarray(logsumexp(np.array(values), b=w[:, None], axis=0))


@pytest.mark.parametrize(("d", "n", "within"), [(2, 10, 0.14), (2, 100, 0.025), (8, 40, 0.08), (8, 400, 0.01)])
def test_predictive_is_near_the_exact_one(d: int, n: int, within: float) -> None:
    """The approximation has the exact mean and covariance. The largest error among the component's own points falls
    with their number; `within` is a third above what was measured."""
    family = MultivariateStudent.weak(d, degrees=4.0)
    x, _ = clusters(n + 60, d, 1, 4.0, seed=3)
    params = family.posterior(fitted_suffstats(family, x[:n], np.ones((n, 1))))
    error = family.log_predictive(params, x[n:])[:, 0] - exact_log_predictive(family, params, x[n:])
    assert np.abs(error).max() < within
    assert abs(error.mean()) < 0.3 * within


def test_as_degrees_grow_it_is_the_gaussian() -> None:
    family, rng = prior(3, degrees=1e8), np.random.default_rng(4)
    x, resp = rng.normal(size=(20, 3)), rng.dirichlet(np.ones(2), 20)
    gaussian = family.inner
    stats, own = fitted_suffstats(family, x, resp), gaussian.suffstats(x, resp)
    assert_allclose(log_marginal(family, stats), log_marginal(gaussian, own), rtol=1e-6)
    params = family.posterior(stats)
    assert_allclose(family.log_predictive(params, x), gaussian.log_predictive(gaussian.posterior(own), x), rtol=1e-6)


def log_evidence(family: MultivariateStudent, x: np.ndarray) -> float:
    """log evidence of points (N, 1) of one component, by quadrature over mean and log variance."""
    scale, shape = float(family.scale_matrix[0, 0]), family.dof / 2
    mean, log_variance = np.linspace(-30, 30, 1_501), np.linspace(-6, 9, 201)
    m, v = np.meshgrid(mean, np.exp(log_variance), indexing="ij")
    total = shape * np.log(scale / 2) - gammaln(shape) - shape * np.log(v) - scale / (2 * v)  # of log v
    total += -0.5 * np.log(2 * np.pi * v / family.mean_strength)
    total -= 0.5 * family.mean_strength * (m - family.mean[0]) ** 2 / v
    nu = family.degrees
    constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi)
    for point in x[:, 0]:
        total += constant - 0.5 * np.log(v) - 0.5 * (nu + 1) * np.log1p((point - m) ** 2 / (nu * v))
    step = (mean[1] - mean[0]) * (log_variance[1] - log_variance[0])
    return float(logsumexp(total) + np.log(step))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_bound_of_a_component_is_below_its_evidence(n: int) -> None:
    family = MultivariateStudent([0.5], 0.3, 4.0, [[1.5]], 3.0)
    x = np.random.default_rng(n).standard_t(3.0, (n, 1))
    bound, exact = log_marginal(family, fitted_suffstats(family, x, np.ones((n, 1))))[0], log_evidence(family, x)
    assert exact - 0.25 * n < bound < exact


def test_search_raises_a_bound_below_the_enumerated_evidence() -> None:
    """Evidence of four points: all 15 partitions, each block by quadrature. The bound rises at every pass."""
    family = MultivariateStudent([0.0], 0.2, 4.0, [[0.4]], 3.0)
    x = np.array([[-2.1], [-1.7], [2.2], [1.9]])
    blocks: dict[tuple[int, ...], float] = {}
    joint = []
    for partition in partitions(4):
        total = log_eppf(np.array([float(len(block)) for block in partition]), CONCENTRATION)
        for block in map(tuple, map(sorted, partition)):
            if block not in blocks:
                blocks[block] = log_evidence(family, x[list(block)])
            total += blocks[block]
        joint.append(total)
    data = WindowData(x, np.ones(4))
    search = Search(data, Model(family, StickPrior(1.0, CONCENTRATION)), np.random.default_rng(0))
    kept: list[float] = []
    search.accepted = lambda state: kept.append(state.bound)
    end = search.run(search.single_start(0), 10)
    assert np.all(np.diff(kept) >= 0.0)
    assert kept[0] <= end.bound < logsumexp(joint)
    assert end.bound > logsumexp(joint) - 4.0


def test_every_sweep_raises_the_bound() -> None:
    """From three components of random rows, in clusters that overlap."""
    rng = np.random.default_rng(5)
    x = rng.standard_t(3.0, (300, 2)) + 1.5 * rng.choice([-1.0, 1.0], (300, 1))
    family, data = MultivariateStudent.weak(2, 1.0), WindowData(x, np.ones(300))
    model = Model(family, StickPrior(1.0, 1.0))
    params = family.posterior(family.suffstats(x, rng.dirichlet(np.ones(3), 300)))
    state = swept_from(data, model, SweepStart(params, np.full(3, 100.0), no_past(family, 3), np.arange(3)))
    bounds = [state.bound]
    for _ in range(30):
        state = swept(data, model, state)
        bounds.append(state.bound)
    assert np.diff(bounds).min() > -1e-9
    assert bounds[-1] > bounds[0] + 1.0


def test_rows_of_natural_statistics_are_those_of_the_statistics() -> None:
    family, rng = prior(3), np.random.default_rng(6)
    x, weight = rng.normal(size=(40, 3)), rng.uniform(size=40)
    params = family.posterior(family.suffstats(x, np.ones((40, 1))))
    origin = Origin(np.zeros(3), True)
    rows = natural_rows_given(family, params, x, origin)
    stats = suffstats_given(family, params, x, weight[:, None])
    change = family.natural(family.posterior(stats)) - family.natural(family.posterior(family.empty_stats(1)))
    assert_allclose(weight @ rows, change[0], rtol=1e-10, atol=1e-10)


def test_a_point_left_out_is_scored_by_the_others() -> None:
    family = prior(3)
    x, _ = clusters(30, 3, 1, 4.0, seed=7)
    stats = fitted_suffstats(family, x, np.ones((30, 1)))
    share = np.linspace(0.2, 1.0, 30)
    scores = log_left_out(family, stats, x, share)
    for n in range(30):
        own = suffstats_given(family, family.posterior(stats), x[n : n + 1], share[n : n + 1, None])
        rest = family.posterior(family.subtract(stats, own))
        assert scores[n] == pytest.approx(float(family.log_predictive(rest, x[n : n + 1])[0, 0]), rel=1e-9)


def test_best_degrees_maximise_the_prior_of_the_precision_factors() -> None:
    """Against SciPy's bounded search, and by a finite difference."""
    square = np.random.default_rng(8).chisquare(4, size=(200, 1)) * np.random.default_rng(9).chisquare(2, size=(200, 1))
    factor = factor_given(4.0, 3, square)
    mass, weight, log_weight = np.array([200.0]), factor.mean.sum(axis=0), factor.log_mean.sum(axis=0)

    def loss(log_degrees: float) -> float:
        return -float(log_prior(float(np.exp(log_degrees)), mass, weight, log_weight)[0])

    found = best_degrees(200.0, float(weight[0]), float(log_weight[0]))
    other = float(np.exp(minimize_scalar(loss, bounds=(0.5, 8.0), method="bounded", options={"xatol": 1e-9}).x))
    assert found == pytest.approx(other, rel=1e-5)
    assert abs(loss(np.log(found) + 1e-4) - loss(np.log(found) - 1e-4)) / 2e-4 < 1e-4


def test_choices_of_a_prior_hold_the_degrees_that_suit_the_components() -> None:
    x, _ = clusters(600, 2, 1, 3.0, seed=10)
    family = MultivariateStudent.weak(2, 1.0, degrees=20.0)
    for _ in range(60):
        stats = fitted_suffstats(family, x, np.ones((600, 1)))
        choice = choices(family, stats, 3)
        assert choice is not None
        family = choice.build(*choice.start)
    assert 2.2 < family.degrees < 4.2


@pytest.mark.parametrize("degrees", [2.05, 3.0, 30.0])
def test_core_variance_is_that_of_the_normal_numerator(degrees: float) -> None:
    """A Student t is a normal vector over the root of a factor. The core is the normal vector alone."""
    rng, deviation = np.random.default_rng(11), np.array([0.5, 2.0, 4.0])
    x = deviation * rng.normal(size=(4_000, 3)) / np.sqrt(rng.chisquare(degrees, (4_000, 1)) / degrees)
    family = MultivariateStudent.weak(3, 1.0, degrees=degrees)
    core = core_variance(family, fitted_suffstats(family, x, np.ones((4_000, 1))))
    assert core is not None
    assert_allclose(core, [deviation**2], rtol=0.12)


def test_kl_and_rows_do_not_depend_on_the_origin() -> None:
    family, x = prior(2), np.random.default_rng(11).normal(size=(20, 2))
    far = MultivariateStudent(family.mean + 1e6, 0.4, 5.5, family.scale_matrix, 4.0)
    near, moved = (fitted_suffstats(f, x + shift, np.ones((20, 1))) for f, shift in ((family, 0.0), (far, 1e6)))
    assert_allclose(log_marginal(far, moved), log_marginal(family, near), rtol=1e-7)
    assert_allclose(
        kl(far, far.posterior(moved), far.posterior(far.empty_stats(1))),
        kl(family, family.posterior(near), family.posterior(family.empty_stats(1))),
        rtol=1e-7,
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"degrees": 2.0}, "degrees"),
        ({"degrees": np.nan}, "degrees"),
        ({"dof": 3.0}, "dof"),
        ({"scale": -1.0}, "scale"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, float], words: str) -> None:
    given = {"mean": np.zeros(2), "mean_strength": 1.0, "dof": 4.0, "scale": np.eye(2), "degrees": 3.0}
    with pytest.raises(SettingError, match=words):
        MultivariateStudent(**(given | ({"scale": -np.eye(2)} if words == "scale" else change)))


@pytest.mark.parametrize(
    ("n", "warmup", "d", "degrees"), [(600, 300, 8, 5.0), longer(3_000, 1_000, 8, 5.0), longer(3_000, 1_000, 2, 3.0)]
)
def test_heavy_tails_make_no_components(n: int, warmup: int, d: int, degrees: float) -> None:
    """`gaussian` covers the tails by components of their own. The learned degrees of freedom are near the true ones."""
    x, z = clusters(n, d, 5, degrees, seed=12)
    student, gaussian = (
        StreamingDPMixture(name, warmup_points=warmup).partial_fit(x) for name in ("student", "gaussian")
    )
    assert len(student.weights_) == len(np.unique(z)) == 5 < len(gaussian.weights_)
    assert 0.7 * degrees < learned_degrees(student) < 1.5 * degrees
    fresh = x[:500]
    assert student.score(fresh) > gaussian.score(fresh)


@pytest.mark.parametrize(("n", "warmup", "last", "adopted"), [(120, 60, 100, 1), longer(450, 200, 400, 2)])
def test_a_fit_is_the_same_wherever_the_stream_is_cut(n: int, warmup: int, last: int, adopted: int) -> None:
    """Over the end of the warm-up and refinements after it, the last of them at a given row."""
    x, _ = clusters(n, 2, 4, 4.0, seed=13)
    whole, cut = (StreamingDPMixture("student", warmup_points=warmup) for _ in range(2))
    whole.partial_fit(x)
    for part in np.split(x, [1, warmup // 2, warmup, warmup + 1, last - 20, last, last + 1]):
        cut.partial_fit(part)
    assert whole._fitted.state.schedule.refined_at == last
    assert whole._fitted.state.schedule.adopted == adopted
    written = [io.BytesIO(), io.BytesIO()]
    whole.save(written[0])
    cut.save(written[1])
    assert written[0].getvalue() == written[1].getvalue()


@pytest.mark.parametrize("method", [name for name, engine in ENGINES.items() if engine.fits_latent])
@pytest.mark.short_form("vdp", "fsd", "ctsb")
def test_batch_methods_fit_the_precision_factors(method: str) -> None:
    """The bound rises in every round, but for the collapsed methods, whose bound is approximate."""
    x, z = clusters(600, 4, 3, 4.0, seed=14)
    model = DPMixture("student", method, random_state=0).fit(x)
    assert adjusted_rand_score(z, model.predict(x)) > 0.95
    steps = np.diff(model.elbo_history_)
    assert model.elbo_history_[-1] == model.elbo_ > model.elbo_history_[0]
    if method in ("tsb", "o-tsb", "fsd"):
        assert steps.min() > -1e-6


def test_vdp_improves_on_given_responsibilities_and_keeps_their_number() -> None:
    x, z = clusters(400, 2, 3, 4.0, seed=15)
    family, start = MultivariateStudent.weak(2, 1.0), np.full((400, 3), 0.2)
    start[np.arange(400), z] = 0.6
    found = [
        fit_vdp(family, x, concentration=1.0, resp_init=start, max_iter=n, rng=np.random.default_rng(0))
        for n in (0, 1, 50)
    ]
    assert found[0].elbo < found[1].elbo < found[2].elbo
    assert all(fit.resp is not None and fit.resp.shape == (400, 3) for fit in found)
    assert_allclose(found[2].stats.mass, found[2].resp.sum(axis=0), rtol=1e-9)
    with pytest.raises(SettingError, match="latent variable"):
        fit_vdp(family, x, concentration=1.0, moves="paper", rng=np.random.default_rng(0))


@pytest.mark.parametrize("method", [name for name, engine in ENGINES.items() if not engine.fits_latent])
def test_methods_that_need_exact_evidence_refuse_by_name(method: str) -> None:
    for given in ("student", prior(2)):
        with pytest.raises(SettingError, match=rf"'{method}' needs the evidence .* lower bound .* vdp, tsb"):
            DPMixture(given, method).fit(np.zeros((9, 2)))


def test_history_of_a_search_never_falls() -> None:
    """It held the bounds of rejected moves."""
    x = np.random.default_rng(0).normal(size=(4, 6, 2))[-1] * 2.0
    model = DPMixture(MultivariateStudent([0.0, 1.0], 0.3, 4.5, [[1.0, 0.2], [0.2, 0.8]], 4.0), random_state=0).fit(x)
    assert np.diff(model.elbo_history_).min() >= 0.0
    assert model.elbo_history_[-1] == model.elbo_
