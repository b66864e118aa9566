"""Predictions: densities that integrate to one, probabilities that sum to one, views that cannot be written."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate

from shoal.errors import NoPointsError, NotFiniteError, ShapeError, UnknownComponentError
from shoal.families import take
from shoal.families.predictive_cache import empty_cache, refresh
from shoal.mixture import (
    MixtureSnapshot,
    MixtureState,
    merge_by_bound_inplace,
    predictor,
    prune_inplace,
    snapshot_of,
)

Array = np.ndarray
MakeState = Callable[..., MixtureState]


@pytest.fixture(autouse=True, params=["kernel", "numpy"])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both that predictions take."""
    monkeypatch.setattr(predictor, "kernel_predicts", lambda family: request.param == "kernel")


def scaled_state(make_state: MakeState, family: str, d: int, k: int = 4, n: int = 80) -> MixtureState:
    """A state whose standardisation is not the identity."""
    rng = np.random.default_rng(d)
    z = rng.normal(size=(n, d)) * 0.4 + rng.normal(size=(k, d))[rng.integers(k, size=n)]
    state = make_state(family, z, rng.dirichlet(np.full(k, 0.2), size=n), concentration=1.7)
    return state._replace(
        location=np.linspace(-5, 20, d), scale=np.geomspace(0.02, 40, d) if d > 1 else np.array([0.02])
    )


@pytest.mark.parametrize("scale", [0.01, 1.0, 300.0])
def test_the_density_integrates_to_one_in_the_units_of_the_data(
    family_name: str, scale: float, make_state: MakeState
) -> None:
    state = scaled_state(make_state, family_name, 1)._replace(location=np.array([7.0]), scale=np.array([scale]))
    snapshot = snapshot_of(state)

    def density(u: float) -> float:  # x = location + scale sinh(u) reaches the heavy tails of the prior's Student t
        x = 7.0 + scale * np.sinh(u)
        return float(np.exp(snapshot.log_density([[x]])[0]) * scale * np.cosh(u))

    total, _ = integrate.quad(density, -30, 30, limit=400, epsabs=1e-10)
    assert total == pytest.approx(1.0, abs=1e-7)


def test_the_answer_is_bayes_rule_told_component_by_component(family_name: str, make_state: MakeState) -> None:
    state = scaled_state(make_state, family_name, 3)
    snapshot = snapshot_of(state)
    rng = np.random.default_rng(9)
    x = state.location + state.scale * rng.normal(size=(25, 3)) * 2
    z = (x - state.location) / state.scale
    prior = state.prior
    mass, alpha, n = state.stats.mass[:4], 1.7, 80.0
    joint = np.empty((25, 5))
    for k in range(4):
        own = prior.posterior(take(state.stats, slice(k, k + 1)))
        joint[:, k] = mass[k] / (alpha + n) * np.exp(prior.log_predictive(own, z)[:, 0])
    joint[:, 4] = alpha / (alpha + n) * np.exp(prior.log_predictive(prior.posterior(prior.empty_stats(1)), z)[:, 0])
    prediction = snapshot.predict(x)
    density = joint.sum(axis=1)
    np.testing.assert_allclose(prediction.resp, joint[:, :4] / density[:, None], rtol=1e-9)
    np.testing.assert_allclose(prediction.novelty, joint[:, 4] / density, rtol=1e-9)
    np.testing.assert_allclose(np.exp(prediction.log_density), density / state.scale.prod(), rtol=1e-9)
    np.testing.assert_array_equal(prediction.component, state.live_ids[joint[:, :4].argmax(axis=1)])
    np.testing.assert_array_equal(snapshot.log_density(x), prediction.log_density)


@pytest.mark.parametrize("far", [0.0, 1e3, 1e60, 1e150])
def test_probabilities_sum_to_one_however_far_the_point(family_name: str, far: float, make_state: MakeState) -> None:
    state = scaled_state(make_state, family_name, 2)
    prediction = snapshot_of(state).predict([[far, -far], [far, 0.0], [-5.0, 20.0]])
    np.testing.assert_allclose(prediction.resp.sum(axis=1) + prediction.novelty, 1.0, rtol=1e-12)
    assert np.isfinite(prediction.log_density).all()
    assert np.isin(prediction.component, state.live_ids).all()
    if far >= 1e60:
        assert prediction.novelty[0] > 0.5


def test_chunks_do_not_show(family_name: str, make_state: MakeState, monkeypatch: pytest.MonkeyPatch) -> None:
    state = scaled_state(make_state, family_name, 3)
    x = state.location + state.scale * np.random.default_rng(1).normal(size=(200, 3))
    whole = snapshot_of(state).predict(x)
    monkeypatch.setattr("shoal.mixture.predictor._CHUNK_ELEMENTS", 200)
    for piece, all_at_once in zip(snapshot_of(state).predict(x), whole, strict=True):
        np.testing.assert_allclose(piece, all_at_once, rtol=1e-11, atol=1e-13)
    singly = [snapshot_of(state).predict(row[None]).log_density[0] for row in x[:20]]
    np.testing.assert_allclose(singly, whole.log_density[:20], rtol=1e-11)


def test_moments_are_those_of_the_predictive_in_the_units_of_the_data(family_name: str, make_state: MakeState) -> None:
    state = scaled_state(make_state, family_name, 2, k=2, n=400)
    snapshot = snapshot_of(state)
    params = state.prior.posterior(take(state.stats, slice(0, 2)))
    np.testing.assert_allclose(
        (snapshot.means - state.location) / state.scale, state.prior.predictive_mean(params), rtol=1e-12
    )
    np.testing.assert_allclose(np.diagonal(snapshot.covariances(), axis1=1, axis2=2), snapshot.variances, rtol=1e-9)
    np.testing.assert_allclose(snapshot.covariances(np.array([1]))[0], snapshot.covariances()[1], rtol=1e-12)
    draws = state.prior.sample_points(
        state.prior.sample_parameters(take(params, np.repeat([0], 20_000)), np.random.default_rng(0)),
        1,
        np.random.default_rng(1),
    )[:, 0]
    raw = draws * state.scale + state.location
    spread = np.sqrt(snapshot.variances[0])
    np.testing.assert_allclose(raw.mean(axis=0) / spread, snapshot.means[0] / spread, atol=5 / np.sqrt(20_000))
    np.testing.assert_allclose(raw.std(axis=0), spread, rtol=0.05)


def test_nothing_published_can_be_written_or_seen_to_change(family_name: str, make_state: MakeState) -> None:
    state = scaled_state(make_state, family_name, 2)
    snapshot = snapshot_of(state)
    before = snapshot.predict([[0.0, 0.0]])
    held = [snapshot.ids, snapshot.masses, snapshot.weights, snapshot.means, snapshot.variances, snapshot.location]
    for array in (*held, snapshot.scale, snapshot.born_at, snapshot.last_seen_at, *snapshot.stats):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.points_seen = 0  # type: ignore[misc]
    for array in (*state.stats, state.ids, state.location):  # the learner goes on
        array += 1
    after = snapshot.predict([[0.0, 0.0]])
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_and_order(make_state: MakeState) -> None:
    x = np.zeros((8, 1))
    resp = np.eye(3)[[0, 0, 1, 1, 1, 1, 2, 2]]
    snapshot = snapshot_of(make_state("diagonal", x, resp, concentration=2.0))
    np.testing.assert_allclose(snapshot.weights, [0.2, 0.4, 0.2])
    assert snapshot.new_weight == pytest.approx(0.2)
    assert snapshot.ids[snapshot.largest_first].tolist() == [11, 10, 12]
    component = snapshot.component(11)
    assert (component.id, component.row, component.mass, component.weight) == (11, 1, 4.0, pytest.approx(0.4))
    np.testing.assert_array_equal(component.mean, snapshot.means[1])


def test_an_id_no_longer_live_answers_with_its_end_and_its_heirs(make_state: MakeState) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(60, 2)), rng.normal(50, 1, size=(5, 2))])
    resp = np.zeros((65, 3))
    resp[:40, 0] = resp[40:60, 1] = resp[60:, 2] = 1.0
    state = make_state("diagonal", x, resp)._replace(location=np.array([3.0, 4.0]), scale=np.array([2.0, 5.0]))
    alone = snapshot_of(state)
    state, _ = merge_by_bound_inplace(state)
    state, _ = prune_inplace(state, np.array([False, True]))
    snapshot = snapshot_of(state)
    assert snapshot.ids.tolist() == [10]
    with pytest.raises(UnknownComponentError, match="past"):
        snapshot.component(11)
    record, end = snapshot.past(11)
    assert record.successors == (10,)
    assert end is not None
    np.testing.assert_allclose(end.means[0], alone.component(11).mean, rtol=1e-12)
    np.testing.assert_allclose(end.variances[0], alone.component(11).variance, rtol=1e-12)
    np.testing.assert_allclose(end.covariances()[0], alone.covariances(np.array([1]))[0], rtol=1e-12)
    assert end.masses.tolist() == [20.0]
    assert snapshot.past(12)[0].successors == ()
    for unknown in (10, 13, -1):
        with pytest.raises(UnknownComponentError):
            snapshot.past(unknown)


@pytest.mark.parametrize("with_prior", [True, False])
def test_before_any_point_there_is_nothing_to_predict_with(
    with_prior: bool, family_name: str, make_state: MakeState
) -> None:
    state = make_state(family_name, np.zeros((1, 2)), np.ones((1, 1)))
    empty = state._replace(
        n_components=0, points_seen=0, stats=state.prior.empty_stats(2), cache=empty_cache(state.prior, 2)
    )
    if not with_prior:
        empty = empty._replace(prior=None, stats=None, cache=None, frozen=False)
    snapshot = snapshot_of(empty)
    assert snapshot.n_components == 0
    assert snapshot.new_weight == 1.0
    assert snapshot.means.shape == snapshot.variances.shape == (0, 2)
    assert snapshot.covariances().shape == (0, 2, 2)
    assert snapshot.status == ("live" if with_prior else "warming_up")
    with pytest.raises(NoPointsError):
        snapshot.predict([[0.0, 0.0]])
    with pytest.raises(ShapeError):  # what is wrong with the question comes first
        snapshot.predict([[0.0]])


def test_bad_points_are_refused_at_the_door(make_state: MakeState) -> None:
    snapshot = snapshot_of(make_state("diagonal", np.zeros((3, 2)), np.ones((3, 1))))
    with pytest.raises(ShapeError):
        snapshot.predict([[1.0, 2.0, 3.0]])
    with pytest.raises(NotFiniteError):
        snapshot.predict([[1.0, np.nan]])
    assert snapshot.predict(np.zeros((0, 2))).resp.shape == (0, 1)


@pytest.mark.short_form("kernel-known_covariance", "kernel-diagonal", "numpy-gaussian")
def test_two_thousand_components(family_name: str, make_state: MakeState, make_prior: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    centres = rng.uniform(-500, 500, size=(2000, 3))
    state = make_state(family_name, centres[:1], np.ones((1, 1)))
    stats = state.prior.scale(state.prior.suffstats(centres, np.eye(2000)), 20.0)
    state = state._replace(
        stats=stats,
        cache=refresh(state.prior, stats),
        n_components=2000,
        ids=np.arange(2000),
        born_at=np.ones(2000),
        last_seen_at=np.ones(2000),
    )
    snapshot: MixtureSnapshot = snapshot_of(state)
    prediction = snapshot.predict(centres)
    np.testing.assert_array_equal(prediction.component, np.arange(2000))
    np.testing.assert_allclose(prediction.resp.sum(axis=1) + prediction.novelty, 1.0, rtol=1e-12)


def test_rows_of_a_snapshot_ascend_by_id(family_name: str, make_state: MakeState) -> None:
    state = scaled_state(make_state, family_name, 3)
    state.ids[:4] = [5, 2, 9, 1]
    snapshot = snapshot_of(state)
    order = [3, 1, 0, 2]
    np.testing.assert_array_equal(snapshot.ids, [1, 2, 5, 9])
    for field, rows in zip(snapshot.stats, state.stats, strict=True):
        np.testing.assert_array_equal(field, rows[order])
    np.testing.assert_array_equal(snapshot.masses, state.stats.mass[order])
    points = np.random.default_rng(0).normal(size=(5, 3)) * state.scale + state.location
    state.ids[:4] = [1, 2, 3, 4]
    before, after = snapshot_of(state).predict(points), snapshot.predict(points)
    np.testing.assert_allclose(after.resp, before.resp[:, order], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(after.component, np.array([5, 2, 9, 1])[before.component - 1])
