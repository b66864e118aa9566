"""Weights in one pass: a point of weight w is learnt with its responsibilities times w, and is no more or less new."""

from itertools import pairwise

import numpy as np
import pytest

from harness.short_form import short_form
from shoal.families import FAMILIES
from shoal.mixture import StreamSettings, from_bytes, to_bytes
from shoal.points.weighted_rows import WeightedRows
from shoal.sequential import assimilate_inplace, initial_state
from shoal.sequential.one_pass import one_pass_inplace
from shoal.sequential.passes import Piece, new_components
from shoal.sequential.reference import reference_pass, reference_pass_inplace

RELATIVE = 1e-9
COUNTS = ("multinomial", "bernoulli", "poisson", "negative_binomial")


def spread_weights(n, seed=4):
    """Weights over four orders of magnitude."""
    return 10.0 ** np.random.default_rng(seed).uniform(-2, 2, n)


def weighted(weights):
    """The pass with these weights, for `drive`, which hands it the rows of a call by `seen`."""

    def engine(prior, rules, components, n, seen, piece):
        own = piece._replace(weights=weights[seen : seen + len(piece.x)])
        return one_pass_inplace(prior, rules, components, n, seen, own)

    return engine


def test_weights_of_one_change_no_bit(sva, form):
    prior, x, rules = sva.prior(form, 5), sva.clusters(2_000, 5, seed=1), sva.rules()
    assert sva.same_bits(sva.drive(prior, rules, x), sva.drive(prior, rules, x, engine=weighted(np.ones(len(x)))))


FORMS = ("gaussian", "student", "diagonal", "spherical", "shared")


@pytest.mark.parametrize(
    ("form", "pair_rule", "floor"),
    short_form(
        [(form, *rules) for form in FORMS for rules in (("entropy", 1e-3), ("overlap", 1e-12))],
        [("student", "entropy", 1e-3), ("diagonal", "overlap", 1e-12)],
    ),
)
def test_kernel_equals_the_reference(sva, form, pair_rule, floor):
    prior, x, rules = sva.prior(form, 4), sva.clusters(350, 4, seed=2), sva.rules(pair_rule, floor)
    weights = spread_weights(len(x))
    expected, got = reference_pass(prior, rules, x, weights), sva.drive(prior, rules, x, engine=weighted(weights))
    np.testing.assert_array_equal(got.labels, expected.labels)
    np.testing.assert_allclose(got.log_density, expected.log_density, rtol=RELATIVE, atol=RELATIVE)
    for field, twin in zip(got.components.stats, expected.stats, strict=True):
        np.testing.assert_allclose(field, twin, rtol=RELATIVE, atol=RELATIVE * np.abs(twin).max())
    np.testing.assert_allclose(
        got.components.pairs, expected.pairs, rtol=RELATIVE, atol=RELATIVE * expected.pairs.max()
    )


@pytest.mark.parametrize("family", short_form(COUNTS, ("multinomial", "bernoulli")))
def test_kernel_equals_the_reference_for_counts(sva, family):
    kind, rng = FAMILIES[family], np.random.default_rng(5)
    rates = rng.gamma(0.3, 3.0, (5, 12))[rng.integers(5, size=300)]
    x = kind.domain.convert(
        (rng.random(rates.shape) < rates / 4).astype(float)
        if family == "bernoulli"
        else rng.poisson(rates).astype(float)
    )
    prior, rules, weights = kind.weak(12), sva.rules(), spread_weights(300)
    found = []
    for engine in (one_pass_inplace, reference_pass_inplace):
        components, labels, log_density = new_components(prior, 61, "entropy"), np.zeros(300, np.int64), np.zeros(300)
        result = engine(prior, rules, components, 0, 0, Piece(x, labels, log_density, weights=weights))
        found.append((result.n_components, labels, log_density, components.stats, components.pairs))
    (k, labels, log_density, stats, pairs), twin = found
    assert k == twin[0] > 1
    np.testing.assert_array_equal(labels, twin[1])
    np.testing.assert_allclose(log_density, twin[2], rtol=1e-8)
    np.testing.assert_allclose(pairs[:k, :k], twin[4][:k, :k], rtol=1e-8, atol=1e-8 * pairs[:k, :k].max())
    for field, other in zip(stats, twin[3], strict=True):
        np.testing.assert_allclose(field[:k], other[:k], rtol=1e-8, atol=1e-8 * np.abs(other[:k]).max())


def test_statistics_are_the_sums_over_points_of_responsibility_times_weight(sva, form):
    prior, x, rules = sva.prior(form, 3), sva.clusters(200, 3, seed=11), sva.rules()
    weights = spread_weights(len(x))
    resp = reference_pass(prior, rules, x, weights).resp
    np.testing.assert_allclose(resp.sum(axis=1), 1.0, rtol=1e-12)
    stats = sva.drive(prior, rules, x, engine=weighted(weights)).components.stats
    assert stats.mass.sum() == pytest.approx(weights.sum(), rel=1e-12)
    if form == "student":  # the expected scale of a point is found with its whole weight, and is no factor of it
        return
    for field, whole in zip(stats, prior.suffstats(x, resp * weights[:, None]), strict=True):
        np.testing.assert_allclose(field, whole, rtol=1e-9, atol=1e-9 * np.abs(whole).max())


def test_where_there_is_one_component_a_whole_weight_is_so_many_copies(sva, form):
    """Responsibilities are one there, so that copies learnt one after another add the same."""
    prior, x, rules = sva.prior(form, 3), sva.clusters(300, 3, seed=6), sva.rules(max_components=1)
    weights = np.random.default_rng(0).integers(1, 6, 300)
    if form == "student":  # each copy's expected scale is found after the copies before it
        return
    once = sva.drive(prior, rules, x, engine=weighted(weights.astype(float)))
    often = sva.drive(prior, rules, np.repeat(x, weights, axis=0))
    for field, copies in zip(once.components.stats, often.components.stats, strict=True):
        np.testing.assert_allclose(field, copies, rtol=1e-10, atol=1e-10 * np.abs(copies).max())


def test_where_a_point_founds_a_component_alone_its_weight_is_so_many_copies(sva, form):
    """Far clusters: each point belongs wholly to its own, the founding one too."""
    if form == "student":  # its tails reach the other cluster
        return
    prior, rules = sva.prior(form, 2), sva.rules()
    x = np.array([[0.0, 0.0], [300.0, 0.0], [0.1, 0.0], [300.0, 0.1]])
    weights = np.array([3.0, 5.0, 2.0, 7.0])
    got = sva.drive(prior, rules, x, engine=weighted(weights))
    assert got.labels.tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(got.components.stats.mass, [5.0, 12.0], rtol=1e-12)
    whole = prior.suffstats(
        np.repeat(x, weights.astype(int), axis=0), np.repeat([[1.0, 0], [0, 1.0]] * 2, [3, 5, 2, 7], axis=0)
    )
    for field, copies in zip(got.components.stats, whole, strict=True):
        np.testing.assert_allclose(field, copies, rtol=1e-9, atol=1e-9)


def test_a_weight_does_not_change_whether_its_point_is_new(sva, form):
    prior, x, rules = sva.prior(form, 3), sva.clusters(400, 3, seed=8), sva.rules()
    heavy = np.ones(400)
    heavy[-1] = 1e6
    plain, other = (sva.drive(prior, rules, x, engine=weighted(weights)) for weights in (np.ones(400), heavy))
    np.testing.assert_array_equal(plain.labels, other.labels)
    np.testing.assert_array_equal(plain.log_density, other.log_density)
    assert plain.n_components == other.n_components


@pytest.mark.parametrize("d", [16, 32])
def test_cuts_and_bounds_change_no_bit(sva, form, d):
    """Blocks of bounds hold for heavy points too, which move a component far within a block."""
    prior, x, rules = sva.prior(form, d), sva.clusters(1_500, d, seed=3, n_clusters=40, spread=4.0), sva.rules()
    weights = spread_weights(1_500)
    whole = sva.drive(prior, rules, x, engine=weighted(weights))
    unbounded = sva.drive(prior, rules, x, engine=_unbounded(weights))
    cut = sva.drive(prior, rules, x, cuts=[1, 700, 701, 1_200], engine=weighted(weights))
    assert whole.n_components > 20
    assert sva.same_bits(whole, unbounded)
    assert sva.same_bits(whole, cut)


def _unbounded(weights):
    def engine(prior, rules, components, n, seen, piece):
        own = piece._replace(weights=weights[seen : seen + len(piece.x)])
        return one_pass_inplace(prior, rules, components, n, seen, own, block_rows=1)

    return engine


@pytest.mark.parametrize(
    ("family", "half_life", "refinement"),
    short_form(
        [
            (family, half_life, refinement)
            for family in ("gaussian", "bernoulli")
            for half_life in (None, 500.0)
            for refinement in (None, "auto")
        ],
        [("gaussian", 500.0, None)],
    ),
)
def test_a_stream_is_the_same_wherever_it_is_cut_and_saved(sva, family, half_life, refinement):
    rng = np.random.default_rng(3)
    n = 700
    x = sva.clusters(n, 6, seed=4, spread=3.0)
    x = (x > 0).astype(float) if family == "bernoulli" else x
    weights = np.where(rng.random(n) < 0.5, 1.0, spread_weights(n))
    settings = StreamSettings(
        n_features=6, family=family, half_life=half_life, warmup_points=300, refinement=refinement
    )
    states = []
    for cuts in ([0, n], [0, 7, 150, 299, 300, 301, 555, n]):
        state = initial_state(settings)
        for start, stop in pairwise(cuts):
            state, _ = assimilate_inplace(state, WeightedRows(x[start:stop], weights[start:stop]))
            state, _ = from_bytes(to_bytes(state))
        states.append(to_bytes(state))
        held = state.stats.mass.sum() + state.pruned_mass
        assert held == pytest.approx(state.decayed_count, rel=1e-9)
        if half_life is None:
            assert state.decayed_count == pytest.approx(weights.sum(), rel=1e-12)
    assert states[0] == states[1]
