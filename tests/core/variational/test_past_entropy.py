"""The entropy of points that are gone, from what was recorded of it by pairs."""

import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.special import xlogy

from shoal.inference import entropy_below
from shoal.mixture import Past
from shoal.variational import fit_vdp

from .vdp_cases import FAMILIES, X2


def pairs_of(resp):
    k = resp.shape[1]
    out = np.zeros((k, k))
    for a in range(k):
        for b in range(k):
            if a != b:
                s = resp[:, a] + resp[:, b]
                out[a, b] = -(xlogy(resp[:, a], resp[:, a] / s) + xlogy(resp[:, b], resp[:, b] / s)).sum()
    return out


def test_pairs_give_a_lower_bound_exact_for_two():
    rng = np.random.default_rng(0)
    for k in (2, 3, 6):
        for _ in range(20):
            resp = rng.dirichlet(np.full(k, 0.4), size=10)
            entropy = -xlogy(resp, resp).sum()
            below = entropy_below(pairs_of(resp))
            assert below <= entropy + 1e-12
            assert below > 0.2 * entropy
            if k == 2:
                assert below == pytest.approx(entropy)


def test_of_all_trees_the_heaviest_counts():
    rng = np.random.default_rng(1)
    for k in (1, 2, 3, 9, 30):
        pairs = rng.exponential(size=(k, k)) * (rng.random((k, k)) < 0.4)  # some components share nothing
        pairs = np.triu(pairs, 1) + np.triu(pairs, 1).T
        assert entropy_below(pairs) == pytest.approx(-minimum_spanning_tree(-pairs).sum(), abs=1e-12)


def test_a_soft_past_of_two_counts_like_its_points():
    family, rng = FAMILIES["gaussian"], np.random.default_rng(3)
    old, soft = rng.normal(size=(6, 2)), rng.dirichlet([1.0, 1.0], size=6)
    resp = rng.dirichlet([1.0, 1.0], size=len(X2))
    past = Past(family.suffstats(old, soft), pairs_of(soft))
    some = fit_vdp(family, X2, concentration=0.7, resp_init=resp, max_iter=0, past=past, rng=rng)
    every = fit_vdp(
        family, np.vstack([X2, old]), concentration=0.7, resp_init=np.vstack([resp, soft]), max_iter=0, rng=rng
    )
    assert some.elbo == pytest.approx(every.elbo, abs=1e-10)
