"""Components left unscored change nothing, and what a bound says of them is true."""

from typing import Any

import numpy as np
import pytest
from scipy import linalg
from scipy.stats import multivariate_t

from harness.short_form import longer
from shoal.families import KnownCovariance, NormalInverseWishart
from shoal.families.bounds_kernel import LOWEST
from shoal.families.gaussian.types import GaussianCache
from shoal.families.known_covariance.types import SphericalCache
from shoal.families.predictive_cache import kernel_prior, refresh
from shoal.families.steps_kernel import (
    LIMIT_ROWS,
    SCRATCH_ROWS,
    Tracks,
    Waiting,
    absorb,
    absorb_tracked,
    ceilings,
    freeze,
    limit,
    score_one,
    settle,
)
from shoal.kernels.cholesky_update import MOST_WAITING
from shoal.points.arrays import Array
from shoal.runtime.kernels import kernel
from shoal.sequential import kernel as sva_kernel
from shoal.sequential.one_pass import one_pass_inplace
from shoal.sequential.passes import Components, PassRules, Piece, new_components

BOUNDED = ("gaussian", "spherical")
CUT = float(sva_kernel.LEAST_CUT - np.log(1e-3))


@kernel()
def _frozen(cache: Any, stats: Any, constants: Array, log_mass: Array, cut: float, x: Array, n: int, bounds: Array):
    return freeze(cache, stats, constants, log_mass, cut, x, 0, x.shape[0], n, bounds)


@kernel()
def _absorbed(
    cache: Any, stats: Any, constants: Array, x: Array, rows: Array, resp: Array, drift: Array, shrink: Array
):
    """Every second point scored just before, as the pass does where only one component is near."""
    scratch = np.empty((SCRATCH_ROWS, x.shape[1]))
    waiting = Waiting(np.empty((drift.size, MOST_WAITING, x.shape[1])), np.zeros(drift.size, np.int64))
    for i in range(x.shape[0]):
        scored = i % 2 == 0
        if scored:
            score_one(cache, stats, constants, x, i, rows[i], scratch)
        absorb_tracked(cache, stats, constants, x, i, rows[i], resp[i], scratch, Tracks(drift, shrink, waiting), scored)
    settle(cache, stats, waiting, drift.size)


@kernel()
def _absorbed_at_once(cache: Any, stats: Any, constants: Array, x: Array, rows: Array, resp: Array):
    scratch = np.empty((SCRATCH_ROWS, x.shape[1]))
    for i in range(x.shape[0]):
        absorb(cache, stats, constants, x, i, rows[i], resp[i], scratch)


@kernel()
def _compared(
    cache: Any,
    stats: Any,
    constants: Array,
    x: Array,
    n: int,
    bounds: Array,
    drift: Array,
    shrink: Array,
    log_mass: Array,
):
    """(N, n) ceilings, float32, and the scores that they are to bound."""
    above, exact = np.empty((x.shape[0], n), np.float32), np.empty((x.shape[0], n))
    scratch, limits = np.empty((SCRATCH_ROWS, x.shape[1])), np.empty((LIMIT_ROWS, n), np.float32)
    for k in range(n):
        limit(cache, k, drift, shrink, log_mass, limits)
    for j in range(x.shape[0]):
        ceilings(cache, bounds, j, n, limits, above[j])
        for k in range(n):
            exact[j, k] = log_mass[k] + score_one(cache, stats, constants, x, j, k, scratch)
    return above, exact


def mature(sva, form: str, d: int, k: int, mass: float, rng: np.random.Generator, pair_rule: str = "entropy"):
    """k components of some mass each, and a source of more points of them."""
    prior = sva.prior(form, d)
    centres = 1.5 * rng.normal(size=(k, d))
    seen = np.repeat(centres, 40, axis=0) + 0.5 * rng.normal(size=(40 * k, d))
    stats = prior.suffstats(seen, np.repeat(np.eye(k), 40, axis=0))
    stats = prior.scale(stats, np.full(k, mass / 40))
    components = new_components(prior, k + 40, pair_rule)
    for target, source in zip(components.stats, stats, strict=True):
        target[:k] = source
    components = Components(components.stats, refresh(prior, components.stats, k), *components[2:])

    def more(n: int) -> Array:
        return centres[rng.integers(k, size=n)] + 0.5 * rng.normal(size=(n, d))

    return prior, components, more


def streams(more, rng: np.random.Generator) -> dict[str, Array]:
    calm = more(1_500)
    outliers = more(1_500)
    outliers[::97] *= 10.0 ** rng.integers(1, 60, size=len(outliers[::97]))[:, None]
    newcomers = more(1_500)
    newcomers[500:] += 40.0 * rng.integers(-3, 4, size=(1_000, 1))
    return {
        "calm": calm,
        "outliers": outliers,
        "newcomers": newcomers,
        "drift": more(1_500) + np.linspace(0.0, 20.0, 1_500)[:, None],
        "repeats": np.repeat(more(30), 50, axis=0),
    }


@pytest.mark.parametrize("form", BOUNDED)
@pytest.mark.parametrize(("d", "k", "mass"), [longer(32, 30, 2_000.0), longer(128, 8, 5_000.0), (40, 30, 60.0)])
def test_the_same_bits_for_every_block(sva, form, d, k, mass):
    rng = np.random.default_rng(d + k)
    for name, x in streams(mature(sva, form, d, k, mass, rng)[2], rng).items():
        results = []
        for block in (1, 33, 100, 1_000):
            prior, components, _ = mature(sva, form, d, k, mass, np.random.default_rng(1))
            labels, log_density = np.zeros(len(x), dtype=np.int64), np.zeros(len(x))
            rules = sva.rules(max_components=k + 30)
            done = one_pass_inplace(prior, rules, components, k, 0, Piece(x, labels, log_density), block_rows=block)
            arrays = [*components.stats, *components.cache, components.pairs, labels, log_density]
            results.append([np.array(done), *(a[: done.n_components] if len(a) == k + 40 else a for a in arrays)])
        for other in results[1:]:
            for a, b in zip(results[0], other, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("form", BOUNDED)
@pytest.mark.parametrize(("d", "k"), [(5, 210), (9, 75), (64, 12)])
@pytest.mark.parametrize("mass", [3.0, 1_000.0])
def test_ceilings_hold_whatever_is_absorbed(sva, form, d, k, mass):
    rng = np.random.default_rng(d)
    prior, components, more = mature(sva, form, d, k, mass, rng)
    cache, stats, constants = components.cache, components.stats, kernel_prior(prior).constants
    for x in streams(more, rng).values():
        block = np.ascontiguousarray(x[rng.permutation(len(x))[:256]])
        bounds, drift, shrink = np.zeros((256, k), dtype=np.float32), np.zeros(k), np.ones(k)
        assert _frozen(cache, stats, constants, np.log(stats.mass[:k]), CUT, block, k, bounds)
        for _ in range(4):
            taken = np.ascontiguousarray(x[rng.integers(len(x), size=20)])
            rows, resp = rng.integers(k, size=20), rng.uniform(1e-3, 1.0, size=20)
            _absorbed(cache, stats, constants, taken, rows, resp, drift, shrink)
            above, exact = _compared(cache, stats, constants, block, k, bounds, drift, shrink, np.log(stats.mass[:k]))
            # Beyond 1e15 deviations the live distance itself is rounding: nothing is claimed to the last digit there.
            slack = 1e-9 * np.abs(exact)
            assert np.all(above >= exact - slack)
        for field, fresh in zip(cache, refresh(prior, stats, k), strict=True):
            field[:k] = fresh[:k]


@pytest.mark.parametrize("form", BOUNDED)
def test_bounds_rule_most_components_out(sva, form):
    """Else all of this would be for nothing: of 30 components apart, under two may be near on average."""
    rng = np.random.default_rng(7)
    d, k = 32, 30
    prior, components, more = mature(sva, form, d, k, 5_000.0, rng)
    x = more(256)
    bounds = np.zeros((256, k), dtype=np.float32)
    log_mass = np.log(components.stats.mass[:k])
    constants = kernel_prior(prior).constants
    assert _frozen(components.cache, components.stats, constants, log_mass, CUT, x, k, bounds)
    above, exact = _compared(
        components.cache, components.stats, constants, x, k, bounds, np.zeros(k), np.ones(k), log_mass
    )
    best = exact.max(axis=1, keepdims=True)
    assert np.mean(np.sum(above >= best - CUT, axis=1)) < 2.0
    assert np.max(np.abs(above - exact)[exact > best - CUT]) < 0.1
    assert prior.n_features == d


@pytest.mark.parametrize("thin", [1.0, 1e-2, 1e-4, 1e-7])
@pytest.mark.parametrize("n_points", [40, 4_000])
def test_reach_holds_for_elongated_components(thin, n_points):
    """Of components as thin as may be, of few points and many, in any direction: the distances by SciPy."""
    rng = np.random.default_rng(round(-np.log10(thin)) + n_points)
    d, k = 16, 30
    prior = NormalInverseWishart(np.zeros(d), 0.1, d + 2.0, thin * (np.eye(d) + 0.3))
    turns = np.linalg.qr(rng.normal(size=(k, d, d)))[0] * np.geomspace(thin, 1.0, d)
    centres = 3.0 * rng.normal(size=(k, d))
    points = centres[:, None] + rng.normal(size=(k, n_points, d)) @ turns.transpose(0, 2, 1)
    stats = prior.suffstats(points.reshape(-1, d), np.repeat(np.eye(k), n_points, axis=0))
    x, bounds = np.ascontiguousarray(points[rng.integers(k, size=256), 0]), np.zeros((256, k), dtype=np.float32)
    log_mass = np.log(stats.mass)
    constants = kernel_prior(prior).constants
    assert _frozen(refresh(prior, stats), stats, constants, log_mass, CUT, x, k, bounds)
    params = prior.posterior(stats)
    for j in range(k):
        apart = x - params.mean[j]
        exact = np.sqrt(np.sum(apart * linalg.solve(params.scale[j], apart.T, assume_a="pos").T, axis=1))
        assert np.all(bounds[:, j] <= exact * (1.0 + 1e-6))
        if thin == 1.0 and n_points == 4_000:  # round and mature: the first bound alone is not far off
            assert np.all(bounds[:, j] > 0.5 * exact)


@pytest.mark.parametrize("form", BOUNDED)
@pytest.mark.parametrize(("size", "strength"), [(1e-11, 0.1), (1e-23, 0.1), (1e-45, 0.1), (1e30, 0.1), (1.0, 1e20)])
def test_the_same_bits_at_the_ends_of_single_precision(form, size, strength):
    """Squares and roots that float32 has no number for, or few digits; a prior so strong that a mass is lost in it."""
    rng = np.random.default_rng(5)
    d, k = 9, 75
    centres = 4.0 * size * rng.normal(size=(k, d))
    seen = np.repeat(centres, 20, axis=0) + size * rng.normal(size=(20 * k, d))
    x = centres[rng.integers(k, size=512)] + size * rng.normal(size=(512, d))
    if form == "gaussian":
        prior = NormalInverseWishart(np.zeros(d), strength, d + 2.0, size**2 * np.eye(d))
    else:
        prior = KnownCovariance(np.zeros(d), 16.0 * size**2 / strength, size**2)
    results = []
    for block in (1, 256):
        components = new_components(prior, k + 40)
        resp = 2.0 * np.repeat(np.eye(k), 20, axis=0)
        for target, source in zip(components.stats, prior.suffstats(seen, resp), strict=True):
            target[:k] = source
        components = Components(components.stats, refresh(prior, components.stats, k), *components[2:])
        labels, log_density = np.zeros(len(x), dtype=np.int64), np.zeros(len(x))
        rules = PassRules(1.0, 0.5, 1e-3, "none", k + 30)
        done = one_pass_inplace(prior, rules, components, k, 0, Piece(x, labels, log_density), block_rows=block)
        results.append([labels, log_density, *(a[: done.n_components] for a in components.stats)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("off_diagonal", [0.0, 0.5])
def test_the_empty_component_by_its_formula(sva, off_diagonal):
    """An empty component of a prior without covariances is scored by a shorter sum: the same density, by SciPy."""
    d, rng = 5, np.random.default_rng(2)
    scale = np.diag(rng.uniform(0.5, 2.0, size=d)) + off_diagonal * (np.ones((d, d)) - np.eye(d))
    prior = NormalInverseWishart(rng.normal(size=d), 0.3, 9.0, scale)
    components = new_components(prior, 2)
    x, log_density = rng.normal(size=(1, d)), np.zeros(1)
    one_pass_inplace(prior, sva.rules(), components, 0, 0, Piece(x, np.zeros(1, dtype=np.int64), log_density))
    dof = 9.0 - d + 1.0
    expected = multivariate_t(prior.mean, scale * (1.0 + 1.0 / 0.3) / dof, df=dof).logpdf(x[0])
    assert log_density[0] - np.log(sva.rules().concentration) == pytest.approx(expected, abs=1e-10)


@kernel()
def _ceilings(cache: Any, bounds: Array, drift: Array, shrink: Array, log_mass: Array):
    out, limits = np.empty(bounds.shape, np.float32), np.empty((LIMIT_ROWS, bounds.shape[1]), np.float32)
    for k in range(bounds.shape[1]):
        limit(cache, k, drift, shrink, log_mass, limits)
    for j in range(bounds.shape[0]):
        ceilings(cache, bounds, j, bounds.shape[1], limits, out[j])
    return out


@pytest.mark.parametrize("size", [1e-45, 1e-11, 1.0, 1e30, 1e100])
def test_spherical_ceilings_by_extended_precision(size):
    """Of any distance and drift, by long doubles; never -inf, which is left for places without a component."""
    rng = np.random.default_rng(3)
    rows, k, d = 400, 40, 7
    half = 0.5 / size**2 * rng.uniform(0.1, 1.0, size=k)
    log_norm, log_mass = rng.normal(scale=10.0 ** rng.uniform(-3, 6, size=k)), rng.normal(size=k)
    bounds = (np.minimum(size, 1e17) ** 2 * 10.0 ** rng.uniform(-3, 3, size=(rows, k))).astype(np.float32)
    bounds = np.minimum(bounds, np.float32(1e36))
    drift = size * rng.choice([0.0, 1e-9, 1e-3, 0.1, 1.0, 3.0, 1e5], size=k)
    cache = SphericalCache(np.zeros((k, d)), np.ones(k), half, log_norm)
    above = _ceilings(cache, bounds, drift, np.ones(k), log_mass).astype(np.longdouble)
    least = np.maximum(np.sqrt(bounds.astype(np.longdouble)) - drift, 0)
    exact = (log_mass + log_norm).astype(np.longdouble) - np.minimum(half * least**2, 1e300)
    assert np.all(above >= exact)
    assert np.all(above >= LOWEST)
    if size == 1.0:  # and without drift they are as close as float32 has them
        still = drift == 0.0
        assert np.all(above[:, still] <= exact[:, still] + 2e-5 * (1.0 + np.abs(exact) + np.abs(log_norm))[:, still])


@pytest.mark.parametrize("narrow", [1.0, 1e-15, 1e-19, 1e-22, 1e-40])
@pytest.mark.parametrize("size", [1e-30, 1e-6, 1.0, 1e6, 1e18, 1e40])
def test_gaussian_ceilings_by_extended_precision(size, narrow):
    """The same of full covariances, whose distances are in units of their scale matrix; `narrow`, of components that
    have grown by so much since the block began, for which float32 has few digits or none."""
    rng = np.random.default_rng(4)
    rows, k, d = 400, 40, 7
    strength, dof = 10.0 ** rng.uniform(-6, 12, size=k), d + 10.0 ** rng.uniform(-3, 12, size=k)
    log_norm, log_mass = rng.normal(scale=10.0 ** rng.uniform(-3, 6, size=k)), rng.normal(size=k)
    bounds = np.minimum(size * 10.0 ** rng.uniform(-3, 3, size=(rows, k)), 1e18).astype(np.float32)
    drift, shrink = (
        size * rng.choice([0.0, 1e-9, 1e-3, 0.1, 1.0, 3.0, 1e5], size=k),
        narrow * rng.uniform(0.0, 1.0, size=k),
    )
    cache = GaussianCache(np.zeros((k, d)), strength, dof, np.zeros((k, d, d)), np.zeros(k), log_norm)
    above = _ceilings(cache, bounds, drift, shrink, log_mass).astype(np.longdouble)
    q = (np.maximum(bounds.astype(np.longdouble) - drift, 0) * shrink) ** 2
    exact = log_mass + log_norm - 0.5 * (dof + 1.0) * np.log1p(q * (strength / (strength + 1.0)))
    assert np.all(above >= exact)
    assert np.all(above >= LOWEST)
    if narrow < 1.0:
        return
    near = q * strength / (strength + 1.0) < 0.1  # where the pass needs them close: u^5 / 360 of dof is 1e-7 at most
    loose = 1e-7 * dof + 2e-5 * (1.0 + np.abs(exact) + np.abs(log_norm))
    assert np.all((above - exact)[near] <= loose[near])


def test_bounds_of_a_block_are_of_all_points_before_it(sva):
    """Five outliers, whose outer products still wait, make the first of a row of components reach across the others.

    Points between these belong to it when the next block begins; by its scatter without them they could not.
    """
    d, k, rng = 32, 12, np.random.default_rng(0)
    prior, line = NormalInverseWishart(np.zeros(d), 1e-6, d + 2.0, np.eye(d)), np.arange(d) == 0
    centres = 50.0 * np.arange(k)[:, None] * line
    seen = np.repeat(centres, 2_000, axis=0) + 0.5 * rng.normal(size=(2_000 * k, d))
    outliers = centres[0] - 1e3 * line + 0.5 * rng.normal(size=(5, d))
    others = centres[5 + np.arange(28) % 7] + 0.5 * rng.normal(size=(28, d))
    between = centres[1] + 5.0 * line + 0.5 * rng.normal(size=(40, d))
    x, results = np.vstack([outliers, others, between]), []
    for block in (1, 33):
        components = new_components(prior, k + 1)
        for target, source in zip(
            components.stats, prior.suffstats(seen, np.repeat(np.eye(k), 2_000, axis=0)), strict=True
        ):
            target[:k] = source
        components = Components(components.stats, refresh(prior, components.stats, k), *components[2:])
        labels, log_density = np.zeros(len(x), dtype=np.int64), np.zeros(len(x))
        rules = sva.rules(pair_rule="none", max_components=k)
        one_pass_inplace(prior, rules, components, k, 0, Piece(x, labels, log_density), block_rows=block)
        results.append((labels, log_density))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.all(results[0][0][:5] == 0)
    assert np.all(results[0][0][33:] == 0)


@pytest.mark.parametrize("d", [2, 3, 8, 13, 16, 30, 64])
def test_what_waits_leaves_the_bits_of_what_does_not(sva, d):
    """Scatters that wait for eight outer products, and distances worked out once, beside one step a point."""
    rng = np.random.default_rng(d)
    results = []
    x, rows, resp = rng.normal(size=(200, d)), rng.integers(5, size=200), rng.uniform(1e-3, 1.0, size=200)
    for at_once in (True, False):
        prior, components, _ = mature(sva, "gaussian", d, 5, 50.0, np.random.default_rng(1))
        constants = kernel_prior(prior).constants
        if at_once:
            _absorbed_at_once(components.cache, components.stats, constants, x, rows, resp)
        else:
            _absorbed(components.cache, components.stats, constants, x, rows, resp, np.zeros(5), np.ones(5))
        results.append([*components.stats, *components.cache])
    for name, a, b in zip((*components.stats._fields, *components.cache._fields), *results, strict=True):
        np.testing.assert_array_equal(a[:5], b[:5], err_msg=name)


def test_other_forms_have_no_bounds(sva):
    for form in ("diagonal", "shared"):
        prior = sva.prior(form, 3)
        stats = prior.empty_stats(300)
        cache, constants, bounds = refresh(prior, stats), kernel_prior(prior).constants, np.zeros((4, 300), np.float32)
        assert not _frozen(cache, stats, constants, np.zeros(300), CUT, np.zeros((4, 3)), 300, bounds)
