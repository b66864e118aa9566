"""What the tests of the samplers share: a prior of each predictive cache, and every partition of a few points."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shoal.mixture.partition
from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart, SubspaceGaussian
from shoal.points.arrays import Array, IntArray

FORMS = ("gaussian", "diagonal", "spherical", "shared")
"""One name for each predictive cache."""


def make_prior(form: str, d: int) -> AnyFamily:
    """A prior of each form, with nothing about it at zero or one."""
    rng = np.random.default_rng(d)
    mean = 0.3 * rng.normal(size=d)
    root = 0.3 * rng.normal(size=(2, d, d)) / np.sqrt(d) + np.eye(d)
    covariances = root @ root.transpose(0, 2, 1)
    match form:
        case "gaussian":
            return NormalInverseWishart(mean, 0.2, d + 1.5, 0.7 * covariances[0])
        case "diagonal":
            return NormalInverseGamma(mean, 0.2, 1.7, 0.5 + 0.2 * rng.random(d))
        case "spherical":
            return KnownCovariance(mean, 4.0, 0.5)
        case "subspace":
            rank = (d + 1) // 2
            directions = np.linalg.qr(rng.normal(size=(d, rank)))[0]
            scale = 0.7 * covariances[0][:rank, :rank]
            return SubspaceGaussian(0.2 * rng.normal(size=d), directions, 0.6, mean[:rank], 0.2, rank + 1.5, scale)
        case _:
            return KnownCovariance(mean, 4.0 * covariances[0], 0.5 * covariances[1])


def points(n: int, d: int, seed: int = 0) -> Array:
    """n points around three centres that overlap, in random order."""
    rng = np.random.default_rng([seed, n, d])
    return 1.2 * rng.normal(size=(3, d))[rng.integers(3, size=n)] + 0.7 * rng.normal(size=(n, d))


def partitions(n: int) -> IntArray:
    """Every partition of n points (P, n), labels in order of appearance."""

    def extend(labels: list[int]) -> Iterator[list[int]]:
        if len(labels) == n:
            yield labels
            return
        for label in range(max(labels, default=-1) + 2):
            yield from extend([*labels, label])

    return np.array(list(extend([])))


def in_order_of_appearance(labels: Any) -> tuple[int, ...]:
    """The partition's one spelling among those of `partitions`."""
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(int(label), len(seen)) for label in labels)


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    """Each predictive cache in turn."""
    return str(request.param)


@pytest.fixture
def samplers() -> SimpleNamespace:
    """The helpers above: test modules cannot import one another."""
    return SimpleNamespace(
        prior=make_prior, points=points, partitions=partitions, spelled=in_order_of_appearance, forms=FORMS
    )


@pytest.fixture
def remember_blocks(monkeypatch: pytest.MonkeyPatch) -> Callable[[AnyFamily, Any], None]:
    """`remember_blocks(family, x)` has the statistics of each block of the points x worked out once.

    A long chain over a few points meets the same few blocks again and again.
    """
    work_out = shoal.mixture.partition.block_stats

    def remember(family: AnyFamily, x: Any) -> None:
        known: dict[bytes, Any] = {}

        def block_stats(of: AnyFamily, points: Any, rows: IntArray) -> Any:
            if of is not family or points is not x:
                return work_out(of, points, rows)
            key = rows.tobytes()
            if key not in known:
                known[key] = work_out(of, points, rows)
            return known[key]

        monkeypatch.setattr(shoal.mixture.partition, "block_stats", block_stats)

    return remember
