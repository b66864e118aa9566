"""The default clusters: groups that are drawn come back, whatever their shape."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.cluster.hierarchy import is_monotonic, is_valid_linkage
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

from harness.short_form import longer
from shoal import StreamingDPMixture
from shoal.clusters import Hierarchy, cut
from shoal.clusters.connected import _joins, _overlaps
from shoal.clusters.own_covariances import misfit_of_own_covariances
from shoal.clusters.ward import weighted_ward
from shoal.families import MultivariateStudent

ONE_PASS = pytest.mark.parametrize("refinement", [None, longer("auto")])
"""Clusters are told from any components. Those of one pass come at a tenth of the time."""


def agreement(model: StreamingDPMixture, x: np.ndarray, y: np.ndarray) -> float:
    return float(adjusted_rand_score(y, model.predict(x, level="cluster")))


@ONE_PASS
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("drawn", ["moons", "rings"])
@pytest.mark.short_form("moons-1-None", "rings-1-None")
def test_moons_and_rings_are_two_clusters(drawn: str, seed: int, refinement: str | None) -> None:
    if drawn == "moons":
        x, y = make_moons(2_000, noise=0.08, random_state=seed)
    else:
        x, y = make_circles(2_000, noise=0.06, factor=0.45, random_state=seed)
    model = StreamingDPMixture(refinement=refinement).fit(x)
    assert len(model.component_ids_) >= 8
    found = model.clusters()
    assert (found.n_clusters, found.rule) == (2, "connected")
    assert agreement(model, x, y) > 0.98
    tree = model.hierarchy_.linkage
    assert is_valid_linkage(tree)
    assert is_monotonic(tree)
    assert np.count_nonzero(tree[:, 2] == 0.0) == len(model.component_ids_) - 2
    assert model.clusters(2).cluster_of.tolist() == found.cluster_of.tolist()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.short_form("1")
def test_clusters_of_gaussians_are_the_components(seed: int) -> None:
    x, y = make_blobs(3_000, centers=8, n_features=6, cluster_std=1.5, random_state=seed)
    model = StreamingDPMixture().fit(x)
    assert model.clusters().n_clusters == 8
    assert model.predict(x, level="cluster").tolist() == model.predict(x).tolist()
    assert agreement(model, x, y) > 0.95  # of the third, two overlap


@pytest.mark.parametrize("prior", [MultivariateStudent([6.0, 6.0], 0.03, 5.0, 2.0 * np.eye(2), 2.01), longer("auto")])
def test_groups_with_tails_of_infinite_variance_are_not_one_cluster(prior: Any) -> None:
    """Refinement learned 2.01 degrees of freedom here, and the variance of a component was 200 times its core's."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=1_500)
    tails = np.sqrt(rng.chisquare(1.2, size=(1_500, 1)) / 1.2)
    x = 12.0 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])[y] + rng.normal(size=(1_500, 2)) / tails
    model = StreamingDPMixture("student", prior=prior, refinement="auto" if prior == "auto" else None).fit(x)
    if prior != "auto":
        model.refine()
    assert model._snapshot().prior.degrees == pytest.approx(2.01, abs=0.005)
    assert model.clusters().n_clusters == 4
    assert agreement(model, x, y) > 0.8


@pytest.mark.parametrize("cost", [40.0, 70.0, 110.0, 400.0])
@pytest.mark.short_form("40.0", "110.0")
def test_if_all_would_be_one_cluster_the_first_finer_cut_is_taken_down_to_the_plain_criterion(cost: float) -> None:
    """Found by lowering the penalty step by step, from three times the criterion to once."""
    rng = np.random.default_rng(8)
    k = 30
    misfit = 5_000.0 - 100.0 * np.append(
        0.0, np.cumsum(np.sort(rng.uniform(0.2, 1.0, k - 1))[::-1] - 0.1 * rng.random())
    )
    misfit[1:3] += 300.0  # two or three clusters say little, more say much
    points = rng.normal(size=(k, 2))
    tree = Hierarchy(
        weighted_ward(points, np.ones(k)), np.arange(k), np.ones(k), np.arange(k), misfit, cost, n_connected=0
    )
    found = cut(tree).n_clusters
    steps = (cut(tree, resolution=1.0 / share).n_clusters for share in np.linspace(1.0, 1.0 / 3.0, 2_001))
    assert found == next((number for number in steps if number > 1), 1)
    assert (found > 1) == (cost < 100.0)


@ONE_PASS
def test_tails_that_a_second_component_covers_join_their_cluster(refinement: str | None) -> None:
    rng = np.random.default_rng(2)
    y = rng.integers(5, size=2_000)
    x = 12.0 * np.eye(5)[y] + rng.standard_t(3.0, size=(2_000, 1)) * rng.normal(size=(2_000, 5))
    model = StreamingDPMixture(refinement=refinement).fit(x)
    assert len(model.component_ids_) > 5
    assert agreement(model, x, y) > adjusted_rand_score(y, model.predict(x))
    assert 5 <= model.clusters().n_clusters <= 10


@ONE_PASS
def test_nine_neighbours_are_not_joined_because_a_tenth_is_far(refinement: str | None) -> None:
    """Normals four deviations apart overlap by .27; a gap to a far one says nothing about these."""
    rng = np.random.default_rng(3)
    z = rng.integers(10, size=2_000)
    x = 4.0 * np.stack([z % 3, z // 3], axis=1) + rng.normal(size=(2_000, 2))
    x[z == 9] += 100.0
    model = StreamingDPMixture(refinement=refinement).fit(x)
    assert model.clusters().n_clusters == 10
    near = 3.3 * np.stack([z % 3, z // 3], axis=1) + rng.normal(size=(2_000, 2))
    near[z == 9] += 100.0
    assert StreamingDPMixture(refinement=refinement).fit(near).clusters().rule == "penalty"


def test_overlap_is_the_lowest_density_between_the_peaks_along_fishers_line() -> None:
    rng = np.random.default_rng(4)
    means = rng.normal(size=(6, 3))
    roots = rng.normal(size=(6, 3, 3))
    covariances = roots @ roots.transpose(0, 2, 1) * 0.5 + 0.05 * np.eye(3)
    i, j = np.triu_indices(6, 1)
    found = _overlaps(means, covariances, i, j)
    assert 0.05 < np.median(found) < 1.0
    for a, b, overlap in zip(i, j, found, strict=True):
        line = np.linalg.inv(covariances[a] + covariances[b]) @ (means[b] - means[a])
        parts = [norm(line @ means[one], np.sqrt(line @ covariances[one] @ line)) for one in (a, b)]

        def density(t: float, parts: list = parts) -> float:
            return float(parts[0].pdf(t) + parts[1].pdf(t))

        low, high = parts[0].mean(), parts[1].mean()
        grid = np.linspace(low, high, 4_001)
        values = parts[0].pdf(grid) + parts[1].pdf(grid)
        at = int(values.argmin())
        if 0 < at < 4_000:
            bottom = minimize_scalar(density, bounds=(grid[at - 1], grid[at + 1]), method="bounded").fun
        else:
            bottom = values[at]
        expected = bottom / min(values[: at + 1].max(), values[at:].max())
        if overlap >= 0.05:
            assert_allclose(overlap, expected, rtol=0.03)  # a grid of 33 places
        else:
            assert expected < 0.06


@pytest.mark.parametrize("n_features", [5, 12])
def test_neighbours_in_many_directions_are_no_ring(n_features: int) -> None:
    """The corners of two simplices. Between five corners the density falls, but they are bent in no plane."""
    corners = np.eye(5, n_features) * 3.87 / np.sqrt(2.0)
    means = np.concatenate([corners, corners + 40.0])
    covariances = np.broadcast_to(np.eye(n_features), (10, n_features, n_features))
    assert _joins(means, covariances, means) is None


@pytest.mark.parametrize("n_features", [2, 3, 12])
def test_a_ring_is_hollow_in_its_plane(n_features: int) -> None:
    plane = np.linalg.qr(np.random.default_rng(4).normal(size=(n_features, n_features)))[0][:2]
    angles = [np.linspace(0.0, 2.0 * np.pi, n, endpoint=False) for n in (12, 36)]
    rings = [r * np.stack([np.cos(a), np.sin(a)], axis=1) @ plane for r, a in zip((5.0, 15.0), angles, strict=True)]
    means = np.concatenate(rings)
    found = _joins(means, np.broadcast_to(np.eye(n_features), (48, n_features, n_features)), means)
    assert found is not None
    assert found.group.tolist() == [0] * 12 + [1] * 36


@ONE_PASS
@pytest.mark.parametrize("deviations", [1e2, 1e12])
def test_far_out_rows_hide_no_cluster(deviations: float, refinement: str | None) -> None:
    """A twentieth of the rows, far from all others and from one another, made the six clusters one."""
    rng = np.random.default_rng(5)
    y = rng.integers(6, size=4_000)
    x = rng.normal(0.0, 6.0, (6, 8))[y] + rng.normal(size=(4_000, 8))
    far = rng.random(4_000) < 0.05
    x[far] = deviations * 6.0 * rng.normal(size=(far.sum(), 8))
    model = StreamingDPMixture(refinement=refinement).fit(x)
    for found in (model.clusters(), model.clusters(resolution=1e-6)):
        near = found.of_components(model.predict(x[~far]))
        assert not set(near) & set(found.of_components(model.predict(x[far])))
    assert agreement(model, x[~far], y[~far]) == 1.0
    tree = model.hierarchy_.linkage
    assert is_valid_linkage(tree)
    assert is_monotonic(tree)


@ONE_PASS
def test_far_out_rows_hide_no_moon(refinement: str | None) -> None:
    x, y = make_moons(3_000, noise=0.06, random_state=0)
    far = np.random.default_rng(1).random(3_000) < 0.05
    x[far] = 1e6 * np.random.default_rng(2).normal(size=(far.sum(), 2))
    model = StreamingDPMixture(refinement=refinement).fit(x)
    assert model.clusters().rule == "connected"
    assert agreement(model, x[~far], y[~far]) > 0.98


def test_places_near_the_origin_keep_their_digits_beside_a_far_one() -> None:
    rng = np.random.default_rng(0)
    x, mass = rng.normal(size=(20, 3)), rng.uniform(1.0, 9.0, 20)
    near = weighted_ward(x, mass)
    with_far = weighted_ward(np.vstack([x, np.full(3, 1e12)]), np.append(mass, 1.0), x.mean(axis=0))
    assert_allclose(with_far[:-1, 2], near[:, 2], rtol=1e-9)


def test_a_narrow_group_within_a_wide_one_is_a_cluster_of_its_own() -> None:
    """Their means are near and their covariances differ. Variances in common made one cluster of both components."""
    rng = np.random.default_rng(5)
    y = rng.integers(2, size=2_000)
    x = np.where(y == 0, 2.0, 1.0)[:, None] * rng.normal(size=(2_000, 20)) + 0.4 * y[:, None]
    model = StreamingDPMixture(refinement=None).fit(x)
    assert model.clusters().n_clusters == 2
    assert agreement(model, x, y) > 0.85


def test_components_that_cover_a_square_together_stay_one_cluster() -> None:
    x = np.random.default_rng(6).uniform(size=(1_500, 2))
    model = StreamingDPMixture(warmup_points=500).fit(x)
    assert len(model.component_ids_) > 3
    assert len(model.hierarchy_.own_misfit) > 3
    assert model.clusters().n_clusters == 1


@pytest.mark.parametrize(("n", "n_features", "warmup"), [(1_500, 3, 300), longer(3_000, 5, 1_000)])
def test_components_that_cover_a_skewed_group_together_stay_one_cluster(n: int, n_features: int, warmup: int) -> None:
    """With covariances of their own, nearly each of them would be a cluster."""
    x = np.random.default_rng(8).exponential(size=(n, n_features))
    model = StreamingDPMixture(warmup_points=warmup).fit(x)
    assert len(model.hierarchy_.own_misfit) > 3
    assert model.clusters().n_clusters == 1


def test_misfit_of_own_covariances_is_the_likelihood_of_the_rows_of_each_cluster() -> None:
    """By normal densities of rows under the moments of all rows below a node."""
    rng = np.random.default_rng(7)
    y = np.repeat([0, 1, 2], [2_000, 1_000, 1_000])
    x = np.array([[0.0, 0.0], [9.0, 1.0], [12.0, 30.0]])[y] + rng.normal(size=(4_000, 2)) * [1.0, 20.0 / 9.0]
    model = StreamingDPMixture().fit(x)
    found, _ = misfit_of_own_covariances(model._snapshot(), model.hierarchy_.linkage)
    by_rows = []
    for k in (1, 2, 3):
        label = model.predict(x, level="cluster", n_clusters=k)
        parts = [x[label == one] for one in np.unique(label)]
        by_rows.append(
            -sum(
                multivariate_normal(part.mean(axis=0), np.cov(part.T, bias=True)).logpdf(part).sum()
                + len(part) * np.log(len(part) / len(x))
                for part in parts
            )
        )
    assert_allclose(np.diff(found), np.diff(by_rows), rtol=0.01)
