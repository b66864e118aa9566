"""The bound of VDP by other roads: enumeration, summation of the tail, hard labels, numerical expectations."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betaln, logsumexp, psi

from shoal.families import kl, log_marginal
from shoal.families.natural_statistics import origin_for, seen_from, statistics, statistics_by_points
from shoal.inference import StickPrior, expected_log_weights, stick_bound, stick_posterior
from shoal.mixture import Past, log_density
from shoal.process import log_eppf, log_label_prior
from shoal.variational import fit_vdp
from shoal.variational.cells import cells_of_points
from shoal.variational.rounds import e_step, m_step, model_of, totals_of, without_past

from .vdp_cases import EVERY, FAMILIES, X2, log_eppf_of_sticks, log_evidence, partitions

STICKS = [(1.0, 0.3), (1.0, 1.0), (1.0, 4.0), (2.0, 3.0), (0.5, 1.5)]


def test_the_evidence_used_here_is_the_chinese_restaurants_for_beta_1_alpha():
    for alpha in (0.3, 1.0, 4.0):
        for counts in ([1], [3, 2], [4, 1, 1], [2, 2, 2, 1]):
            assert log_eppf_of_sticks(np.array(counts), 1.0, alpha) == pytest.approx(log_eppf(np.array(counts), alpha))
    total = logsumexp([log_eppf_of_sticks(np.bincount(z), 2.0, 3.0) for z in partitions(6)])
    assert total == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("sticks", STICKS)
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.short_form("gaussian-*", "diagonal-sticks3", "*-sticks1")
def test_the_bound_never_exceeds_the_evidence(name, sticks):
    family, x = EVERY[name]
    exact = log_evidence(family, x[:6], *sticks)
    for moves in ("paper", "default"):
        fit = fit_vdp(family, x[:6], sticks=sticks, moves=moves, rng=np.random.default_rng(0))
        assert fit.elbo <= exact
        assert fit.elbo > exact - 8.0, "a bound this loose bounds nothing"


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_never_exceeds_the_evidence_at_any_responsibilities(seed):
    rng = np.random.default_rng(seed)
    family = FAMILIES["gaussian"]
    exact = log_evidence(family, X2, 1.0, 1.3)
    for _ in range(5):
        resp = rng.dirichlet(np.full(4, 0.3), size=len(X2))
        fit = fit_vdp(family, X2, concentration=1.3, resp_init=resp, max_iter=6, tol=0.0, rng=rng)
        assert np.all(fit.elbo_history <= exact)


@pytest.mark.parametrize("sticks", STICKS)
def test_the_tail_is_the_sum_of_its_terms(sticks):
    """Twenty thousand terms of eq. 12, each made from E log(1 - v) and E log v of its own sticks."""
    prior = StickPrior(*sticks)
    mass = np.array([3.2, 1.1])
    q = stick_posterior(prior, mass, 0.4)
    stop, go = psi(q[:, 0]) - psi(q.sum(1)), psi(q[:, 1]) - psi(q.sum(1))
    prior_stop, prior_go = (psi(value) - psi(sum(sticks)) for value in sticks)
    terms = go.sum() + prior_stop + prior_go * np.arange(20_000)
    weights = expected_log_weights(prior, q)
    assert weights[-1] == pytest.approx(logsumexp(terms), abs=1e-12)
    assert weights[:2] == pytest.approx([stop[0], stop[1] + go[0]], abs=1e-12)


@pytest.mark.parametrize("name", EVERY)
def test_hard_labels_give_the_joint_of_points_and_labels(name):
    """ERRATA 0.2, and the free-stick label terms of `process.sticks`."""
    (family, x), z = EVERY[name], np.array([0, 0, 0, 1, 1, 2, 0])
    resp = np.eye(3)[z]
    fit = fit_vdp(family, x, concentration=1.7, resp_init=resp, max_iter=0, rng=np.random.default_rng(0))
    joint = log_marginal(family, family.suffstats(x, resp)).sum() + log_label_prior(resp.sum(0), 1.7)
    assert fit.elbo == pytest.approx(joint, abs=1e-10)
    assert fit.elbo_history.shape == (1,)
    assert fit.n_rounds == 0


@pytest.mark.parametrize("sticks", STICKS)
def test_the_closed_form_is_the_bound_written_out_in_expectations(sticks):
    """Eq. 2 term by term, the tail as 4,000 labels of their own: the other road to ERRATA 0.3."""
    family, prior = FAMILIES["gaussian"], StickPrior(*sticks)
    rng = np.random.default_rng(1)
    resp = rng.dirichlet([2.0, 1.0, 0.5], size=len(X2)).T
    origin = origin_for(family, X2)
    cells, model = cells_of_points(family, X2, origin), model_of(family, prior, origin)
    tied = without_past(2)
    state, _ = m_step(model, cells.log_carrier, totals_of(cells, resp), tied, reorder=False)
    stats = family.suffstats(X2, resp[:2].T)
    q_eta, p_eta = family.posterior(stats), family.posterior(family.empty_stats(1))
    weights = stick_posterior(prior, resp[:2].sum(1), resp[2].sum())
    stop, go = psi(weights[:, 0]) - psi(weights.sum(1)), psi(weights[:, 1]) - psi(weights.sum(1))
    prior_stop, prior_go = (psi(value) - psi(sum(sticks)) for value in sticks)
    decay = np.exp(prior_go * np.arange(4000)) * -np.expm1(prior_go)
    q = np.vstack([resp[:2], resp[2] * decay[:, None]])
    log_pi = np.concatenate([[stop[0], go[0] + stop[1]], go.sum() + prior_stop + prior_go * np.arange(4000)])
    fits = np.hstack([family.expected_log_likelihood(q_eta, X2), family.expected_log_likelihood(p_eta, X2)])
    fits = np.vstack([fits[:, :2].T, np.tile(fits[:, 2], (4000, 1))])
    elbo = (q * (log_pi[:, None] + fits - np.log(np.maximum(q, 1e-300)))).sum() - kl(
        family, q_eta, family.posterior(family.empty_stats(2))
    ).sum()
    for a, b in weights:
        elbo -= betaln(*sticks) - betaln(a, b) + (a - sticks[0]) * psi(a) + (b - sticks[1]) * psi(b)
        elbo += (a + b - sum(sticks)) * psi(a + b)
    assert state.elbo == pytest.approx(elbo, abs=1e-7)


@pytest.mark.parametrize(
    ("alpha", "n_components", "truncated", "evidence"), [(1.0, 1, -6.14225, -6.87693), (5.0, 2, -6.77735, -7.79070)]
)
def test_the_numbers_of_erratum_0_1(alpha, n_components, truncated, evidence):
    """A truncated bound above the evidence of the process; a free last stick, and then the tail, bring it below.

    For T = 1 freeing the stick costs exactly log alpha + lB(1 + N, alpha).
    """
    x = np.array([[0.0], [0.1], [-0.1], [0.05], [0.2]])
    family = type(FAMILIES["spherical"])([0.0], 4.0, 1.0)
    assert log_evidence(family, x, 1.0, alpha) == pytest.approx(evidence, abs=1e-5)
    assert truncated > evidence
    resp = np.full((5, n_components), 1.0 / n_components)
    free = fit_vdp(family, x, concentration=alpha, resp_init=resp, max_iter=200, tol=0.0, rng=np.random.default_rng(0))
    assert free.elbo <= evidence
    if n_components == 1:
        cost = np.log(alpha) + betaln(6.0, alpha)
        assert free.elbo_history[0] == pytest.approx(truncated + cost, abs=1e-5)
        assert free.elbo > free.elbo_history[0], "the tail helps"


@pytest.mark.parametrize("name", FAMILIES)
def test_rows_of_statistics_are_what_any_family_would_give(name):
    """The quick layouts of the known families against the general road, through posteriors of single points."""
    family = FAMILIES[name]
    origin = origin_for(family, X2)
    quick, general = statistics(family, X2, origin), statistics_by_points(family, X2, origin)
    np.testing.assert_allclose(quick.rows, general.rows, atol=1e-12)
    np.testing.assert_allclose(quick.log_carrier, general.log_carrier, atol=1e-12)
    params = family.posterior(family.suffstats(X2, np.eye(2)[[0, 0, 0, 1, 1, 1, 0]]))
    slopes = family.mean_params(seen_from(family, params, origin))
    fits = quick.rows @ slopes.T + quick.log_carrier[:, None]
    np.testing.assert_allclose(fits, family.expected_log_likelihood(params, X2), atol=1e-10)


def test_the_stick_terms_agree_with_the_free_stick_prior():
    mass = np.array([5.0, 2.5, 0.3])
    assert stick_bound(StickPrior(1.0, 0.8), mass, 0.0) == pytest.approx(log_label_prior(mass, 0.8))


@pytest.mark.parametrize("name", EVERY)
def test_every_half_step_raises_the_bound(name):
    family, x = EVERY[name]
    rng = np.random.default_rng(4)
    if name in FAMILIES:
        x = np.vstack([x, x + rng.normal(size=x.shape), rng.normal(size=(30, 2)) * 2])
    else:
        x = np.vstack([x, rng.integers(2 if name == "bernoulli" else 6, size=(40, 3)).astype(float)])
    origin = origin_for(family, x)
    cells = cells_of_points(family, x, origin)
    for sticks in STICKS:
        model = model_of(family, StickPrior(*sticks), origin)
        resp = rng.dirichlet(np.full(5, 0.5), size=len(x)).T
        tied, last = without_past(4), -np.inf
        state, _ = m_step(model, cells.log_carrier, totals_of(cells, resp), tied)
        for _ in range(15):
            assert state.elbo >= last - 1e-9
            totals, middle = e_step(model, cells, state)
            assert middle >= state.elbo - 1e-9
            unordered, _ = m_step(model, cells.log_carrier, totals, state.past_row, reorder=False)
            state, _ = m_step(model, cells.log_carrier, totals, state.past_row)
            assert unordered.elbo >= middle - 1e-9
            assert state.elbo >= unordered.elbo - 1e-9, "reordering never lowers the bound"
            last = middle


@pytest.mark.parametrize("sticks", STICKS)
def test_no_order_of_the_components_beats_the_decreasing_one(sticks):
    rng = np.random.default_rng(0)
    for _ in range(50):
        mass, tail = rng.gamma(0.5, 5.0, size=5), rng.gamma(1.0)
        best = stick_bound(StickPrior(*sticks), np.sort(mass)[::-1], tail)
        assert all(stick_bound(StickPrior(*sticks), rng.permutation(mass), tail) <= best + 1e-10 for _ in range(20))


def test_the_history_rises_and_ends_at_the_bound():
    for moves in ("paper", "default"):
        for family in FAMILIES.values():
            fit = fit_vdp(family, X2, concentration=1.0, moves=moves, rng=np.random.default_rng(0))
            assert np.all(np.diff(fit.elbo_history) >= -1e-9)
            assert fit.elbo == fit.elbo_history[-1]
            assert fit.n_rounds == len(fit.elbo_history) - 1
            assert np.all(np.diff(fit.stats[0]) <= 1e-12)
            assert fit.resp is not None
            assert fit.resp.sum(axis=1) + fit.extra["tail"] == pytest.approx(1.0)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.short_form("diagonal", "gaussian")
def test_the_predictive_density_integrates_to_one(name):
    one = {
        "gaussian": type(FAMILIES["gaussian"])([0.0], 0.5, 2.0, [[1.0]]),
        "diagonal": type(FAMILIES["diagonal"])([0.0], 0.5, 1.5, [1.0]),
        "known_covariance": type(FAMILIES["spherical"])([0.0], [[4.0]], [[0.5]]),
        "spherical": type(FAMILIES["spherical"])([0.0], 4.0, 0.5),
    }[name]
    fit = fit_vdp(one, X2[:, :1], sticks=(1.5, 2.0), rng=np.random.default_rng(0))
    assert np.exp(np.append(fit.log_weight, fit.log_new_weight)).sum() == pytest.approx(1.0, abs=1e-12)

    def density(t):
        """x = sinh(t) brings in the heavy tails."""
        return float(np.exp(log_density(one, fit, np.array([[np.sinh(t)]])))[0]) * np.cosh(t)

    assert quad(density, -60, 60, limit=400, points=[-2, 0, 2])[0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_hard_past_counts_like_its_points(name):
    """The bound of past and points is that of all points, those of the past held by their components."""
    family = FAMILIES[name]
    old, z = np.array([[0.0, 0.1], [0.2, -0.1], [3.0, 3.0], [2.9, 3.4], [3.2, 2.9]]), np.array([0, 0, 1, 1, 1])
    resp = np.random.default_rng(0).dirichlet([1.0, 1.0], size=len(X2))
    rng = np.random.default_rng(0)
    past = Past(family.suffstats(old, np.eye(2)[z]), None)
    some = fit_vdp(family, X2, concentration=1.3, resp_init=resp, max_iter=0, past=past, rng=rng)
    both = np.vstack([resp, np.eye(2)[z]])
    every = fit_vdp(family, np.vstack([X2, old]), concentration=1.3, resp_init=both, max_iter=0, rng=rng)
    assert some.elbo == pytest.approx(every.elbo, abs=1e-10)
    for a, b in zip(some.stats, every.stats, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    assert some.log_weight == pytest.approx(every.log_weight)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("moves", ["paper", "default"])
def test_a_past_stays_whole_and_the_bound_below_the_evidence(name, moves):
    family = FAMILIES[name]
    old = np.array([[0.0, 0.1], [3.0, 3.0]])
    past = Past(family.suffstats(old, np.eye(2)), None)
    new = np.vstack([X2[:5]])
    fit = fit_vdp(family, new, concentration=1.0, past=past, moves=moves, rng=np.random.default_rng(0))
    assert fit.elbo <= log_evidence(family, np.vstack([old, new]), 1.0, 1.0)
    assert np.all(np.diff(fit.elbo_history) >= -1e-9)
    assert fit.stats[0].sum() + fit.extra["tail"].sum() == pytest.approx(7.0)
    rows = fit.extra["past_rows"]
    refit = fit_vdp(
        family,
        np.vstack([new, old]),
        concentration=1.0,
        resp_init=_with(fit, rows),
        max_iter=0,
        rng=np.random.default_rng(0),
    )
    assert fit.elbo == pytest.approx(refit.elbo, abs=0.1), "up to the tail, which resp_init leaves empty"


def _with(fit, rows):
    resp = np.vstack([fit.resp / fit.resp.sum(axis=1, keepdims=True), np.eye(fit.resp.shape[1])[rows]])
    return np.ascontiguousarray(resp)
