"""Telling features: those in which a component differs most from the rest of its mixture."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.families import AnyFamily
from shoal.families.feature_contrast import FeatureValues, contrast, feature_values
from shoal.points.arrays import Array, IntArray
from shoal.points.levels import LevelNames

MOST_TELLING = 5
"""Largest number of features that are told of a component."""
_LEAST_OF_LEVELS = 1e-3
"""Contrast in nats, up to which shares of a level count as equal. Those of a level that no point has differ by less:
they come from the prior, and are smaller in a heavier component."""
_BLOCK_NUMBERS = 1 << 22


class TellingFeature(NamedTuple):
    """A feature of a component, and how it is in the rest of the mixture."""

    feature: str | int
    """Its name, or its number from 0 where features have no names."""
    value: float
    """Its mean in the component, in the units of the data. Of a category: the share of a level."""
    rest: float
    """The same of all other components together, weighted by their masses."""
    level: int | str | None = None
    """The level, where the features are categories: its name, or its number where it has none."""


class Moments(NamedTuple):
    """What is compared, of K components."""

    stats: Any
    masses: Array  # (K,)
    means: Array  # (K, D) of the posterior predictives
    variances: Array  # (K, D)


def telling_features(
    family: AnyFamily,
    moments: Moments,
    names: Sequence[str] | None,
    rows: IntArray,
    n: int = MOST_TELLING,
    level_names: LevelNames | None = None,
) -> list[list[TellingFeature]]:
    """The features in which each of the components `rows` (R,) differs most from the rest, the most telling first.

    At most `n` each; fewer where fewer differ, and none where there is no rest. Equal ones are in the order of the
    features. `level_names`: names of the levels of categories, by column.
    """
    values = feature_values(family, moments.stats, moments.means)
    known = np.isfinite(values.value).all(axis=1) & (moments.masses > 0.0)
    mass = np.where(known, moments.masses, 0.0)
    total = float(mass.sum())
    if np.count_nonzero(known) < 2 or not total > 0.0:
        return [[] for _ in rows]
    table = np.where(known[:, None], values.value, 0.0)
    average = (mass / total) @ table
    deviation = _pooled_deviation(moments)[values.feature]
    is_level = np.zeros(table.shape[1], dtype=bool) if values.level is None else values.level >= 0
    least = np.where(is_level, _LEAST_OF_LEVELS, 0.0)
    found: list[list[TellingFeature]] = []
    step = max(1, _BLOCK_NUMBERS // table.shape[1])
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        share = mass[some] / total
        apart = known[some] & (share < 1.0)
        ratio = np.where(apart, share / np.where(apart, 1.0 - share, 1.0), 0.0)
        rest = average - ratio[:, None] * (table[some] - average)  # without the digits that a difference of sums loses
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.nan_to_num(contrast(family, table[some], rest, deviation), nan=0.0, posinf=np.finfo(float).max)
        for i, row in enumerate(some):
            best = np.lexsort((np.arange(score.shape[1]), -score[i]))[:n] if apart[i] else ()
            found.append(
                [
                    TellingFeature(
                        int(values.feature[r]) if names is None else names[values.feature[r]],
                        float(table[row, r]),
                        float(rest[i, r]),
                        _level_of(values, r, level_names or {}),
                    )
                    for r in best
                    if score[i, r] > least[r]
                ]
            )
    return found


def _level_of(values: FeatureValues, r: int, level_names: LevelNames) -> int | str | None:
    """The level whose share a value is, by its name where it has one."""
    if values.level is None or values.level[r] < 0:
        return None
    names, level = level_names.get(int(values.feature[r]), ()), int(values.level[r])
    return names[level] if level < len(names) else level


def _pooled_deviation(moments: Moments) -> Array:
    """Square root (D,) of the variance within components, averaged by mass over those that have a finite one."""
    finite = np.isfinite(moments.variances)
    weight = np.where(finite, moments.masses[:, None], 0.0)
    sums = weight.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = np.where(finite, weight * moments.variances, 0.0).sum(axis=0) / sums
    return np.where(sums > 0.0, np.sqrt(pooled), np.inf)
