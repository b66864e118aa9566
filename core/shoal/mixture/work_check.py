"""Check of a predictive cache that was read from bytes against its statistics."""

from typing import Any, cast

import numpy as np

from shoal.families import AnyFamily
from shoal.families.predictive_cache import AnyWork, CacheScales, UpdatedByRankOne, refresh

DRIFT = 1e-6
"""Relative drift allowed between two renewals of the cache (at most 4,096 points): 10^-14 is usual."""

_ADDITIVE = ("mean_strength", "dof", "shape", "precision", "half_precision")
"""Fields that only add up responsibilities: they never lose digits, whatever the points."""

_LOGS = ("log_det", "sum_log_rate", "log_norm")

_FARTHEST = 1e4
"""Statistics that reach further than so many of their least deviations hold outliers. One at r deviations costs the
rest some 2 log10 r digits (see `GaussianWork`), in the cache and in the statistics alike, so that beyond 1e4 the
two may differ: there only the bounds below hold."""


def need(condition: bool, what: str) -> None:
    """Raise ValueError unless the condition holds."""
    if not condition:
        raise ValueError(what)


def check_work(family: AnyFamily, stats: Any, work: AnyWork) -> None:
    """Raise ValueError unless `work` (K rows, finite) is, but for rounding, what `refresh` makes of `stats`."""
    fresh = refresh(family, stats)
    if not hasattr(family, "cache_scales"):
        _check_exact(fresh, work)
        return
    own = cast(UpdatedByRankOne, family)
    with np.errstate(all="ignore"):
        scales = own.cache_scales(fresh)
        plain = _reach(stats, fresh, scales) <= _FARTHEST * scales.resolution
        upright = own.cache_scales(work).upright
    for name, field, due in zip(work._fields, work, fresh, strict=True):
        need(bool(np.isfinite(due).all()), f"statistics give a work.{name} that is not finite")
        error, size = np.abs(field - due).reshape(len(due), -1), np.abs(due).reshape(len(due), -1)
        if name in _ADDITIVE:
            close = error <= DRIFT * size
        elif name in _LOGS:
            close = error <= np.where(plain, DRIFT, 1.0)[:, None] * (1.0 + size)
        else:
            scale = size.max(axis=1, keepdims=True) + (name == "mean") * scales.resolution[:, None]
            close = ~plain[:, None] | (error <= DRIFT * scale)
        need(bool(close.all()), f"work.{name} is not that of the statistics")
    need(bool(np.all(upright)), "work has a variance that is not positive")


def _check_exact(fresh: Any, work: Any) -> None:
    """Raise ValueError unless `work` is `fresh` but for rounding: nothing in it cancels, whatever the points."""
    for name, field, due in zip(work._fields, work, fresh, strict=True):
        need(bool(np.isfinite(due).all()), f"statistics give a work.{name} that is not finite")
        need(bool((np.abs(field - due) <= DRIFT * (1.0 + np.abs(due))).all()), f"work.{name} is not of the statistics")


def _reach(stats: Any, fresh: AnyWork, scales: CacheScales) -> Any:
    """(K,) How far a component's mean and points lie out, in standardised units."""
    spread = np.sqrt(np.abs(stats.scatter).reshape(len(stats.mass), -1).max(axis=1) / stats.mass)
    return np.maximum(np.abs(fresh.mean).max(axis=1), spread * scales.scatter_unit)
