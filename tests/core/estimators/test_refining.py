"""Refinement by the scikit-learn face: by itself and when asked, the same however the stream is cut or saved."""

import io
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

from harness.short_form import longer
from shoal import StreamingDPMixture
from shoal.errors import RefinementError, SettingError


def _bytes(model: StreamingDPMixture) -> bytes:
    return bytes(model._fitted.to_bytes())


@pytest.fixture
def rows(stream: SimpleNamespace) -> tuple[np.ndarray, np.ndarray]:
    """4,600 points of nine clusters, a tenth of which comes late."""
    x, z = stream.nine(4_600, seed=7, spacing=4.0)
    z[3_000::4] = 9
    x[3_000::4] = np.random.default_rng(7).normal(size=x[3000::4].shape) + np.array([13.5, 4.0])
    return x, z


WAYS: list[dict[str, Any]] = [
    {},
    {"window": 900},
    {"window": 900, "half_life": 500.0, "warmup_points": 300},
    {"warmup_points": 130, "window": 700, "birth_threshold": 0.1},
]


@pytest.mark.parametrize(
    ("family", "way"),
    [
        ("gaussian", WAYS[2]),
        longer("diagonal", WAYS[3]),
        *(longer(family, WAYS[0]) for family in ("gaussian", "diagonal", "known_covariance")),
        *(longer(family, WAYS[1]) for family in ("gaussian", "diagonal", "known_covariance")),
        *(longer(family, WAYS[2]) for family in ("diagonal", "known_covariance")),
        *(longer(family, WAYS[3]) for family in ("gaussian", "known_covariance")),
    ],
)
def test_the_same_however_the_stream_is_cut_saved_and_loaded(
    rows: tuple[np.ndarray, np.ndarray], family: str, way: dict[str, Any]
) -> None:
    x, _ = rows
    whole = StreamingDPMixture(family, **way).fit(x)
    assert whole._fitted.state.schedule.refined_at > 2_000
    pieces = StreamingDPMixture(family, **way)
    for start in range(0, len(x), 77):
        pieces.partial_fit(x[start : start + 77])
        if start % 693 == 0:
            file = io.BytesIO()
            pieces.save(file)
            events = pieces._fitted.events
            pieces = StreamingDPMixture.load(io.BytesIO(file.getvalue()))
            assert pieces.get_params() == StreamingDPMixture(family, **way).get_params()
            pieces._fitted._events.extend(events)
        if start % 1_001 == 0:
            pieces = pickle.loads(pickle.dumps(pieces))
    assert _bytes(pieces) == _bytes(whole)
    assert pieces.events_ == whole.events_


@pytest.mark.parametrize("family_name", ["gaussian", longer("diagonal")])
def test_it_finds_what_one_pass_does_not(rows: tuple[np.ndarray, np.ndarray], family_name: str) -> None:
    x, z = rows
    model = StreamingDPMixture(family_name).fit(x)
    assert len(model.component_ids_) == 10
    assert adjusted_rand_score(z, model.predict(x)) > 0.84
    assert {event.kind for event in model.events_} <= {"born", "merged", "split", "refined", "pruned"}
    assert model.masses_.sum() == pytest.approx(len(x), rel=1e-9)


def test_asked_for_it_reports(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, _ = rows
    model = StreamingDPMixture(refinement=None).fit(x)
    assert model._fitted.state.schedule.adopted == 0
    told = model.events_
    report = model.refine()
    assert report.adopted
    assert report.bound_after > report.bound_before
    assert (report.offset, report.window_rows, report.method) == (4_600, 4_600, "vdp")
    assert report.components_after == len(model.component_ids_)
    assert model.events_ == told + report.events
    again = model.refine()
    assert again.events == ()
    assert again.bound_after - again.bound_before < 1e-3 * 4_600
    assert model.partial_fit(x[:10])._fitted.state.points_seen == 4_610


def test_where_it_cannot_it_says_so(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, _ = rows
    with pytest.raises(NotFittedError):
        StreamingDPMixture().refine()
    for way, words in (({"window": 0}, "keeps no window"), ({"method": "sva"}, "'sva'"), ({}, "warming up")):
        model = StreamingDPMixture(**way).fit(x[:150])
        before = _bytes(model)
        with pytest.raises(RefinementError, match=words):
            model.refine()
        assert _bytes(model) == before
    model = StreamingDPMixture(warmup_points=100).fit(x[:150])
    before = _bytes(model)
    with pytest.raises(SettingError, match="method"):
        model.refine("gibbs")
    assert _bytes(model) == before
    with pytest.raises(SettingError, match="refinement"):
        StreamingDPMixture(refinement="often").fit(x)


def test_random_state(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x = rows[0][:130]

    def model_of(state: Any) -> StreamingDPMixture:
        return StreamingDPMixture(random_state=state, warmup_points=60)

    plain = _bytes(StreamingDPMixture(warmup_points=60).fit(x))
    assert _bytes(model_of(0).fit(x)) == plain
    assert model_of(5).fit(x[:50])._fitted.state.settings.seed == 5
    model = model_of(np.random.RandomState(3)).fit(x[:90])
    seed = model._fitted.state.settings.seed
    assert model.partial_fit(x[90:])._fitted.state.settings.seed == seed > 0
    again = model_of(np.random.RandomState(3)).fit(x)
    assert _bytes(again) == _bytes(model)
    file = io.BytesIO()
    model.save(file)
    assert StreamingDPMixture.load(io.BytesIO(file.getvalue())).random_state == seed
    for bad in ("x", -1, 1.5):
        with pytest.raises(SettingError, match="random_state"):
            model_of(bad).fit(x)
    assert clone(model).get_params().keys() == model.get_params().keys()


def test_rows_that_are_not_there_are_past(rows: tuple[np.ndarray, np.ndarray]) -> None:
    """A snapshot without rows, as a service may send it: what was learnt stays, the window begins again."""
    from shoal.estimators.fitted import Fitted
    from shoal.mixture import to_bytes

    x, _ = rows
    model = StreamingDPMixture(window=2_000, warmup_points=100).fit(x[:3_500])
    fitted = Fitted.from_bytes(to_bytes(model._fitted.state))
    assert fitted.state.past is not None
    assert fitted.state.past.offset == 3_500
    assert np.array_equal(fitted.snapshot.masses, model.masses_)
    fitted.learn(x[3_500:])
    assert fitted.refine().window_rows == 1_100


def test_the_window_holds_what_a_refinement_needs(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, _ = rows
    model = StreamingDPMixture(window=901, warmup_points=100)
    for start in range(0, len(x), 311):
        model.partial_fit(x[start : start + 311])
        state, held = model._fitted.state, model._fitted.window
        assert len(held) <= 900
        since = state.points_seen - state.past.offset
        assert since <= len(held)
        assert np.array_equal(held[len(held) - since :], x[state.past.offset : state.points_seen])


def test_searching_the_ids_gives_the_rows_of_labels(rows: tuple[np.ndarray, np.ndarray]) -> None:
    """After refinements and joins a state's rows are in any order; readers get all by ascending id."""
    x, _ = rows
    model = StreamingDPMixture("diagonal", warmup_points=200).fit(x)
    state = model._fitted.state
    unsorted = state.ids[: state.n_components]
    assert np.any(np.diff(unsorted) < 0), "the case is not the one meant"
    ids = model.component_ids_
    assert np.all(np.diff(ids) > 0)
    labels = model.predict(x)
    at = np.searchsorted(ids, labels)
    np.testing.assert_array_equal(ids[at], labels)
    np.testing.assert_array_equal(model.predict_proba(x).argmax(axis=1), at)
    np.testing.assert_array_equal(model.masses_, state.stats.mass[np.argsort(unsorted)])
    shares = np.bincount(at, minlength=len(ids)) / len(x)
    assert np.corrcoef(shares, model.weights_)[0, 1] > 0.99
    distance = np.linalg.norm(x[:, None, :] - model.means_[None], axis=2)
    assert np.median(distance[np.arange(len(x)), at]) < 2.0
    assert model.covariances_.shape == (len(ids), 2, 2)


def test_a_prolonged_warm_up_says_how_many_rows_it_awaits() -> None:
    """It said "400 of 100 rows"."""
    model = StreamingDPMixture(warmup_points=100).fit(np.ones((400, 2)))
    with pytest.raises(RefinementError, match="400 of 800 rows"):
        model.refine()


@pytest.mark.parametrize("family", ["gaussian", "diagonal"])
def test_fast_vdp_says_so_where_rows_are_too_far_apart_for_its_sums(family: str) -> None:
    x = np.random.default_rng(1).normal(size=(300, 5))
    x[150:, :3] *= 1e12
    model = StreamingDPMixture(family, warmup_points=100, refinement=None).fit(x[:150]).partial_fit(x[150:])
    before = _bytes(model)
    with pytest.raises(RefinementError, match="method='vdp'"):
        model.refine("fast-vdp")
    assert _bytes(model) == before
    model.refine("vdp")
