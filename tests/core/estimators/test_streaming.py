"""The estimator: what it answers, that it is the stream underneath, and how it is saved."""

import copy
import io
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import shoal.estimators.fitted
from harness.short_form import longer, short_form
from shoal import StreamingDPMixture
from shoal.errors import (
    InputError,
    NoPointsError,
    NotFiniteError,
    SettingError,
    SnapshotDamagedError,
    SnapshotVersionError,
)
from shoal.families import NormalInverseWishart
from shoal.mixture import to_bytes


@pytest.fixture
def data(stream: SimpleNamespace) -> np.ndarray:
    return np.asarray(stream.nine(1_600, seed=1)[0])


@pytest.fixture(scope="module")
def fitted_once(stream: SimpleNamespace) -> bytes:
    return pickle.dumps(StreamingDPMixture(window=300).fit(stream.nine(1_600, seed=1)[0]))


@pytest.fixture
def fitted(fitted_once: bytes) -> StreamingDPMixture:
    """A model of its own that has learnt `data`."""
    model: StreamingDPMixture = pickle.loads(fitted_once)
    return model


def _bytes(model: Any) -> bytes:
    return bytes(model._fitted.to_bytes())


@pytest.mark.parametrize("family", [longer("gaussian"), "diagonal", longer("known_covariance")])
def test_partial_fits_are_one_fit_and_are_the_stream(stream: SimpleNamespace, family: str, data: np.ndarray) -> None:
    data, short = data[:1_100], {"half_life": 900.0, "warmup_points": 300, "refinement": None}
    whole = StreamingDPMixture(family, **short).fit(data)
    pieces = StreamingDPMixture(family, **short)
    for start in range(0, len(data), 123):
        assert pieces.partial_fit(data[start : start + 123]) is pieces
    assert _bytes(pieces) == _bytes(whole)
    assert pieces.events_ == whole.events_
    state = stream.feed(stream.settings(n_features=2, family=family, **short), data).state
    assert to_bytes(whole._fitted.state) == to_bytes(state)


def test_fit_forgets_what_was_learnt(data: np.ndarray) -> None:
    short: dict[str, Any] = {"warmup_points": 200, "refinement": None}
    model, data = StreamingDPMixture(**short).fit(data[1_200:]), data[:300]
    assert _bytes(model.fit(data)) == _bytes(StreamingDPMixture(**short).fit(data))
    wider = np.column_stack([data, data])
    assert model.fit(wider).means_.shape[1] == 4


def test_attributes_agree(fitted: StreamingDPMixture, data: np.ndarray) -> None:
    k = len(fitted.component_ids_)
    assert fitted.component_ids_.dtype == np.int64
    assert fitted.masses_.sum() == pytest.approx(1_600)
    assert fitted.weights_ == pytest.approx(fitted.masses_ / 1_601)
    assert fitted.means_.shape == (k, 2)
    assert fitted.covariances_.shape == (k, 2, 2)
    mixed = fitted.weights_ @ fitted.means_ / fitted.weights_.sum()
    np.testing.assert_allclose(mixed, data.mean(axis=0), atol=0.05)


def test_probabilities_and_novelty_sum_to_one(fitted: StreamingDPMixture, data: np.ndarray) -> None:
    points = np.concatenate([data[:50], [[1e3, -1e3], [6.0, 6.0]]])
    proba, novelty = fitted.predict_proba(points), fitted.novelty(points)
    assert proba.shape == (52, len(fitted.component_ids_))
    np.testing.assert_allclose(proba.sum(axis=1) + novelty, 1.0, atol=1e-12)
    assert np.array_equal(fitted.component_ids_[proba.argmax(axis=1)], fitted.predict(points))
    assert novelty[50] > 0.5
    assert novelty[:50].max() < 0.5
    assert fitted.predict(points).dtype == np.int64


def test_scores_are_log_densities_that_integrate_to_one(fitted: StreamingDPMixture, data: np.ndarray) -> None:
    """The density sums to one on a grid that holds all but a little of it (the new component's tails are wide)."""
    axis = np.linspace(-40.0, 48.0, 400)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    total = np.exp(fitted.score_samples(grid)).sum() * (axis[1] - axis[0]) ** 2
    assert total == pytest.approx(1.0, abs=0.01)
    assert fitted.score(data) == pytest.approx(fitted.score_samples(data).mean())


def test_long_input_is_answered_in_pieces(fitted: StreamingDPMixture, data: np.ndarray, monkeypatch: Any) -> None:
    whole = fitted.predict(data), fitted.novelty(data)
    monkeypatch.setattr("shoal.mixture.predictor._CHUNK_ELEMENTS", 77 * 6)
    assert np.array_equal(fitted.predict(data), whole[0])
    np.testing.assert_allclose(fitted.novelty(data), whole[1], rtol=1e-9)


def test_nothing_can_be_asked_before_there_is_anything() -> None:
    model = StreamingDPMixture()
    for ask in (model.predict, model.predict_proba, model.score_samples, model.novelty, model.score):
        with pytest.raises(NotFittedError):
            ask([[1.0, 2.0]])
    for name in ("component_ids_", "masses_", "weights_", "means_", "covariances_", "events_"):
        assert not hasattr(model, name)
    with pytest.raises(NotFittedError):
        model.save(io.BytesIO())


def test_an_explicit_prior_needs_no_warm_up(data: np.ndarray) -> None:
    prior = NormalInverseWishart([4.0, 4.0], 0.1, 10.0, 10.0 * np.eye(2))
    model = StreamingDPMixture(prior=prior).fit(data[:20])
    assert model._fitted.state.status == "live"
    assert clone(model).prior == prior
    with pytest.raises(SettingError, match="family"):
        StreamingDPMixture("diagonal", prior=prior).fit(data)


@pytest.mark.parametrize(
    "bad",
    [
        {"family": "cauchy"},
        {"concentration": 0.0},
        {"birth_threshold": 1.0},
        {"half_life": -1.0},
        {"method": "x"},
        {"window": -1},
        {"max_components": 0},
    ],
)
def test_bad_parameters_are_refused_at_fit(data: np.ndarray, bad: dict[str, Any]) -> None:
    model = StreamingDPMixture(**bad)
    with pytest.raises(SettingError, match=next(iter(bad))):
        model.fit(data)


def test_numbers_too_large_to_square_are_refused_and_nothing_is_learnt(fitted: StreamingDPMixture) -> None:
    before = _bytes(fitted)
    with pytest.raises(NotFiniteError):
        fitted.partial_fit([[0.0, 1e200]])
    assert _bytes(fitted) == before


def test_parameters_that_may_change_do_and_others_are_refused(data: np.ndarray) -> None:
    model = StreamingDPMixture(refinement=None).fit(data[:1_200])
    model.set_params(half_life=200.0, window=50).partial_fit(data[1_200:])
    assert model.masses_.sum() < 700
    assert len(model._fitted.window) == 50
    with pytest.raises(SettingError, match="family"):
        model.set_params(family="diagonal").partial_fit(data)


def test_the_window_keeps_the_last_rows(fitted: StreamingDPMixture, data: np.ndarray) -> None:
    assert np.array_equal(fitted._fitted.window, data[-300:])


@pytest.mark.parametrize(
    ("family", "stop"),
    short_form(
        [
            (family, stop)
            for family in ("gaussian", "diagonal", "known_covariance")
            for stop in (1, 40, 999, 1_000, 1_500)
        ],
        [("gaussian", 999), ("gaussian", 1_000), ("diagonal", 40), ("diagonal", 1_500), ("known_covariance", 1)],
    ),
)
def test_saved_and_loaded_it_goes_on_as_if_nothing_had_happened(
    family: str, data: np.ndarray, tmp_path: Path, stop: int
) -> None:
    model = StreamingDPMixture(family, half_life=700.0, window=64).partial_fit(data[:stop])
    model.save(tmp_path / "state.shoal")
    loaded = StreamingDPMixture.load(tmp_path / "state.shoal")
    assert loaded.get_params() == model.get_params()
    assert loaded.n_features_in_ == 2
    assert np.array_equal(loaded.predict_proba(data), model.predict_proba(data))
    assert _bytes(loaded.partial_fit(data[stop:])) == _bytes(model.partial_fit(data[stop:]))
    assert [path.name for path in tmp_path.iterdir()] == ["state.shoal"]


def test_a_save_that_fails_leaves_the_old_file_and_nothing_beside_it(
    data: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, target = StreamingDPMixture(family="diagonal").fit(data[:50]), tmp_path / "state.shoal"
    (tmp_path / "state.shoal.part").write_bytes(b"of another")
    model.save(target)
    before = target.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"No space left.*state.shoal"):
        model.partial_fit(data[50:99]).save(target)
    assert target.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.shoal", "state.shoal.part"]


def test_an_explicit_prior_is_saved(data: np.ndarray) -> None:
    prior = NormalInverseWishart([4.0, 4.0], 0.1, 10.0, 10.0 * np.eye(2))
    model = StreamingDPMixture(prior=prior).fit(data)
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    assert StreamingDPMixture.load(file).prior == prior


def test_a_damaged_or_newer_file_is_refused(fitted: StreamingDPMixture) -> None:
    blob = _bytes(fitted)
    for damaged in (b"", blob[:-1], blob[: len(blob) // 2], blob[:500] + b"\x00\x01" + blob[502:], b"x" * 300):
        with pytest.raises(SnapshotDamagedError):
            StreamingDPMixture.load(io.BytesIO(damaged))
    with pytest.raises((SnapshotVersionError, SnapshotDamagedError)):
        StreamingDPMixture.load(io.BytesIO(blob.replace(b"\x01", b"\x02", 1)))


def test_pickles_and_copies_go_on_alike(fitted: StreamingDPMixture, data: np.ndarray) -> None:
    for twin in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted), copy.copy(fitted)):
        assert twin.events_ == fitted.events_
        assert _bytes(twin) == _bytes(fitted)
        assert _bytes(twin.partial_fit(data)) != _bytes(fitted)
    assert not hasattr(pickle.loads(pickle.dumps(StreamingDPMixture())), "component_ids_")


def test_events_are_bounded(data: np.ndarray, monkeypatch: Any) -> None:
    monkeypatch.setattr(shoal.estimators.fitted, "MOST_EVENTS", 5)
    few = StreamingDPMixture(warmup_points=200, refinement=None).fit(data[:600]).events_
    monkeypatch.undo()
    every = StreamingDPMixture(warmup_points=200, refinement=None).fit(data[:600]).events_
    assert len(every) > 5
    assert few == every[-5:]


def test_learning_broken_off_half_way_is_told(fitted: StreamingDPMixture, data: np.ndarray, monkeypatch: Any) -> None:
    def broken(*arguments: Any, **_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(shoal.estimators.fitted, "assimilate_inplace", broken)
    with pytest.raises(KeyboardInterrupt):
        fitted.partial_fit(data)
    monkeypatch.undo()
    with pytest.raises(NoPointsError, match="interrupted"):
        fitted.predict(data)
    assert np.isfinite(fitted.fit(data[:100]).score(data))


def test_rows_that_are_checked_the_short_way_are_refused_as_others_are(data: np.ndarray) -> None:
    """A plain array after the first chunk goes past scikit-learn's checks, but for one that is to be refused."""
    model = StreamingDPMixture("diagonal", warmup_points=100, refinement=None)
    model.partial_fit(data[:300]).partial_fit(data[300:600])
    before = model.score(data)
    for bad in (np.nan, np.inf, 1e200):
        spoilt = data[600:700].copy()
        spoilt[50, 0] = bad
        for refused in (model.partial_fit, model.predict):
            with pytest.raises(ValueError, match=r"NaN|inf|1e\+?150"):
                refused(spoilt)
    for wrong in (data[:, :1], np.hstack([data, data])):
        with pytest.raises(ValueError, match="features"):
            model.partial_fit(wrong)
    assert model.score(data) == before


def test_a_parameter_holds_from_the_next_chunk_on_though_the_last_ones_changed_none(data: np.ndarray) -> None:
    def learnt(*half_lives: float | None, saved: bool = False) -> bytes:
        model = StreamingDPMixture("diagonal", warmup_points=100, refinement=None)
        for half_life, chunk in zip(half_lives, np.array_split(data[:600], len(half_lives)), strict=True):
            model.set_params(half_life=half_life).partial_fit(chunk)
            model = StreamingDPMixture.load(io.BytesIO(_bytes(model))) if saved else model
        return _bytes(model)

    changed = learnt(None, None, 300.0, 300.0)
    assert changed not in (learnt(None, None, None, 300.0), learnt(None, None, 300.0, None))
    assert changed == learnt(None, None, 300.0, 300.0, saved=True)


def test_a_call_refused_for_its_times_leaves_the_parameters_as_they_were() -> None:
    x = np.random.default_rng(0).normal(size=(30, 2))
    model = StreamingDPMixture(half_life="1h").fit(x, times=np.arange(30.0))
    before = model.weights_
    with pytest.raises(InputError, match="the time of row 0 is nan; give seconds"):
        model.set_params(concentration=5.0).partial_fit(x, times=np.full(30, np.nan))
    assert np.array_equal(model.weights_, before)
