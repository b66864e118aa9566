"""The pass in NumPy beside the kernel: the same from any state, wherever it is cut, and the kernel goes on from it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from harness.short_form import longer, short_form
from shoal.families import BetaBernoulli, DirichletMultinomial, DirichletObservations, GammaPoisson, VonMisesFisher
from shoal.families.predictive_cache import refresh
from shoal.mixture import MisfitMonitor, empty_monitor
from shoal.points.arrays import LARGEST_COORDINATE
from shoal.points.rows import SparseRows
from shoal.sequential.kernel import COLLECTED_POINTS
from shoal.sequential.one_pass import one_pass_inplace
from shoal.sequential.passes import PassResult, Piece, new_components
from shoal.sequential.reference import reference_pass_inplace

LOCATED = ("gaussian", "diagonal", "spherical", "shared")
COUNTED = ("multinomial", "bernoulli", "poisson")
DIRECTED = ("dirichlet", "von_mises_fisher")
CLOSE = 1e-9


def case(sva: SimpleNamespace, form: str, n: int = 500, d: int = 4) -> tuple[Any, Any]:
    """A prior of the form, and n rows of a handful of clusters in random order."""
    rng = np.random.default_rng([n, d])
    if form in LOCATED:
        return sva.prior(form, d), sva.clusters(n, d, seed=d)
    if form == "dirichlet":
        x = rng.standard_gamma(60.0 * rng.dirichlet(np.ones(d), 5)[rng.integers(5, size=n)])
        return DirichletObservations(40.0, np.ones(d)), x / x.sum(axis=1, keepdims=True)
    if form == "von_mises_fisher":
        x = rng.normal(size=(5, d))[rng.integers(5, size=n)] + 0.2 * rng.normal(size=(n, d))
        return VonMisesFisher(np.eye(d)[0], 0.5, 20.0, 0.4), x / np.linalg.norm(x, axis=1, keepdims=True)
    counts = rng.poisson(np.exp(rng.normal(0.0, 1.5, size=(6, d)))[rng.integers(6, size=n)]).astype(float)
    if form == "bernoulli":
        return BetaBernoulli(np.full(d, 0.3), np.full(d, 0.4)), SparseRows.of(np.minimum(counts, 1.0))
    return (DirichletMultinomial if form == "multinomial" else GammaPoisson)(
        rng.uniform(0.3, 1.0, d), *([0.3] if form == "poisson" else [])
    ), SparseRows.of(counts)


def agree(a: Any, b: Any, tolerance: float = CLOSE) -> None:
    """Whether two passes ended in the same mixture, to rounding, and told the same."""
    assert_array_equal(a.labels, b.labels)
    assert_array_equal(a.components.born_at, b.components.born_at)
    assert_array_equal(a.components.last_seen_at, b.components.last_seen_at)
    assert a.n_refused == b.n_refused
    left = [a.log_density, *a.components.stats, *a.components.cache, a.components.pairs]
    right = [b.log_density, *b.components.stats, *b.components.cache, b.components.pairs]
    for u, v in zip(left, right, strict=True):
        assert_allclose(u, v, rtol=tolerance, atol=tolerance * np.abs(v).max(initial=1.0))


FORMS = (*LOCATED, *COUNTED, *DIRECTED)
RULES = (("entropy", 1e-3, 60), ("overlap", 1e-12, 60), ("none", 1e-3, 2))
SHORT = [(form, *RULES[place % 3]) for place, form in enumerate(FORMS)]
"""Each form, and each kind of rules with three of them."""


@pytest.mark.parametrize(
    ("form", "pair_rule", "floor", "limit"), short_form([(form, *rules) for form in FORMS for rules in RULES], SHORT)
)
def test_it_is_the_kernel_to_rounding_from_any_state(
    sva: SimpleNamespace, form: str, pair_rule: str, floor: float, limit: int
) -> None:
    prior, x = case(sva, form, n=220)
    rules = sva.rules(pair_rule, floor, max_components=limit, birth_threshold=0.5 if limit == 60 else 0.01)
    agree(sva.drive(prior, rules, x[:120], engine=reference_pass_inplace), sva.drive(prior, rules, x[:120]))
    begun = [sva.drive(prior, rules, x[:120]).components for _ in range(2)]
    plain, kernel = (
        sva.drive(prior, rules, x[120:], start=start, seen=120, rows=limit + 1, engine=engine)
        for start, engine in zip(begun, (reference_pass_inplace, one_pass_inplace), strict=True)
    )
    agree(plain, kernel)
    assert plain.n_components >= 2
    assert limit == 60 or plain.n_refused > 0


@pytest.mark.parametrize("form", short_form(FORMS, ("gaussian", "diagonal", "poisson", "dirichlet")))
def test_cuts_and_full_arrays_change_nothing_but_rounding(sva: SimpleNamespace, form: str) -> None:
    prior, x = case(sva, form, n=150)
    whole = sva.drive(prior, sva.rules(), x, engine=reference_pass_inplace)
    cut = sva.drive(prior, sva.rules(), x, cuts=range(1, 150, 7), rows=1, engine=reference_pass_inplace)
    assert cut.calls > 22
    agree(cut, whole, 1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_the_kernel_goes_on_from_the_predictive_cache_made_again(sva: SimpleNamespace, form: str) -> None:
    """To the bit from what `refresh` gives for the statistics."""
    prior, x = case(sva, form, n=160)
    plain = sva.drive(prior, sva.rules(), x[:80], engine=reference_pass_inplace)
    for carried, rebuilt in zip(plain.components.cache, refresh(prior, plain.components.stats), strict=True):
        assert carried.tobytes() == rebuilt.tobytes()
    whole = sva.drive(prior, sva.rules(), x)
    on = sva.drive(prior, sva.rules(), x[80:], start=plain.components, seen=80)
    assert_array_equal(on.labels, whole.labels[80:])
    assert_allclose(on.components.stats.mass, whole.components.stats.mass, rtol=CLOSE)


def test_full_arrays_stop_the_pass(sva: SimpleNamespace, form: str) -> None:
    prior, rules = sva.prior(form, 1), sva.rules("entropy")
    x, labels = np.array([[0.0], [1000.0], [-1000.0], [5.0]]), np.full(4, -1)
    components = new_components(prior, 2, "entropy")
    components.pairs[:] = 9.0
    assert reference_pass_inplace(prior, rules, components, 0, 0, Piece(x, labels, np.zeros(4))) == PassResult(
        2, 2, 0, -1
    )
    assert labels.tolist() == [0, 1, -1, -1]
    assert components.pairs[0, 1] == components.pairs[1, 0] < 0.5
    assert reference_pass_inplace(prior, rules, components, 2, 2, Piece(x[2:], labels, np.zeros(4))).n_done == 0


@pytest.mark.parametrize("size", [longer(1e3), 1e6])
def test_far_equal_and_denormal_points(sva: SimpleNamespace, form: str, size: float) -> None:
    x = np.random.default_rng(3).normal(size=(240, 3))
    x[50:52] *= size
    x[52] = -x[51]
    x[100, 0] = size
    x[150:160] = x[149]
    x[200] = 5e-324
    prior, rules = sva.prior(form, 3), sva.rules(max_components=30)
    plain, kernel = sva.drive(prior, rules, x, engine=reference_pass_inplace), sva.drive(prior, rules, x)
    assert_array_equal(plain.labels, kernel.labels)
    assert_allclose(plain.log_density, kernel.log_density, rtol=1e-7, atol=1e-7)
    assert_allclose(plain.components.stats.mass, kernel.components.stats.mass, rtol=1e-7)


@pytest.mark.parametrize("size", [1e120, 1e307])
def test_beyond_the_largest_coordinate_is_the_largest_coordinate(sva: SimpleNamespace, form: str, size: float) -> None:
    prior, x = sva.prior(form, 2), sva.clusters(60, 2, seed=1)
    x[30] = [size, -size]
    clipped = np.clip(x, -LARGEST_COORDINATE, LARGEST_COORDINATE)
    far, near = (sva.drive(prior, sva.rules(), rows, engine=reference_pass_inplace) for rows in (x, clipped))
    assert sva.same_bits(far, near)
    assert np.isfinite(far.log_density).all()
    assert far.components.stats.mass.sum() == pytest.approx(60.0, rel=1e-12)
    assert x[30, 0] == size


@pytest.mark.parametrize(("form", "most"), [("diagonal", 1), ("poisson", 1), ("diagonal", 2)])
def test_the_monitor_is_kept_as_the_kernel_keeps_it(sva: SimpleNamespace, form: str, most: int) -> None:
    """Collecting until there are enough, then watching: later points come from elsewhere, so that there is an alarm
    where one component has to take them all.
    """
    prior, x = case(sva, form, n=600, d=2)
    x = np.asarray(x.toarray() if form == "poisson" else x)
    x[400:] += 200.0 if form == "poisson" else 9.0
    rules, reports, monitors = sva.rules("none", max_components=most), [], []
    for engine in (one_pass_inplace, reference_pass_inplace):
        monitor = empty_monitor(3)
        components = new_components(prior, 3)._replace(monitor=monitor)
        out = np.zeros(600, dtype=np.int64), np.zeros(600)
        parts = []
        n = 0
        for part in (slice(0, 333), slice(333, 600)):
            result = engine(prior, rules, components, n, part.start, Piece(x[part], out[0][part], out[1][part]))
            n = result.n_components
            parts.append(result)
        reports.append(parts)
        monitors.append(monitor)
    assert reports[0] == reports[1]
    assert (reports[0][-1].first_misfit >= 0) == (most == 1)
    kernel: MisfitMonitor = monitors[0]
    assert kernel.collected.max() == COLLECTED_POINTS
    assert np.count_nonzero(kernel.collected) == most
    assert kernel.spread.max() > 0.0
    for field, twin in zip(kernel, monitors[1], strict=True):
        assert_allclose(twin, field, rtol=CLOSE, atol=CLOSE)


def test_a_score_beyond_the_exponential_s_reach_founds_nothing(sva: SimpleNamespace) -> None:
    """The least `birth_threshold` that there is still asks for some chance: the kernel's exponential ends at 1e-307."""
    prior, x = sva.prior("spherical", 2), 1e-3 * np.random.default_rng(0).normal(size=(300, 2))
    rules = sva.rules("none", concentration=1e-320, birth_threshold=3e-308)
    passes = [sva.drive(prior, rules, x, engine=engine) for engine in (reference_pass_inplace, one_pass_inplace)]
    assert [found.n_components for found in passes] == [1, 1]
