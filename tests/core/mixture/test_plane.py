"""Planes: the directions in which means differ most, and ellipses that are projections of covariances."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA

from shoal import StreamingDPMixture
from shoal.errors import SettingError, ShapeError
from shoal.estimators.views import mixture_of
from shoal.mixture import MixtureSnapshot, MixtureState, Plane, ellipses, feature_plane, principal_plane, snapshot_of

Array = np.ndarray
MakeState = Callable[..., MixtureState]


def drawn(make_state: MakeState, d: int, centres: Array, family: str = "gaussian") -> MixtureSnapshot:
    """A snapshot of hard clusters, 40 rows each, whose standardisation is not the identity."""
    rng = np.random.default_rng(d)
    k = len(centres)
    label = np.repeat(np.arange(k), 40)
    state = make_state(family, centres[label] + 0.1 * rng.normal(size=(40 * k, d)), np.eye(k)[label])
    return snapshot_of(state._replace(location=np.linspace(-5, 20, d), scale=np.geomspace(0.5, 40, d)))


@pytest.mark.parametrize(("d", "k"), [(2, 5), (6, 4), (6, 30), (12, 5)])
def test_the_principal_plane_is_that_of_the_weighted_means(make_state: MakeState, d: int, k: int) -> None:
    """By PCA of the means, each repeated as often as it has points: all components have 40."""
    snapshot = drawn(make_state, d, np.random.default_rng(1).normal(size=(k, d)) * 3)
    plane = principal_plane(snapshot)
    z = (snapshot.means - snapshot.location) / snapshot.scale
    pca = PCA(2).fit(z)
    directions = plane.axes * snapshot.scale
    assert_allclose(directions @ directions.T, np.eye(2), atol=1e-10)
    assert_allclose(np.abs(np.sum(directions * pca.components_, axis=1)), 1.0, atol=1e-8)
    assert (directions[np.arange(2), np.abs(directions).argmax(axis=1)] > 0).all()
    assert_allclose(plane.coordinates(snapshot.means).mean(axis=0), 0.0, atol=1e-9)


@pytest.mark.parametrize("centres", [[[0.0, 0, 0]], [[0.0, 0, 0], [5, 5, 5]], [[0.0, 0, 0], [1, 1, 1], [4, 4, 4]]])
def test_a_plane_is_complete_where_the_means_span_none(make_state: MakeState, centres: list[list[float]]) -> None:
    plane = principal_plane(drawn(make_state, 3, np.array(centres)))
    assert np.linalg.matrix_rank(plane.axes) == 2


def test_one_feature_gives_a_line(make_state: MakeState) -> None:
    snapshot = drawn(make_state, 1, np.array([[0.0], [4.0]]))
    assert principal_plane(snapshot).axes[1].tolist() == [0.0]
    assert ellipses(snapshot, principal_plane(snapshot), np.array([0]))[0, 1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("family", ["gaussian", "diagonal"])
def test_ellipses_are_covariances_of_projected_points(make_state: MakeState, family: str) -> None:
    """By projecting draws with the covariance; 200,000 of them, so that a covariance is known to about 1 %."""
    snapshot = drawn(make_state, 5, np.random.default_rng(3).normal(size=(4, 5)) * 3, family)
    plane = principal_plane(snapshot)
    (found,) = ellipses(snapshot, plane, np.array([2]))
    draws = np.random.default_rng(4).multivariate_normal(
        snapshot.means[2], snapshot.covariances(np.array([2]))[0], 200_000
    )
    expected = np.cov(plane.coordinates(draws).T)
    assert_allclose(found, expected, atol=0.03 * np.trace(expected))


def test_ellipses_do_not_depend_on_how_many_are_made_at_a_time(
    make_state: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = drawn(make_state, 3, np.random.default_rng(5).normal(size=(9, 3)))
    whole = ellipses(snapshot, feature_plane(3, 0, 2), np.arange(9))
    monkeypatch.setattr("shoal.mixture.plane.CHUNK_NUMBERS", 20)
    assert_allclose(ellipses(snapshot, feature_plane(3, 0, 2), np.arange(9)), whole, rtol=1e-12)
    assert_allclose(whole, snapshot.covariances()[:, [0, 2]][:, :, [0, 2]], rtol=1e-12)


def test_features_are_their_own_coordinates() -> None:
    x = np.arange(12.0).reshape(3, 4)
    assert feature_plane(4, 3, 1).coordinates(x).tolist() == x[:, [3, 1]].tolist()
    with pytest.raises(SettingError, match="feature 4 does not exist; the stream has 0 to 3"):
        feature_plane(4, 0, 4)


def test_an_empty_mixture_has_no_plane(make_state: MakeState) -> None:
    snapshot = drawn(make_state, 2, np.zeros((1, 2)))
    empty = snapshot_of(make_state("gaussian", np.zeros((1, 2)), np.ones((1, 1)))._replace(n_components=0))
    with pytest.raises(ShapeError, match="without components"):
        principal_plane(empty)
    assert isinstance(principal_plane(snapshot), Plane)


def test_ellipses_of_a_subspace_are_those_of_its_whole_covariances() -> None:
    """A map of embeddings was refused: a subspace was counted among points that are no places."""
    rng = np.random.default_rng(5)
    x = 3 * rng.normal(size=(4, 40))[rng.integers(4, size=1_200)] + rng.normal(size=(1_200, 40))
    model = StreamingDPMixture("subspace", refinement=None).fit(x)
    snapshot = mixture_of(model)
    assert snapshot.has_places
    plane = principal_plane(snapshot)
    rows = np.arange(snapshot.n_components)
    whole = plane.axes @ snapshot.covariances(rows) @ plane.axes.T
    assert_allclose(ellipses(snapshot, plane, rows), whole, rtol=1e-9, atol=1e-12)
