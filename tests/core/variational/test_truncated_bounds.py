"""The bounds of the six truncated methods by other roads: enumeration, hard labels, first principles, the past."""

from itertools import product

import numpy as np
import pytest
from scipy.special import betaln, entr, gammaln, logsumexp, psi

from shoal.families import AnyFamily, KnownCovariance, kl, take
from shoal.mixture import Past
from shoal.points.arrays import Array
from shoal.variational import fit_fsd, fit_tsb

from .truncated_cases import (
    ALL,
    ALPHAS,
    BOUNDS,
    COLLAPSED,
    EVERY,
    FAMILIES,
    X,
    log_block,
    log_evidence,
    log_labels,
    log_partition_prior,
    partitions,
    rng,
    some_resp,
)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("truncation", [1, 2, 4])
@pytest.mark.parametrize("method", ["tsb", "fsd"])
def test_the_enumerated_prior_sums_to_one(method: str, truncation: int, alpha: float) -> None:
    sizes = [tuple(np.bincount(z).tolist()) for z in partitions(6)]
    total = logsumexp([log_partition_prior(method, s, truncation, alpha) for s in sizes])
    assert total == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("alpha", [pytest.param(1.0, marks=pytest.mark.slow), 0.3, 4.0])
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.short_form("gaussian-*", "diagonal-*", "known_covariance-0.3", "spherical-0.3", "bernoulli-0.3")
def test_no_bound_exceeds_the_evidence_of_its_own_model(name: str, alpha: float) -> None:
    family, x = EVERY[name]
    for truncation, seeds in ((1, 1), (3, 2)):  # one label leaves nothing to a seed
        evidence = {key: log_evidence(key, family, x, truncation, alpha) for key in ("tsb", "fsd")}
        for method, fit in BOUNDS.items():
            for seed in range(seeds):
                resp = some_resp(len(x), truncation, seed, sharpness=3.0)
                got = fit(family, x, concentration=alpha, resp_init=resp, tol=1e-9, rng=rng())
                assert got.elbo_is_exact
                assert got.elbo_history.max() <= evidence["fsd" if "fsd" in method else "tsb"] + 1e-10
                if truncation == 1:  # one label: nothing to approximate
                    assert got.elbo == pytest.approx(evidence["tsb"], abs=1e-10)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("method", ALL)
def test_hard_labels_give_the_exact_joint(method: str, name: str) -> None:
    """ERRATA 0.2: no variance, no Taylor error."""
    (family, x), z = EVERY[name], np.array([2, 2, 0, 3, 3, 0])
    for alpha in ALPHAS:
        want = log_labels(method, np.bincount(z, minlength=5).tolist(), alpha)
        want += sum(log_block(family, x[z == k]) for k in range(5))
        fit = ALL[method](family, x, concentration=alpha, resp_init=np.eye(5)[z], max_iter=0, rng=rng())
        assert fit.elbo == pytest.approx(want, abs=1e-9)
        assert fit.n_rounds == 0
        assert not fit.converged
        if "taylor" in method:
            assert not fit.elbo_is_exact
            assert fit.extra["exact_elbo"] == pytest.approx(want, abs=1e-9)


def _first_principles(method: str, family: AnyFamily, x: Array, resp: Array, alpha: float) -> float:
    """The uncollapsed bound term by term (eq. 16-18 with ERRATA 2.8): q(v), q(eta) written out."""
    t, mass = resp.shape[1], resp.sum(axis=0)
    params = family.posterior(family.suffstats(x, resp))
    prior = take(family.posterior(family.empty_stats(1)), np.zeros(t, dtype=int))
    value = float((resp * family.expected_log_likelihood(params, x)).sum() + entr(resp).sum())
    value -= float(kl(family, params, prior).sum())
    if method == "fsd":
        g = alpha / t + mass
        e_log = psi(g) - psi(g.sum())
        log_norm = gammaln(g.sum()) - gammaln(g).sum() - gammaln(alpha) + t * gammaln(alpha / t)
        return value + float(mass @ e_log) - float(log_norm + ((g - alpha / t) * e_log).sum())
    after = np.cumsum(mass[::-1])[::-1][1:]
    a, b = 1 + mass[:-1], alpha + after
    e_v, e_rest = psi(a) - psi(a + b), psi(b) - psi(a + b)
    divergence = betaln(1, alpha) - betaln(a, b) + (a - 1) * e_v + (b - alpha) * e_rest
    return value + float(mass[:-1] @ e_v + after @ e_rest - divergence.sum())


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("t", [1, 2, 4])
def test_the_closed_form_is_the_bound_written_out(name: str, t: int) -> None:
    family, x = EVERY[name]
    resp = some_resp(len(x), t, seed=4)
    for alpha, (method, fit) in product(ALPHAS, (("tsb", fit_tsb), ("fsd", fit_fsd))):
        got = fit(family, x, concentration=alpha, resp_init=resp, max_iter=0, rng=rng()).elbo
        assert got == pytest.approx(_first_principles(method, family, x, resp, alpha), abs=1e-10)


@pytest.mark.parametrize(("alpha", "truncation", "want"), [(1.0, 1, -6.14225), (5.0, 2, -6.77735)])
def test_the_bound_of_a_truncated_model_may_exceed_the_process(alpha: float, truncation: int, want: float) -> None:
    """ERRATA 0.1, with log p_DP -6.87693 and -7.79070."""
    x = np.array([[0.0], [0.1], [-0.1], [0.05], [0.2]])
    fit = fit_tsb(KnownCovariance([0.0], 4.0, 1.0), x, concentration=alpha, truncation=truncation, tol=0.0, rng=rng())
    assert fit.elbo == pytest.approx(want, abs=6e-6)
    assert fit.elbo > (-6.87693 if truncation == 1 else -7.79070)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", EVERY)
def test_collapsing_never_lowers_the_bound_at_the_same_q(name: str, alpha: float) -> None:
    family, x = EVERY[name]
    for seed in range(5):
        start = {"concentration": alpha, "resp_init": some_resp(len(x), 4, seed), "max_iter": 0, "rng": rng()}
        for collapsed, plain in (("ctsb exact", "tsb"), ("cfsd exact", "fsd")):
            better, worse = (BOUNDS[m](family, x, **start).elbo for m in (collapsed, plain))
            assert better > worse


def test_taylor_values_are_labelled_and_may_exceed_the_evidence() -> None:
    """ERRATA 2.6: a trifle left on each of many unused labels."""
    family, t = FAMILIES["spherical"], 20
    resp = np.full((len(X), t), 0.002)
    resp[:, 0] = 1.0 - 0.002 * (t - 1)
    fit = ALL["cfsd taylor"](family, X, concentration=1.0, resp_init=resp, max_iter=0, rng=rng())
    exact = COLLAPSED["cfsd exact"](family, X, concentration=1.0, resp_init=resp, max_iter=0, rng=rng())
    assert not fit.elbo_is_exact
    assert exact.elbo_is_exact
    assert fit.extra["exact_elbo"] == pytest.approx(exact.elbo, abs=1e-9)
    evidence = log_evidence("fsd", family, X, t, 1.0)
    assert exact.elbo < evidence < fit.elbo


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_past_is_as_if_its_points_were_certain(method: str, name: str) -> None:
    family, z = FAMILIES[name], np.array([0, 0, 2, 1])
    resp = some_resp(2, 4, seed=2)
    past = Past(family.suffstats(X[:4], np.eye(3)[z]), None)
    held = ALL[method](family, X[4:], concentration=2.0, resp_init=resp, past=past, max_iter=0, rng=rng())
    whole = np.vstack([np.eye(4)[z], resp])
    free = ALL[method](family, X, concentration=2.0, resp_init=whole, max_iter=0, rng=rng())
    assert held.elbo == pytest.approx(free.elbo, abs=1e-10)
    for a, b in zip(held.stats, free.stats, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    np.testing.assert_allclose(held.log_weight, free.log_weight, atol=1e-12)


def test_the_entropy_recorded_in_a_past_is_in_the_bound() -> None:
    family = FAMILIES["diagonal"]
    stats = family.suffstats(X[:4], some_resp(4, 2))
    start = {"concentration": 1.0, "resp_init": some_resp(2, 2), "max_iter": 0, "rng": rng()}
    pairs = np.array([[0.0, 0.7], [0.7, 0.0]])
    plain = fit_tsb(family, X[4:], past=Past(stats, None), **start).elbo
    assert fit_tsb(family, X[4:], past=Past(stats, pairs), **start).elbo == pytest.approx(plain + 0.7)
