"""The automatic prior: standardisation and hyperparameters from a buffer of rows, chosen by how well they predict it.

One pass never divides a component, so its result depends on the prior: on how large a cluster is against the whole
(`variance`) and on how firmly that is believed (`dof`). Both are searched for, by how well a pass under them predicts
each row from the rows before (`trials`).

A prior is spherical, but features differ in how well they separate clusters. So the choice is made in three scalings of
the features and the best kept: by the deviation of each feature; by its deviation within the clusters that the feature
alone shows; and by its deviation within the components that the better of these two has found.

A constant column takes no part in the choice: it would look like a feature in which all clusters are as wide as the
whole. It is scaled so that its noise is as wide as the prior expects of components.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from shoal.errors import counted
from shoal.families import FAMILIES, AnyFamily
from shoal.families.base import CandidatePriors, LocatedPrior
from shoal.families.capabilities import ColumnBlock, blocks_of
from shoal.mixture import StreamSettings
from shoal.points.arrays import Array, IntArray
from shoal.points.contamination import absurd_values
from shoal.points.rows import Points
from shoal.sequential.prior.jitter import CONSTANT, jitter_deviations, jittered, varying_columns
from shoal.sequential.prior.race import best_of, n_scored
from shoal.sequential.prior.univariate_kernel import Clusters, UnivariateRules, cluster_columns

FEWEST_ROWS = 32
"""Below so many rows there is nothing to choose by: the prior is the default."""

LARGEST_OWN_SEARCH = 32
"""Most features for which the search runs the stream's own family. Beyond, its `stand_in` is searched: the cost of a
full covariance grows with the square of the features."""

MOST_ROWS = 4_000
"""The search uses at most so many rows, evenly spaced over the buffer."""

ONE_COMPONENT = 0.99
"""Share of the rows from which on they are taken as one component."""

MEANS_OF_ONE = 10.0
"""Deviation of the means of components, in deviations within, where the rows are of one component. The spread of the
rows says then nothing of it. With the spread of the rows, a stream that began in one of six clusters ended as two
components in one pass, however far apart the clusters were."""

LEAST_WITHIN = 1 / 64
"""Least deviation within clusters that a feature is scaled by, as a fraction of its whole deviation."""


class AutoPrior(NamedTuple):
    """A prior for points (x - location) / scale, x being jittered."""

    location: Array  # (D,)
    scale: Array  # (D,) > 0
    jitter: Array  # (D,) >= 0
    prior: AnyFamily
    findings: tuple[str, ...] = ()
    """What was found in the rows that a prior made in the plain way would have been wrong for, in words."""


class _Grid(NamedTuple):
    """Choices to try: variances within a component, in the coordinates at hand, and degrees of freedom."""

    variances: tuple[float, ...]
    dofs: tuple[float, ...]


_DEFAULT = (0.1, 32.0)
_FIRST = _Grid(tuple(2.0**-j for j in range(1, 7)), (32.0, 64.0, 128.0, 256.0))
_LAST = _Grid(tuple(2.0 ** (j / 2) for j in range(-4, 3)), (32.0, 64.0, 128.0, 256.0))
_COARSE_FIRST = _Grid(_FIRST.variances, (32.0, 128.0))
_COARSE_LAST = _Grid((0.25, 0.5, 1.0), (32.0, 128.0))
_UNIVARIATE = _Grid(tuple(4.0**-j for j in range(6)), (32.0,))
_LEAST_BETWEEN = 1 / 20


class _Found(NamedTuple):
    """The best of a grid."""

    score: float
    labels: IntArray
    variance: float
    dof: float


class _Scaled(NamedTuple):
    """The best trial in one scaling of the features."""

    score: float
    """As the trial's, in standardised coordinates."""
    within: Array  # (D,) what standardised features are divided by
    trial: _Found


def choose_prior(rows: Points, settings: StreamSettings, *, thorough: bool = True) -> AutoPrior:
    """Standardisation and prior of the stream's family from raw rows (N, D), N >= 1; a function of the arguments alone.

    `thorough` searches finer grids; else coarse ones, for fits that are soon redone. A family whose domain is not
    located names its candidates itself, for the rows as they are. Of too few rows the prior is the default.
    """
    blocks = blocks_of(FAMILIES[settings.family])
    if blocks:
        return _of_blocks(rows, settings, blocks, thorough)
    if not settings.domain.located:
        d, n_rows, n_absurd = settings.n_features, len(rows), 0
        if settings.domain.unbounded:
            rows, n_absurd = without_absurd(np.asarray(rows))
        prior = _best_candidate(rows, settings, thorough)
        return AutoPrior(np.zeros(d), np.ones(d), np.zeros(d), prior, _findings(n_rows, n_absurd, 0, d, False))
    return _located(np.asarray(rows), settings, thorough)


def _of_blocks(rows: Points, settings: StreamSettings, blocks: tuple[ColumnBlock, ...], thorough: bool) -> AutoPrior:
    """Of a product: the choice for each block by its own columns."""
    d = settings.n_features
    location, scale, jitter = np.zeros(d), np.ones(d), np.zeros(d)
    priors, findings = [], []
    for block in blocks:
        own = replace(
            settings,
            family=block.kind.name,
            n_features=len(block.columns),
            prior="auto",
            feature_names=None,
            level_names=None,
        )
        chosen = choose_prior(own.domain.convert(np.asarray(rows)[:, block.columns]), own, thorough=thorough)
        location[block.columns], scale[block.columns], jitter[block.columns] = chosen[:3]
        priors.append(chosen.prior)
        findings += [f"columns of {block.kind.name}: {finding}" for finding in chosen.findings]
    prior = cast(AnyFamily, cast(Any, FAMILIES[settings.family])(*priors))
    return AutoPrior(location, scale, jitter, prior, tuple(findings))


def _best_candidate(rows: Points, settings: StreamSettings, thorough: bool) -> AnyFamily:
    """Of the family's candidates the one that predicts the rows best; of too few rows, the middle one."""
    candidates = cast(type[CandidatePriors], FAMILIES[settings.family]).candidate_priors(rows, thorough)
    if len(rows) < FEWEST_ROWS:
        return candidates[len(candidates) // 2]
    return candidates[best_of(settings, candidates, rows[:: -(-len(rows) // MOST_ROWS)])[0]]


def _located(rows: Array, settings: StreamSettings, thorough: bool) -> AutoPrior:
    """Standardisation and prior of a family of points anywhere in space."""
    n_rows = len(rows)
    rows, n_absurd = without_absurd(rows)
    d, varying = rows.shape[1], varying_columns(rows)
    n_rising = int(np.count_nonzero((np.diff(rows, axis=0) > 0.0).all(axis=0)))
    n_constant = int(np.count_nonzero((rows == rows[:1]).all(axis=0)))
    jitter = jitter_deviations(rows)
    rows = np.asarray(jittered(rows, jitter, 0))
    location, scale = standardisation(rows)
    if len(rows) < FEWEST_ROWS:
        return AutoPrior(location, scale, jitter, located_prior(settings.family, d, 1.0, *_DEFAULT))
    z = (rows[:: -(-len(rows) // MOST_ROWS)] - location) / scale
    if len(varying) < d:
        z = z.take(varying, axis=1)
    first, last = (_FIRST, _LAST) if thorough else (_COARSE_FIRST, _COARSE_LAST)
    best = _scaled(settings, z, np.ones(len(varying)), first)
    if thorough or len(varying) <= LARGEST_OWN_SEARCH:
        best = _better(best, _scaled(settings, z, univariate_deviation(z, settings), last))
    best = _better(best, _scaled(settings, z, within_deviation(z, best.trial.labels), last))
    total, alone = _total(z / best.within), _one_component(best.trial.labels)
    if alone:
        total = max(total, MEANS_OF_ONE**2 * best.trial.variance)
    prior = located_prior(settings.family, d, total, best.trial.variance, best.trial.dof)
    within = np.full(d, best.trial.variance**-0.5)  # a constant column has the prior's variance within, and no other
    within[varying] = best.within
    findings = _findings(n_rows, n_absurd, n_constant, d, alone, n_rising)
    return AutoPrior(location, scale * within, jitter, prior, findings)


def _one_component(labels: IntArray) -> bool:
    """Whether nearly all rows are of one component, so that nothing is known of how far apart components are."""
    return int(np.bincount(labels).max()) >= ONE_COMPONENT * labels.size


def _findings(n_rows: int, n_absurd: int, n_constant: int, d: int, alone: bool, n_rising: int = 0) -> tuple[str, ...]:
    """What was found in `n_rows` rows of d features, in words."""
    found = []
    if n_absurd:
        found.append(f"{n_absurd} of {n_rows} rows hold extreme values and were set aside when the scale was estimated")
    if n_constant:
        found.append(f"{counted(n_constant, 'feature')} of {d} did not vary; their scale is a guess")
    if n_rising:
        rise = f"{counted(n_rising, 'feature')} of {d} rose with every row, as ids and times do"
        found.append(f"{rise}; leave these out, and shuffle sorted rows")
    if alone:
        found.append("nearly all rows are of one component; others may lie far from it")
    return tuple(found)


def without_absurd(rows: Array) -> tuple[Array, int]:
    """The rows of (N, D) that hold no absurd value, and how many others there are.

    Where half of the rows or more hold one, all rows, each absurd value replaced by the median of its feature.
    """
    if len(rows) < FEWEST_ROWS:
        return rows, 0
    absurd = absurd_values(rows)
    tainted = absurd.any(axis=1)
    n_tainted = int(np.count_nonzero(tainted))
    if n_tainted == 0:
        return rows, 0
    if 2 * n_tainted < len(rows):
        return rows[~tainted], n_tainted
    return np.where(absurd, np.median(rows, axis=0), rows), n_tainted


def search_family(family: str) -> str:
    """Name of the family that is searched in place of one of many features, and for single features."""
    return cast(type[LocatedPrior], FAMILIES[family]).stand_in


def standardisation(rows: Array) -> tuple[Array, Array]:
    """Mean and deviation (D,) of the columns of rows (N, D); of equal values the mean is the value itself, not rounded.

    A column that is constant even so (all are, or the rows are few) is given the median deviation of the others, or 1.
    """
    location = np.where((rows == rows[0]).all(axis=0), rows[0], rows.mean(axis=0))
    scale = (rows - location).std(axis=0)
    varies = scale > CONSTANT * np.abs(rows).max(axis=0)
    scale[~varies] = np.median(scale[varies]) if varies.any() else 1.0
    return location, scale


def within_deviation(z: Array, labels: IntArray) -> Array:
    """Pooled deviation within components (D,) of standardised rows z (N, D), in [1/64, 1]; 1 for a constant column."""
    counts = np.bincount(labels)
    means = np.stack([np.bincount(labels, column) for column in z.T], axis=1) / np.maximum(counts, 1)[:, None]
    variance = ((z - means[labels]) ** 2).sum(axis=0) / max(1, len(z) - np.count_nonzero(counts))
    return _bounded_deviation(z, variance)


def univariate_deviation(z: Array, settings: StreamSettings) -> Array:
    """Deviation (D,) of each standardised feature within the clusters that it shows by itself, in [1/64, 1].

    1 for a feature without any. The search is that over all features, with fewer choices.
    """
    labels, d = np.empty((z.shape[1], len(z)), dtype=np.int64), z.shape[1]
    cluster_columns(*univariate_arguments(z, settings, labels))
    own = labels + np.arange(d)[:, None] * (labels.max() + 1)  # no two features share a cluster
    counts = np.bincount(own.ravel(), minlength=d * (labels.max() + 1))
    means = np.bincount(own.ravel(), z.T.ravel(), len(counts)) / np.maximum(counts, 1)
    n_clusters = np.count_nonzero(counts.reshape(d, -1), axis=1)
    variance = ((z.T - means[own]) ** 2).sum(axis=1) / np.maximum(1, len(z) - n_clusters)
    return _bounded_deviation(z, variance)


def univariate_arguments(z: Array, settings: StreamSettings, labels: IntArray) -> tuple[Any, ...]:
    """Arguments of the kernel `cluster_columns` for rows z (N, D) and the labels (D, N) that it writes."""
    total = z.var(axis=0).round(12)
    total[total == 0.0] = 1.0
    variances = np.array(_UNIVARIATE.variances)
    strength = variances / np.maximum(total[:, None] - variances, _LEAST_BETWEEN * total[:, None])
    (dof,) = _UNIVARIATE.dofs
    most = min(settings.max_components, max(8, len(z) // 4))
    rules = UnivariateRules(
        float(settings.concentration), float(settings.birth_threshold), float(settings.floor), 1.0 + 0.5 * dof
    )
    clusters = Clusters(*np.empty((len(Clusters._fields), len(variances), most + 1)))
    return np.ascontiguousarray(z.T), strength, 0.5 * dof * variances, rules, clusters, labels


def _bounded_deviation(z: Array, variance: Array) -> Array:
    """The roots (D,) of variances within clusters, in [1/64, 1]; 1 for a constant column of z (N, D)."""
    varies = z.var(axis=0) >= 0.5  # a standardised column has variance 1, a constant one that of rounding
    return np.asarray(np.sqrt(np.where(varies, np.clip(variance, LEAST_WITHIN**2, 1.0), 1.0)))


@lru_cache(maxsize=256)
def located_prior(family: str, d: int, total: float, variance: float, dof: float) -> AnyFamily:
    """The prior whose components have `variance` on average, their means spread over what that leaves of `total`."""
    strength = variance / max(total - variance, _LEAST_BETWEEN * total)
    weak = cast(LocatedPrior, FAMILIES[family]).weak
    return weak(d, variance / _expected_variance(family, d, dof), mean_strength=strength, dof=dof)


@lru_cache(maxsize=256)
def _expected_variance(family: str, d: int, dof: float) -> float:
    """Of a component's points about its mean, under the weak prior of within variance 1."""
    unit = cast(LocatedPrior, FAMILIES[family]).weak(d, 1.0, mean_strength=1.0, dof=dof)
    return 0.5 * float(unit.predictive_variance(unit.posterior(unit.empty_stats(1)))[0, 0])  # the mean's is as much


def _total(z: Array) -> float:
    """Mean variance of the features of z, without the rounding of its sum; 1 where all are constant."""
    return round(float(z.var(axis=0).mean()), 12) or 1.0


def _scaled(settings: StreamSettings, z: Array, within: Array, grid: _Grid) -> _Scaled:
    """The best choice of a grid for standardised rows z (N, D) divided by `within` (D,)."""
    family = settings.family if z.shape[1] <= LARGEST_OWN_SEARCH else search_family(settings.family)
    trial = _search(settings, family, z / within, grid)
    return _Scaled(trial.score - n_scored(len(z)) * float(np.log(within).sum()), within, trial)


def _better(a: _Scaled, b: _Scaled) -> _Scaled:
    return b if b.score > a.score else a


def _search(settings: StreamSettings, family: str, z: Array, grid: _Grid) -> _Found:
    """The best choice of a grid."""
    total, d = _total(z), z.shape[1]
    choices = [(variance, dof) for dof in grid.dofs for variance in grid.variances]
    priors = {
        located_prior(family, d, total, *choice): choice for choice in choices
    }  # equal ones once: dof may say nothing
    best, trial = best_of(settings, list(priors), z)
    return _Found(*trial, *list(priors.values())[best])
