"""States made from stored responsibilities, so that every running sum can be checked against what it stands for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import xlogy

from shoal.families import FAMILIES, KnownCovariance, MultivariateStudent, NormalInverseGamma, NormalInverseWishart
from shoal.families.predictive_cache import refresh
from shoal.mixture import MixtureState, StreamSettings, empty_lineage, grow, next_decay, with_new_window

Array = np.ndarray
MakeState = Callable[..., MixtureState]


def prior_of(name: str, d: int) -> Any:
    mean = np.linspace(-0.5, 0.5, d)
    return {
        "gaussian": lambda: NormalInverseWishart(mean, 0.1, d + 2.0, 0.8 * np.eye(d) + 0.1),
        "student": lambda: MultivariateStudent(mean, 0.1, d + 3.0, 0.8 * np.eye(d) + 0.1, 5.0),
        "diagonal": lambda: NormalInverseGamma(mean, 0.1, 1.5, 0.6),
        "known_covariance": lambda: KnownCovariance(mean, 9.0, 0.7),
    }[name]()


def pair_sums(resp: Array, rule: str) -> Array:
    """E or M (K, K) by their definitions, from responsibilities (N, K). Both are zero where two share no point."""
    k = resp.shape[1]
    sums = np.zeros((k, k))
    held = (resp > 0.0).astype(np.float64)
    shared = held.T @ held > 0.0
    for a in range(k):
        for b in np.flatnonzero(shared[a, :a]):
            if rule == "entropy":
                both = resp[:, a] + resp[:, b]
                sums[a, b] = np.sum(xlogy(both, both) - xlogy(resp[:, a], resp[:, a]) - xlogy(resp[:, b], resp[:, b]))
            if rule == "overlap":
                sums[a, b] = np.minimum(resp[:, a], resp[:, b]).sum()
            sums[b, a] = sums[a, b] = max(sums[a, b], 0.0)
    return sums


LOCATED = sorted(name for name, family in FAMILIES.items() if family.domain.located)
"""Families of points anywhere in space, as those of these tests are."""


@pytest.fixture(params=LOCATED)
def family_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_prior() -> Callable[[str, int], Any]:
    return prior_of


@pytest.fixture
def brute_pairs() -> Callable[[Array, str], Array]:
    return pair_sums


@pytest.fixture
def make_state() -> MakeState:
    def make(
        family: str, x: Array, resp: Array, method: str = "default", extra_rows: int = 3, **settings: Any
    ) -> MixtureState:
        (n, d), k = x.shape, resp.shape[1]
        prior = prior_of(family, d)
        chosen = StreamSettings(family=family, n_features=d, prior=prior, method=method, **settings)  # type: ignore[arg-type]
        stats = prior.suffstats(x, resp)
        rule = chosen.pair_rule
        state = MixtureState(
            settings=chosen,
            prior=prior,
            frozen=True,
            location=np.zeros(d),
            scale=np.ones(d),
            jitter=np.zeros(d),
            stats=stats,
            cache=refresh(prior, stats),
            ids=np.arange(10, 10 + k),
            born_at=np.minimum(np.arange(1, k + 1), n),
            last_seen_at=np.full(k, n),
            pairs=np.zeros((0, 0)) if rule == "none" else pair_sums(resp, rule),
            n_components=k,
            next_id=10 + k,
            points_seen=n,
            decayed_count=float(resp.sum()),
            pruned_mass=0.0,
            at_capacity=False,
            births_refused=0,
            next_check=4096,
            next_decay=next_decay(n, chosen.half_life),
            next_refit=-1,
            buffer=np.zeros((0, d)),
            lineage=empty_lineage(),
        )
        return grow(with_new_window(state), k + extra_rows)

    return make
