"""The kernel of predictions against NumPy's answer, and against itself: a point alone has every component scored, one
among many only those that bounds leave."""

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shoal.families import FAMILIES, KnownCovariance, MultivariateStudent, NormalInverseGamma, NormalInverseWishart
from shoal.families.predictive_cache import refresh
from shoal.mixture import MixtureSnapshot, MixtureState, StreamSettings, predictor, snapshot_of, to_bytes, view_to_bytes
from shoal.mixture.predict_kernel import LONGEST_BLOCK, SHORTEST_BLOCK
from shoal.sequential import assimilate_inplace, initial_state

Array = np.ndarray
MakeState = Callable[..., MixtureState]


@pytest.fixture(autouse=True)
def compiled() -> None:
    """The kernels of all families, compiled or loaded."""
    for family in every_family(3):
        call = predictor.predict_call(family)
        assert call is not None
        call[0](*call[1])


def every_family(d: int) -> list[Any]:
    """Those that have the kernel."""
    shared = KnownCovariance(np.zeros(d), 4.0 * np.eye(d), np.eye(d) + 0.3)
    plain = [NormalInverseWishart.weak(d), NormalInverseGamma.weak(d), KnownCovariance(np.zeros(d), 4.0, 1.0), shared]
    return [*plain, MultivariateStudent.weak(d)]


def plain(snapshot: MixtureSnapshot, x: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """NumPy's answer."""
    with monkeypatch.context() as patch:
        patch.setattr("shoal.mixture.predictor.kernel_predicts", lambda family: False)
        return dataclasses.replace(snapshot, live=None).predict(x)


@pytest.mark.parametrize("place", range(5), ids=("full", "diagonal", "spherical", "shared", "student"))
def test_the_kernel_says_what_numpy_says(place: int) -> None:
    """Term by term from the family's own predictive."""
    family, rng, k = every_family(5)[place], np.random.default_rng(place), 6
    x = 2.0 * rng.normal(size=(60, 5))
    stats = family.suffstats(x, rng.dirichlet(np.full(k, 0.3), size=60))
    weight = rng.dirichlet(np.ones(k + 1))
    mixture = predictor.Predictor(family, predictor.with_empty(family, stats), np.log(weight))
    row, log_density, novelty, resp = mixture.predict(x, with_resp=True)
    whole = family.posterior(type(stats)(*map(np.concatenate, zip(stats, family.empty_stats(1), strict=True))))
    terms = family.log_predictive(whole, x) + np.log(weight)
    shares = np.exp(terms - np.logaddexp.reduce(terms, axis=1)[:, None])
    np.testing.assert_allclose(log_density, np.logaddexp.reduce(terms, axis=1), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(np.column_stack([resp, novelty]), shares, rtol=1e-9, atol=1e-16)
    np.testing.assert_array_equal(row, terms[:, :k].argmax(axis=1))


def crowd(make_state: MakeState, family: str, d: int, k: int, *, spread: float, seed: int = 0) -> MixtureState:
    """k components about as many centres, some of them twins, one all but without mass."""
    rng = np.random.default_rng(seed)
    centres = spread * rng.normal(size=(k, d))
    centres[1] = centres[0]
    centres[3] = centres[2] + 0.3
    label = np.repeat(np.arange(k), 30)
    x = centres[label] + rng.normal(size=(label.size, d)) * np.exp(0.5 * rng.normal(size=(k, d)))[label]
    state = make_state(family, x, np.eye(k)[label])
    state.stats.mass[k - 1] *= 1e-200
    return state._replace(cache=refresh(state.prior, state.stats))


@pytest.mark.parametrize(("d", "k"), [(2, 400), (16, 70), (40, 24)])
@pytest.mark.parametrize("spread", [0.5, 6.0])
@pytest.mark.short_form("*-40-24", "gaussian-6.0-2-400", "known_covariance-0.5-2-400")
def test_a_point_is_told_the_same_to_the_bit_whatever_stands_beside_it(
    family_name: str, d: int, k: int, spread: float, make_state: MakeState
) -> None:
    """So what bounds leave unscored could not have changed anything. Blocks are cut at many places."""
    state = crowd(make_state, family_name, d, k, spread=spread)._replace(
        location=np.full(d, 0.3), scale=np.full(d, 2.0)
    )
    snapshot, rng = snapshot_of(state), np.random.default_rng(1)
    x = 2.0 * spread * rng.normal(size=(LONGEST_BLOCK + 50, d))
    far = rng.integers(len(x), size=30)
    x[far] *= np.array([1e2, 1e10, 1e60])[rng.integers(3, size=(30, 1))]
    whole = snapshot.predict(x)
    chosen = np.union1d(far, rng.integers(len(x), size=150))
    alone = [snapshot.predict(x[i : i + 1]) for i in chosen]
    for field, parts in zip(whole, zip(*alone, strict=True), strict=True):
        np.testing.assert_array_equal(field[chosen], np.concatenate(parts))
    for start, n in ((3, SHORTEST_BLOCK), (700, 333), (90, SHORTEST_BLOCK - 1)):
        for field, part in zip(whole, snapshot.predict(x[start : start + n]), strict=True):
            np.testing.assert_array_equal(field[start : start + n], part)
    np.testing.assert_array_equal(snapshot.log_density(x), whole.log_density)
    without = snapshot.predict(x, with_resp=False)
    assert without.resp.shape == (len(x), 0)
    for name in ("component", "log_density", "novelty"):
        np.testing.assert_array_equal(getattr(without, name), getattr(whole, name))


@pytest.mark.parametrize("spread", [0.5, 6.0])
def test_many_components_are_answered_for_as_by_numpy(
    family_name: str, spread: float, make_state: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = crowd(make_state, family_name, 16, 70, spread=spread)
    snapshot = snapshot_of(state)
    x = 2.0 * spread * np.random.default_rng(2).normal(size=(300, 16))
    found, wanted = snapshot.predict(x), plain(snapshot, x, monkeypatch)
    np.testing.assert_allclose(found.log_density, wanted.log_density, rtol=1e-11)
    np.testing.assert_allclose(found.resp, wanted.resp, rtol=1e-9, atol=1e-16)
    np.testing.assert_allclose(found.novelty, wanted.novelty, rtol=1e-9, atol=1e-300)
    np.testing.assert_array_equal(found.component, wanted.component)
    assert (found.resp > 0.0).sum() < (wanted.resp > 0.0).sum()  # what is far is nothing


def test_no_mass_anywhere_leaves_the_component_that_does_not_exist(make_state: MakeState) -> None:
    state = crowd(make_state, "diagonal", 3, 5, spread=3.0)
    snapshot = snapshot_of(state)
    answer = dataclasses.replace(snapshot, weights=np.zeros(5)).predict(np.zeros((20, 3)))
    assert (answer.novelty == 1.0).all()
    assert (answer.resp == 0.0).all()
    assert np.isfinite(answer.log_density).all()
    assert (answer.component == snapshot.ids[0]).all()


def test_numpy_answers_while_there_is_no_kernel_and_a_snapshot_stays_with_what_it_began_with(
    make_state: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = crowd(make_state, "gaussian", 4, 6, spread=3.0)
    x = np.random.default_rng(3).normal(size=(40, 4))
    wanted = snapshot_of(state).predict(x)
    with monkeypatch.context() as patch:
        patch.setattr(predictor, "_compiled", set())
        patch.setattr(predictor, "needs_compiler", lambda kernel, arguments: True)
        patch.setattr(predictor, "predict_rows", refusing)
        early = snapshot_of(state)
        before = early.predict(x)
    after = early.predict(x)
    np.testing.assert_array_equal(before.log_density, after.log_density)
    np.testing.assert_allclose(before.log_density, wanted.log_density, rtol=1e-12)
    np.testing.assert_array_equal(before.component, wanted.component)


def refusing(*arguments: Any) -> None:
    raise AssertionError("the kernel was called")


def test_the_predictive_cache_of_the_learner_answers_as_one_made_again(family_name: str, make_state: MakeState) -> None:
    snapshot = snapshot_of(crowd(make_state, family_name, 6, 12, spread=2.0))
    x = 4.0 * np.random.default_rng(4).normal(size=(50, 6))
    assert snapshot.live is not None
    given, rebuilt = snapshot.predict(x), dataclasses.replace(snapshot, live=None).predict(x)
    for one, other in zip(given, rebuilt, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-16)


KERNELS = ("gaussian", "student", "diagonal", "known_covariance", "dirichlet", "von_mises_fisher")


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_asking_changes_nothing(name: str) -> None:
    """Nor does it for families that NumPy answers for."""
    family, rng = FAMILIES[name].weak(3), np.random.default_rng(5)
    whole = family.domain.sparse or name == "categorical"
    x = rng.integers(2, size=(200, 3)).astype(float) if whole else rng.dirichlet(np.ones(3), size=200)
    x = x / np.linalg.norm(x, axis=1, keepdims=True) if name == "von_mises_fisher" else x
    settings = StreamSettings(family=name, n_features=3, prior=family, refinement=None)  # type: ignore[arg-type]
    state, _ = assimilate_inplace(initial_state(settings), x)
    snapshot = snapshot_of(state)
    before, held = view_to_bytes(snapshot), to_bytes(state)
    first = snapshot.predict(x)
    again = snapshot.predict(x)
    assert view_to_bytes(snapshot) == before
    assert to_bytes(state) == held
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert predictor.kernel_predicts(family) == (name in KERNELS)


def test_what_a_snapshot_answers_with_cannot_be_written(family_name: str, make_state: MakeState) -> None:
    snapshot = snapshot_of(crowd(make_state, family_name, 3, 4, spread=2.0))
    assert snapshot.live is not None
    for array in (*snapshot.live[0], *snapshot.live[1]):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0


def test_components_that_hold_nothing_are_told_the_same_among_others() -> None:
    """Truncated methods give weight to components without mass, whose distances have a short form."""
    rng, family = np.random.default_rng(7), NormalInverseWishart.weak(16)
    centres = 4.0 * rng.normal(size=(30, 16))
    label = np.repeat(np.arange(24), 40)  # six are left without points
    stats = family.suffstats(centres[label] + rng.normal(size=(960, 16)), np.eye(30)[label])
    assert (stats.mass == 0.0).sum() == 6
    asked = predictor.Predictor(family, predictor.with_empty(family, stats), np.full(31, -np.log(31.0)))
    x = np.concatenate([centres[label[:200:2]] + rng.normal(size=(100, 16)), 6.0 * rng.normal(size=(100, 16))])
    whole = asked.predict(x, with_resp=True)
    for i in range(200):
        for field, part in zip(whole, asked.predict(x[i : i + 1], with_resp=True), strict=True):
            np.testing.assert_array_equal(field[i], part[0])


def test_a_copy_of_what_answers_settles_again_who_does(make_state: MakeState) -> None:
    state = crowd(make_state, "gaussian", 3, 4, spread=2.0)
    weights = np.full(5, -np.log(5.0))
    stats = predictor.with_empty(state.prior, type(state.stats)(*(rows[:4] for rows in state.stats)))
    asked = predictor.Predictor(state.prior, stats, weights)
    x = np.random.default_rng(8).normal(size=(20, 3))
    first = asked.predict(x, with_resp=True)
    sent = pickle.loads(pickle.dumps(asked))
    assert not {"_asked", "_predictive"} & set(vars(sent))
    for one, other in zip(first, sent.predict(x, with_resp=True), strict=True):
        np.testing.assert_array_equal(one, other)
