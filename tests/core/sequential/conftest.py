"""What the tests of the one-pass kernel share: families of each predictive cache, data, and a driver of the kernel."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from shoal.families.diagonal import NormalInverseGamma
from shoal.families.gaussian import NormalInverseWishart
from shoal.families.known_covariance import KnownCovariance
from shoal.families.student import MultivariateStudent
from shoal.points.arrays import Array, IntArray
from shoal.sequential.one_pass import one_pass_inplace
from shoal.sequential.passes import Components, PassRules, Piece, new_components

FORMS = ("gaussian", "student", "diagonal", "spherical", "shared")
"""One name for each predictive cache."""


class Pass(NamedTuple):
    """The kernel's arrays after a pass, cut to the rows in use, and what it reported."""

    components: Components
    labels: IntArray
    log_density: Array
    n_refused: int
    calls: int

    @property
    def n_components(self) -> int:
        return len(self.components.born_at)


def make_prior(form: str, d: int) -> Any:
    """A prior of each form, with nothing about it at zero or one."""
    rng = np.random.default_rng(d)
    mean = 0.3 * rng.normal(size=d)
    root = 0.3 * rng.normal(size=(2, d, d)) / np.sqrt(d) + np.eye(d)
    covariances = root @ root.transpose(0, 2, 1)
    match form:
        case "gaussian":
            return NormalInverseWishart(mean, 0.05, d + 1.5, 0.7 * covariances[0])
        case "student":
            return MultivariateStudent(mean, 0.05, d + 2.5, 0.7 * covariances[0], 4.0)
        case "diagonal":
            return NormalInverseGamma(mean, 0.05, 1.7, 0.3 + 0.2 * rng.random(d))
        case "spherical":
            return KnownCovariance(mean, 4.0, 0.25)
        case _:
            return KnownCovariance(mean, 4.0 * covariances[0], 0.25 * covariances[1])


def clusters(n: int, d: int, seed: int, n_clusters: int = 6, spread: float = 1.2) -> Array:
    """n points around a few centres close enough to share responsibilities, in random order."""
    rng = np.random.default_rng(seed)
    centres = spread * rng.normal(size=(n_clusters, d))
    return centres[rng.integers(n_clusters, size=n)] + 0.5 * rng.normal(size=(n, d))


def rules(pair_rule: Any = "entropy", floor: float = 1e-3, max_components: int = 60, **others: float) -> PassRules:
    return PassRules(
        others.get("concentration", 1.0), others.get("birth_threshold", 0.5), floor, pair_rule, max_components
    )


def drive(
    prior: Any,
    rules: PassRules,
    x: Array,
    cuts: Iterable[int] = (),
    rows: int | None = None,
    start: Components | None = None,
    seen: int = 0,
    engine: Any = one_pass_inplace,
) -> Pass:
    """Run the kernel (or another `engine`) over x, from an empty mixture or from `start` with `seen` points, cut into
    calls at rows `cuts`.

    Arrays begin with `rows` rows (default: room for all) and grow by one whenever they are full.
    """
    rows = rules.max_components + 1 if rows is None else rows
    components = new_components(prior, rows, rules.pair_rule) if start is None else start
    n = 0 if start is None else len(start.born_at)
    labels, log_density = np.full(len(x), -1), np.full(len(x), np.nan)
    refused = calls = i = 0
    for stop in [*cuts, len(x)]:
        while i < stop:
            components = _with_rows(components, max(rows, n + 1))
            piece = Piece(x[i:stop], labels[i:stop], log_density[i:stop])
            result = engine(prior, rules, components, n, seen + i, piece)
            calls += 1
            n, i, refused = result.n_components, i + result.n_done, refused + result.n_refused
    return Pass(_with_rows(components, n), labels, log_density, refused, calls)


def _with_rows(components: Components, rows: int) -> Components:
    """A copy with that many rows; new ones hold NaN, as nothing may be read from rows not in use."""

    def resized(array: Any) -> Any:
        fill = np.nan if array.dtype == np.float64 else -7
        longer = np.full((rows, *array.shape[1:]), fill, dtype=array.dtype)
        longer[: len(array)] = array[:rows]
        return longer

    if len(components.born_at) == rows:
        return components
    stats, cache = (type(group)(*map(resized, group)) for group in components[:2])
    pairs = components.pairs
    if pairs.size:
        pairs = resized(resized(pairs).T.copy()).T.copy()
        pairs[np.isnan(pairs)] = -1.0
    return Components(stats, cache, resized(components.born_at), resized(components.last_seen_at), pairs)


def same_bits(a: Pass, b: Pass) -> bool:
    """Whether two passes ended in the same bits, reports included."""
    left, right = [[*p.components.stats, *p.components.cache, *p.components[2:5], *p[1:3]] for p in (a, b)]
    return all(u.tobytes() == v.tobytes() and u.shape == v.shape for u, v in zip(left, right, strict=True))


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    """Each predictive cache in turn."""
    return str(request.param)


@pytest.fixture
def sva() -> SimpleNamespace:
    """The helpers above, as `sva.drive(...)` and so on: test modules cannot import one another."""
    return SimpleNamespace(drive=drive, rules=rules, clusters=clusters, prior=make_prior, same_bits=same_bits)
