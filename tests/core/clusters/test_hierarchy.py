"""Trees of mixtures and their cuts: ids, masses, order, and one tree for every family."""

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster.hierarchy import fcluster, is_valid_linkage
from sklearn.metrics import adjusted_rand_score

from shoal import DPMixture, StreamingDPMixture
from shoal.clusters import Clustering, Hierarchy, cut
from shoal.errors import SettingError, UnknownComponentError
from shoal.families import FAMILIES, NormalInverseWishart

ROWS: dict[str, Any] = {
    "real": lambda rng: rng.standard_normal((300, 4)) + 6.0 * rng.integers(3, size=(300, 1)),
    "counts": lambda rng: rng.poisson(np.array([[1, 5, 9, 2], [9, 1, 2, 8]])[rng.integers(2, size=300)]).astype(float),
    "binary": lambda rng: (rng.random((300, 4)) < rng.choice([0.1, 0.9], size=(300, 1))).astype(float),
    "levels": lambda rng: ((rng.integers(2, size=(300, 4)) + rng.integers(2, size=(300, 1))) % 3).astype(float),
    "proportions": lambda rng: rng.dirichlet([9.0, 3.0, 1.0, 1.0], 300),
    "unit vectors": lambda rng: (lambda x: x / np.linalg.norm(x, axis=1, keepdims=True))(rng.normal(1, 1, (300, 4))),
}
KIND = {
    "gaussian": "real",
    "student": "real",
    "subspace": "real",
    "diagonal": "real",
    "known_covariance": "real",
    "multinomial": "counts",
    "bernoulli": "binary",
    "categorical": "levels",
    "poisson": "counts",
    "negative_binomial": "counts",
    "dirichlet": "proportions",
    "dirichlet_gradient": "proportions",
    "von_mises_fisher": "unit vectors",
}


@pytest.fixture(scope="module")
def model() -> StreamingDPMixture:
    """Nine Gaussians in three columns that are far apart."""
    rng = np.random.default_rng(5)
    z = rng.integers(9, size=3_000)
    x = np.stack([30.0 * (z % 3), 6.0 * (z // 3)], axis=1) + rng.normal(size=(3_000, 2))
    return StreamingDPMixture(refinement=None).fit(x)


def tree_of(linkage: Any, ids: Any, masses: Any, born_at: Any) -> Hierarchy:
    misfit = np.zeros(len(ids))
    return Hierarchy(
        np.array(linkage, float), np.array(ids), np.array(masses, float), np.array(born_at), misfit, 1.0, 0
    )


@pytest.mark.parametrize("family", KIND)
@pytest.mark.short_form("[!d]*", "diagonal", "dirichlet")
def test_every_family_has_a_tree(family: str) -> None:
    x = ROWS[KIND[family]](np.random.default_rng(1))
    model = StreamingDPMixture(family, refinement=None, warmup_points=100).fit(x)
    k = len(model.component_ids_)
    tree = model.hierarchy_
    assert tree.linkage.shape == (k - 1, 4)
    assert np.isfinite(tree.linkage).all()
    if k > 1:
        assert is_valid_linkage(tree.linkage)
    found = model.clusters(min(2, k))
    assert found.n_clusters == min(2, k)
    assert sum(cluster.mass for cluster in found.clusters) == pytest.approx(model.masses_.sum())
    assert set(model.predict(x, level="cluster", n_clusters=1)) == {model.clusters(1).clusters[0].id}


def test_every_family_is_in_the_list() -> None:
    assert KIND.keys() >= FAMILIES.keys()


def test_clusters_are_the_last_joins_undone(model: StreamingDPMixture) -> None:
    tree = model.hierarchy_
    for k in range(1, len(tree.ids) + 1):
        found = cut(tree, k)
        assert found.n_clusters == k
        assert adjusted_rand_score(found.cluster_of, fcluster(tree.linkage, k, "maxclust")) == 1.0
        for cluster in found.clusters:
            rows = np.isin(tree.ids, cluster.components)
            assert cluster.mass == pytest.approx(tree.masses[rows].sum())
            assert cluster.id == tree.ids[rows][np.lexsort((tree.ids[rows], tree.born_at[rows]))[0]]
            assert set(found.cluster_of[rows]) == {cluster.id}
        masses = [cluster.mass for cluster in found.clusters]
        assert masses == sorted(masses, reverse=True)


def test_three_columns_of_three(model: StreamingDPMixture) -> None:
    x = np.array([[30.0 * i, 6.0 * j] for i in range(3) for j in range(3)])
    label = model.predict(x, level="cluster", n_clusters=3)
    assert_array_equal(label.reshape(3, 3), label.reshape(3, 3)[:, [0, 0, 0]])
    assert len(set(label)) == 3
    component = model.predict(x)
    assert_array_equal(component, model.predict(x, level="component"))
    assert_array_equal(model.clusters(3).of_components(component), label)


def test_the_tree_is_made_once_for_a_state_and_is_the_same_after_a_file(model: StreamingDPMixture) -> None:
    tree = model.hierarchy_
    assert model.hierarchy_ is tree
    file = io.BytesIO()
    model.save(file)
    again = StreamingDPMixture.load(io.BytesIO(file.getvalue()))
    for a, b in zip(again.hierarchy_, tree, strict=True):
        assert_array_equal(a, b)
    assert again.clusters().clusters == model.clusters().clusters
    again.partial_fit(np.array([[0.0, 0.0]]))
    assert again.hierarchy_ is not tree
    assert again.hierarchy_.masses.sum() == pytest.approx(3_001)
    assert not tree.linkage.flags.writeable


def test_a_cluster_keeps_the_id_of_its_oldest_component() -> None:
    tree = tree_of([[0, 1, 1, 2], [2, 3, 2, 2], [4, 5, 3, 4]], [3, 5, 8, 9], [1, 1, 4, 4], [70, 10, 20, 20])
    assert [(one.id, one.components, one.mass) for one in cut(tree, 2).clusters] == [(8, (8, 9), 8.0), (5, (3, 5), 2.0)]
    assert cut(tree, 1).clusters[0].id == 5
    assert_array_equal(cut(tree, 2).of_components(np.array([9, 3, 3])), [8, 5, 5])


def test_features_in_other_units_give_the_same_tree_by_default(model: StreamingDPMixture) -> None:
    rng = np.random.default_rng(5)
    x = np.stack([30.0 * rng.integers(3, size=2_000), np.zeros(2_000)], axis=1) + rng.normal(size=(2_000, 2))
    first = StreamingDPMixture(refinement=None).fit(x).hierarchy_
    other = StreamingDPMixture(refinement=None).fit(x * [1e-3, 1e3]).hierarchy_
    assert_array_equal(other.linkage[:, [0, 1, 3]], first.linkage[:, [0, 1, 3]])
    assert_allclose(other.linkage[:, 2], first.linkage[:, 2], rtol=1e-6)


def test_under_a_prior_of_your_own_features_are_in_units_of_the_deviation_within() -> None:
    rng = np.random.default_rng(6)
    z = rng.integers(4, size=2_000)
    unit = np.array([1.0, 1000.0])
    x = (np.stack([40.0 * (z % 2), 10.0 * (z // 2)], axis=1) + rng.normal(size=(2_000, 2))) * unit
    prior = NormalInverseWishart(np.zeros(2), 1e-3, 10.0, 10.0 * np.diag(unit**2))
    model = StreamingDPMixture(prior=prior, refinement=None).fit(x)
    label = model.predict(np.array([[0, 0], [0, 10], [40, 0], [40, 10]]) * unit, level="cluster", n_clusters=2)
    assert label[0] == label[1] != label[2] == label[3]


def test_what_cannot_be_asked_is_refused_with_the_reason(model: StreamingDPMixture) -> None:
    k = len(model.component_ids_)
    with pytest.raises(SettingError, match=f"{k + 1}.*{k} components.*at most {k}"):
        model.clusters(k + 1)
    for bad in (0, -1, 2.5, True):
        with pytest.raises(SettingError, match="whole number"):
            model.clusters(bad)
    for bad in (0.0, -1.0, np.nan, np.inf, "fine", True):
        with pytest.raises(SettingError, match="number above 0"):
            model.clusters(resolution=bad)
    with pytest.raises(SettingError, match="one of them"):
        model.clusters(2, resolution=1.0)
    with pytest.raises(SettingError, match='"component" or "cluster"'):
        model.predict(np.zeros((1, 2)), level="clusters")
    with pytest.raises(SettingError, match='level="cluster"'):
        model.predict(np.zeros((1, 2)), n_clusters=2)
    with pytest.raises(SettingError, match='level="cluster"'):
        model.predict(np.zeros((1, 2)), resolution=2.0)


def test_batch_fits_predict_clusters_also_where_a_component_without_points_is_best() -> None:
    """Far out the prior predictive of an unused component is the most probable. It is in no cluster."""
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=300)
    x = rng.normal(size=(300, 2)) + np.array([(0, 0), (9, 0), (0, 60)])[z]
    fit = DPMixture(method="tsb", truncation=8, random_state=0).fit(x)
    far = np.array([[500.0, -900.0]])
    assert fit.predict(far)[0] not in fit.hierarchy_.ids
    assert fit.predict(far, level="cluster")[0] in {cluster.id for cluster in fit.clusters().clusters}
    two = fit.predict(x, level="cluster", n_clusters=2)
    assert adjusted_rand_score(z == 2, two) == 1.0
    assert_array_equal(two, fit.clusters(2).of_components(fit.labels_))
    with pytest.raises(SettingError, match='level="cluster"'):
        fit.predict(x, n_clusters=2)
    with pytest.raises(UnknownComponentError, match="component 7 is in no cluster"):
        fit.clusters().of_components(np.array([0, 7]))


def test_counts_have_a_tree_and_a_number_but_no_resolution() -> None:
    model = StreamingDPMixture("poisson", refinement=None, warmup_points=100).fit(
        ROWS["counts"](np.random.default_rng(1))
    )
    k = len(model.component_ids_)
    assert k >= 2
    assert (model.clusters().rule, model.clusters().n_clusters) == ("components", k)
    with pytest.raises(SettingError, match="n_clusters"):
        model.clusters(resolution=1.0)


def test_the_misfit_is_that_of_normal_clusters_with_common_variances(model: StreamingDPMixture) -> None:
    tree = model.hierarchy_
    total = tree.masses.sum()
    variances = np.einsum("kdd->kd", model.covariances_)
    expected = []
    for k in range(1, len(tree.ids) + 1):
        label = cut(tree, k).cluster_of
        scatter, entropy = tree.masses @ variances, 0.0
        for one in np.unique(label):
            mass, mean = tree.masses[label == one], model.means_[label == one]
            scatter = scatter + mass @ (mean - np.average(mean, axis=0, weights=mass)) ** 2
            entropy -= mass.sum() * np.log(mass.sum() / total)
        expected.append(0.5 * total * np.log(scatter / total).sum() + entropy)
    assert_allclose(tree.misfit, expected, rtol=1e-9)
    assert tree.cost == pytest.approx(1.5 * np.log(total))


def test_a_higher_resolution_gives_more_clusters(model: StreamingDPMixture) -> None:
    numbers = [model.clusters(resolution=r).n_clusters for r in (1e-6, 0.01, 0.1, 1.0, 10.0, 1e6)]
    assert numbers == sorted(numbers)
    assert numbers[0] == 1
    assert numbers[-1] == len(model.component_ids_)
    best = int(np.argmin(model.hierarchy_.misfit + 3.0 * model.hierarchy_.cost * np.arange(1, 1 + numbers[-1])))
    assert model.clusters().n_clusters == model.clusters(resolution=1.0).n_clusters == best + 1
    assert model.clusters().rule == "penalty"


def test_a_mixture_without_components_has_no_clusters() -> None:
    none: Clustering = cut(tree_of(np.zeros((0, 4)), np.zeros(0, int), [], np.zeros(0, int)))
    assert none.clusters == ()
    assert none.n_clusters == 0


def test_one_component_is_one_cluster(stream: SimpleNamespace) -> None:
    model = StreamingDPMixture(refinement=None).fit(np.random.default_rng(0).normal(size=(40, 2)))
    if len(model.component_ids_) == 1:
        assert model.clusters(1).clusters[0].components == (int(model.component_ids_[0]),)
