"""Points with missing values in one pass, in the warm-up, in refinements and in predictions."""

import itertools
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from harness.short_form import longer
from shoal.errors import NotFiniteError, SettingError
from shoal.families import FAMILIES, take
from shoal.families.bernoulli import BetaBernoulli
from shoal.families.gaussian import NormalInverseWishart
from shoal.mixture import StreamSettings, from_bytes, snapshot_of, to_bytes
from shoal.points.weighted_rows import WeightedRows
from shoal.refinement.problem import window_problem
from shoal.sequential import assimilate_inplace, initial_state

NAN = np.nan
MIXED = '{"0":"gaussian","1":"poisson","2":"categorical"}'


def clusters(n: int, d: int = 3, seed: int = 0, share: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Points of three far clusters with correlated features, `share` of the values missing at random; and labels."""
    rng = np.random.default_rng(seed)
    root = np.eye(d) + 0.6 * np.tri(d, k=-1)
    labels = rng.integers(3, size=n)
    x = 9.0 * np.eye(3, d)[labels] + rng.normal(size=(n, d)) @ root.T
    holes = rng.random((n, d)) < share
    holes[holes.all(axis=1), 0] = False
    return np.where(holes, NAN, x), labels


def learnt(settings: StreamSettings, x: Any, cuts: Any = ()) -> Any:
    state = initial_state(settings)
    for start, stop in pairwise([0, *cuts, len(x)]):
        state, _ = assimilate_inplace(state, x[start:stop])
    return state


def all_points(d: int) -> np.ndarray:
    return np.array(list(itertools.product([0.0, 1.0], repeat=d)))


def test_a_holed_point_is_divided_as_by_enumeration_of_its_values() -> None:
    """p(x_O | k) is the sum of p(x | k) over the values of the missing features."""
    prior = BetaBernoulli(np.full(4, 0.3), np.full(4, 0.4))
    settings = StreamSettings(n_features=4, family="bernoulli", prior=prior, missing="marginal", birth_threshold=0.25)
    rng = np.random.default_rng(1)
    x = (rng.random((60, 4)) < np.where(rng.random(60) < 0.5, 0.95, 0.05)[:, None]).astype(float)
    state = learnt(settings, x)
    n = state.n_components
    assert n > 1
    before = take(state.stats, slice(0, n))
    before = type(before)(*(field.copy() for field in before))
    point = np.array([[1.0, NAN, 0.0, NAN]])
    fits = all_points(4)[(all_points(4)[:, 0] == 1) & (all_points(4)[:, 2] == 0)]
    with_prior = type(before)(*(np.concatenate(pair) for pair in zip(before, prior.empty_stats(1), strict=True)))
    each = prior.log_predictive(prior.posterior(with_prior), prior.domain.convert(fits))
    joint = logsumexp(each, axis=0) + np.log(np.append(before.mass, settings.concentration))
    snapshot = snapshot_of(state)
    told = snapshot.predict(point)
    state, info = assimilate_inplace(state, point)
    total = np.log(before.mass.sum() + settings.concentration)
    np.testing.assert_allclose(info.scores.log_density, logsumexp(joint) - total, rtol=1e-10)
    np.testing.assert_allclose(told.log_density, info.scores.log_density, rtol=1e-10)
    resp = np.exp(joint - logsumexp(joint))
    np.testing.assert_allclose(info.scores.novelty, resp[-1], rtol=1e-10)
    np.testing.assert_allclose(told.resp[0], resp[:-1][np.argsort(state.ids[:n])], rtol=1e-10)
    kept = np.where(resp[:-1] >= settings.floor, resp[:-1], 0.0)
    kept /= kept.sum()
    np.testing.assert_allclose(state.stats.mass[:n] - before.mass, kept, rtol=1e-9, atol=1e-13)
    # and its expected ones: those of each value, by its probability under the component's mean
    p = prior.predictive_mean(prior.posterior(before))
    chance = np.prod(np.where(fits[:, None, [1, 3]] == 1, p[None, :, [1, 3]], 1 - p[None, :, [1, 3]]), axis=2)
    expected = np.einsum("vk,vd->kd", chance, fits) * kept[:, None]
    np.testing.assert_allclose(state.stats.total[:n] - before.total, expected, rtol=1e-9, atol=1e-13)


def test_a_stream_without_holes_is_the_same_to_the_bit() -> None:
    x, _ = clusters(1_500)
    plain, ready = (
        learnt(StreamSettings(n_features=3, missing=missing, refinement=None), x) for missing in ("refuse", "marginal")
    )
    assert plain.stats.scatter.tobytes() == ready.stats.scatter.tobytes()
    assert plain.pairs.tobytes() == ready.pairs.tobytes()
    assert snapshot_of(plain).log_density(x[:5]).tolist() == snapshot_of(ready).log_density(x[:5]).tolist()


@pytest.mark.parametrize(
    ("family", "refinement", "n"),
    [
        ("gaussian", "auto", 250),
        (MIXED, None, 160),
        *(longer(family, "auto", 250) for family in ("poisson", "categorical", MIXED)),
    ],
)
def test_it_is_the_same_wherever_it_is_cut_and_saved(family: str, refinement: Any, n: int) -> None:
    x, _ = clusters(n, seed=3, share=0.15)
    if family != "gaussian":
        x[:, 1:] = np.maximum(np.round(x[:, 1:]), 0.0)
    if family in ("poisson", "categorical"):
        x[:, 0] = np.maximum(np.round(x[:, 0]), 0.0)
    weights = np.where(np.arange(n) % 3 == 0, 2.5, 1.0)
    settings = StreamSettings(n_features=3, family=family, missing="marginal", warmup_points=100, half_life=200.0)
    settings = settings.with_changes(refinement=refinement)
    whole, _ = assimilate_inplace(initial_state(settings), WeightedRows(x, weights))
    pieces = initial_state(settings)
    for start, stop in pairwise([0, 1, 2, 37, 99, 100, 101, n - 45, n]):
        pieces, _ = assimilate_inplace(pieces, WeightedRows(x[start:stop], weights[start:stop]))
        pieces, _ = from_bytes(to_bytes(pieces))
    assert to_bytes(whole) == to_bytes(pieces)
    assert whole.stats.mass[: whole.n_components].sum() + whole.pruned_mass == pytest.approx(whole.decayed_count)


def test_clusters_are_found_through_holes() -> None:
    """A fifth of all values is missing: the three clusters, their means and covariances come out. A tenth of the points
    have one value alone, which often says nothing of the cluster."""
    x, labels = clusters(1_800, seed=5, share=0.2)
    settings = StreamSettings(n_features=3, missing="marginal", warmup_points=300, refinement=None)
    snapshot = snapshot_of(learnt(settings, x))
    assert np.sum(snapshot.masses > 100) == 3
    found = snapshot.predict(x, with_resp=False).component
    assert np.mean([np.mean(found[labels == k] == np.bincount(found[labels == k]).argmax()) for k in range(3)]) > 0.94
    for row in np.flatnonzero(snapshot.masses > 100):
        k = np.bincount(labels[found == snapshot.ids[row]]).argmax()
        np.testing.assert_allclose(snapshot.means[row], 9.0 * np.eye(3)[k], atol=0.25)
        root = np.eye(3) + 0.6 * np.tri(3, k=-1)
        np.testing.assert_allclose(snapshot.covariances(np.array([row]))[0], root @ root.T, atol=0.35)


@pytest.mark.parametrize("family", ["gaussian", longer("bernoulli")])
def test_holes_of_the_window_are_drawn_before_a_refinement(family: str) -> None:
    x, _ = clusters(500, seed=6, share=0.3)
    x = np.where(np.isnan(x), NAN, (x > 4).astype(float)) if family == "bernoulli" else x
    settings = StreamSettings(n_features=3, family=family, missing="marginal", warmup_points=150, refinement=None)
    state = learnt(settings, x)
    rows = state.settings.domain.convert(x[state.past.offset :])
    problem = window_problem(state, rows)
    whole = problem.rows.toarray() if family == "bernoulli" else problem.rows
    known = ~np.isnan(x[state.past.offset :])
    placed = (
        x[state.past.offset :] if family == "bernoulli" else (x[state.past.offset :] - state.location) / state.scale
    )
    assert np.isfinite(whole).all()
    np.testing.assert_allclose(whole[known], placed[known], rtol=1e-12)
    again = window_problem(state, rows).rows
    np.testing.assert_array_equal(again.toarray() if family == "bernoulli" else again, whole)
    if family == "gaussian":  # a mean in each hole would shrink the variances by a third
        complete, _ = clusters(500, seed=6)
        spread = [np.std(table, axis=0) for table in (whole * state.scale + state.location, complete)]
        np.testing.assert_allclose(spread[0], spread[1], rtol=0.06)
    else:
        assert set(np.unique(whole)) <= {0.0, 1.0}


def test_predictions_of_complete_and_holed_rows_mix() -> None:
    x, _ = clusters(800, seed=7)
    prior = NormalInverseWishart(np.zeros(3), 0.1, 6.0, 2.0 * np.eye(3))
    snapshot = snapshot_of(learnt(StreamSettings(n_features=3, missing="marginal", prior=prior), x))
    asked = x[:6].copy()
    asked[1, 0] = asked[4, 2] = asked[4, 1] = NAN
    mixed = snapshot.predict(asked)
    complete = snapshot.predict(x[:6])
    for i in (0, 2, 3, 5):
        assert mixed.log_density[i] == complete.log_density[i]
        np.testing.assert_array_equal(mixed.resp[i], complete.resp[i])
    np.testing.assert_allclose(mixed.resp.sum(axis=1) + mixed.novelty, 1.0, rtol=1e-12)
    step = np.linspace(-60.0, 60.0, 60_001)
    line = np.tile(x[1], (len(step), 1))
    line[:, 0] = step
    whole = np.log(np.exp(snapshot.log_density(line)).sum() * (step[1] - step[0]))
    assert mixed.log_density[1] == pytest.approx(whole, abs=1e-5)


def test_densities_are_in_the_units_of_the_points_that_were_observed() -> None:
    """Features in other units: the density of a holed point changes by the units of its observed features alone."""
    x, _ = clusters(300, seed=8, share=0.1)
    unit = np.array([1.0, 1e3, 1e-2])
    settings = StreamSettings(n_features=3, missing="marginal", warmup_points=150, refinement=None)
    asked = np.array([[NAN, 1.0, 2.0], [0.5, NAN, NAN]])
    one = snapshot_of(learnt(settings, x)).log_density(asked)
    other = snapshot_of(learnt(settings, x * unit)).log_density(asked * unit)
    change = [-np.log(unit[[1, 2]]).sum(), -np.log(unit[0])]
    np.testing.assert_allclose(other - one, change, atol=1e-4)


def test_what_holes_cannot_be_says_so() -> None:
    with pytest.raises(SettingError, match="'multinomial' cannot learn points with missing values"):
        StreamSettings(n_features=3, family="multinomial", missing="marginal")
    with pytest.raises(SettingError, match="missing is 'drop'"):
        StreamSettings(n_features=3, missing="drop")  # type: ignore[arg-type]
    domain = FAMILIES["gaussian"].domain
    with pytest.raises(NotFiniteError, match="row 1 holds nan in column 0"):
        domain.points([[1.0, 2.0], [NAN, 1.0]])
    with pytest.raises(NotFiniteError, match="row 1 holds no value") as caught:
        domain.points([[1.0, 2.0], [NAN, NAN]], holes=True)
    assert caught.value.row == 1
    with pytest.raises(NotFiniteError, match="row 0 holds inf"):
        domain.points([[np.inf, NAN]], holes=True)
