"""`sample_weight` of the streaming estimator: through warm-up, window, refinement and saving."""

import io

import numpy as np
import pytest

from harness.gradient_proportions import GradientProportions
from shoal import StreamingDPMixture
from shoal.errors import InputError, SettingError, ShapeError
from shoal.estimators.window import RowWindow, WeightedRowWindow
from shoal.families import FAMILIES
from shoal.points.weighted_rows import WeightedRows, unweighted, weights_of
from shoal.refinement import Problem
from shoal.refinement.solve import solve

RNG = np.random.default_rng(7)
X = np.repeat([[-6.0, 0.0], [6.0, 0.0], [0.0, 9.0]], 500, axis=0)[RNG.permutation(1_500)] + RNG.normal(size=(1_500, 2))
W = RNG.integers(1, 5, 1_500).astype(float)


def model(**more: object) -> StreamingDPMixture:
    return StreamingDPMixture("diagonal", warmup_points=200, window=1_000, **more)


def saved(fitted: StreamingDPMixture) -> bytes:
    file = io.BytesIO()
    fitted.save(file)
    return file.getvalue()


def test_weights_of_one_are_no_weights() -> None:
    assert saved(model().fit(X[:500])) == saved(model().fit(X[:500], sample_weight=np.ones(500)))


@pytest.fixture(scope="module")
def fitted() -> StreamingDPMixture:
    """A model that tests only read."""
    return model().fit(X, sample_weight=W)


def test_masses_are_sums_of_weights_through_refinements(fitted: StreamingDPMixture) -> None:
    assert fitted._fitted.state.schedule.refined_at > 0
    assert fitted.masses_.sum() == pytest.approx(W.sum(), rel=1e-9)
    labels = fitted.predict(X)
    shares = [W[labels == k].sum() for k in fitted.component_ids_]
    np.testing.assert_allclose(fitted.masses_, shares, rtol=0.02)
    assert len(fitted.component_ids_) == 3


def test_it_is_the_same_cut_and_saved_anywhere() -> None:
    whole, pieces = model().fit(X, sample_weight=W), model()
    for start, stop in ((0, 3), (3, 190), (190, 777), (777, 1_500)):
        pieces.partial_fit(X[start:stop], sample_weight=W[start:stop])
        pieces = StreamingDPMixture.load(io.BytesIO(saved(pieces)))
    assert saved(whole) == saved(pieces)
    assert whole.refine() == pieces.refine()


@pytest.mark.parametrize("limit", [5, 8, 50])
def test_the_window_keeps_weights_with_their_rows(limit: int) -> None:
    window = WeightedRowWindow(RowWindow(2, limit, 1 << 20))
    for start in range(0, 40, 4):
        rows = X[start : start + 4]
        window.append(rows if start < 12 else WeightedRows(rows, W[start : start + 4]))
    kept = min(limit, 40)
    weights = np.where(np.arange(40) < 12, 1.0, W[:40])
    for found in (window.rows(), window.latest(kept)):
        np.testing.assert_array_equal(unweighted(found), X[40 - kept : 40])
        np.testing.assert_array_equal(weights_of(found), weights[40 - kept :])


def test_a_refinement_counts_a_row_of_whole_weight_as_so_many_rows(fitted: StreamingDPMixture) -> None:
    """Copies have equal responsibilities in batch inference, so that the bound is the same function of them."""
    state = fitted._fitted.state
    from shoal.refinement.problem import window_problem

    assert state.past is not None
    rows = fitted._fitted._window.latest(state.points_seen - state.past.offset)
    problem = window_problem(state, rows)
    own = weights_of(rows)
    assert own is not None
    np.testing.assert_array_equal(problem.weights, own)
    copies: Problem = problem._replace(
        rows=np.repeat(problem.rows, own.astype(int), axis=0), weights=np.ones(int(own.sum()))
    )
    one, other = (solve(given, method="vdp", rng=np.random.default_rng(0)) for given in (problem, copies))
    assert one.bound_before == pytest.approx(other.bound_before, rel=1e-10)
    assert one.bound_after == pytest.approx(other.bound_after, rel=1e-6)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, 1e10, 1e-10])
def test_a_weight_out_of_range_names_its_row(bad: float) -> None:
    weights = np.ones(1_500)
    weights[7] = bad
    with pytest.raises(InputError, match="row 7 has the weight") as caught:
        model().fit(X, sample_weight=weights)
    assert caught.value.row == 7


def test_as_many_weights_as_rows_are_needed() -> None:
    with pytest.raises(ShapeError, match="1500 points"):
        model().fit(X, sample_weight=np.ones(3))


def test_a_family_without_statistics_that_add_takes_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, GradientProportions.name, GradientProportions)
    x = np.abs(X) / np.abs(X).sum(axis=1, keepdims=True)
    fitted = StreamingDPMixture(GradientProportions.name, method="sva", warmup_points=50, refinement=None)
    with pytest.raises(SettingError, match="without weights"):
        fitted.fit(x[:60], sample_weight=W[:60])
    fitted.fit(x[:60], sample_weight=np.ones(60))
    with pytest.raises(SettingError, match="without weights"):
        fitted.partial_fit(x[:60], sample_weight=W[:60])
