"""Trees of data that make arithmetic hard: each has one, finite and valid, and the clusters hold all mass."""

import warnings

import numpy as np
import pytest
from scipy.cluster.hierarchy import is_valid_linkage

from shoal import StreamingDPMixture


def hard_data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(12)
    plain = rng.normal(size=(400, 3)) + 9.0 * rng.integers(3, size=(400, 1))
    constant = plain.copy()
    constant[:, 1] = 5.0
    far = plain.copy()
    far[7] = 1e30
    return {
        "constant feature": constant,
        "all equal": np.full((300, 3), 2.0),
        "few distinct rows": plain[rng.integers(4, size=400)],
        "one absurd row": far,
        "huge": plain * 1e120,
        "tiny": plain * 1e-120,
        "unequal units": plain * [1e-9, 1.0, 1e9],
        "copies of a feature": plain[:, [0, 0, 1]],
        "whole numbers": np.round(plain),
        "one row": plain[:1],
        "two rows": plain[:2],
        "far from zero": plain + 1e8,
    }


@pytest.mark.parametrize("family", ["gaussian", "diagonal", "known_covariance"])
@pytest.mark.parametrize("name", hard_data())
@pytest.mark.short_form("*-gaussian", "huge-*")
def test_every_mixture_has_a_tree_and_clusters(name: str, family: str) -> None:
    model = StreamingDPMixture(family, refinement=None, warmup_points=200).fit(hard_data()[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree, found = model.hierarchy_, model.clusters()
    assert np.isfinite(tree.linkage).all()
    assert np.isfinite(tree.misfit).all()
    assert len(tree.linkage) == 0 or is_valid_linkage(tree.linkage)
    assert sum(cluster.mass for cluster in found.clusters) == pytest.approx(model.masses_.sum())
    assert sorted(one for cluster in found.clusters for one in cluster.components) == model.component_ids_.tolist()
