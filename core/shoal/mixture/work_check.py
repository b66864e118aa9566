"""Whether a working form read from bytes is that of its statistics."""

from typing import Any

import numpy as np

from shoal.families import AnyFamily
from shoal.families.predictive_cache import AnyWork, BringsWork, DiagonalWork, GaussianWork, refresh
from shoal.points.arrays import BoolArray

DRIFT = 1e-6
"""Relative drift allowed between two renewals of the working form (at most 4,096 points): 10^-14 is usual."""

_ADDITIVE = ("mean_strength", "dof", "shape", "precision", "half_precision")
"""Fields that only add up responsibilities: they never lose digits, whatever the points."""

_LOGS = ("log_det", "sum_log_rate", "log_norm")

_FARTHEST = 1e4
"""Statistics that reach further than so many of their least deviations hold outliers. One at r deviations costs the
rest some 2 log10 r digits (see `GaussianWork`), in the working form and in the statistics alike, so that beyond 1e4 the
two may differ: there only the bounds below hold."""


def need(condition: bool, what: str) -> None:
    """Raise ValueError unless the condition holds."""
    if not condition:
        raise ValueError(what)


def check_work(family: AnyFamily, stats: Any, work: AnyWork) -> None:
    """Raise ValueError unless `work` (K rows, finite) is, but for rounding, what `refresh` makes of `stats`."""
    if isinstance(family, BringsWork):
        _check_own(family.work_of(stats), work)
        return
    with np.errstate(all="ignore"):
        fresh = refresh(family, stats)
        plain = _reach(stats, fresh) <= _FARTHEST * _resolution(fresh)
    for name, field, due in zip(work._fields, work, fresh, strict=True):
        need(bool(np.isfinite(due).all()), f"statistics give a work.{name} that is not finite")
        error, size = np.abs(field - due).reshape(len(due), -1), np.abs(due).reshape(len(due), -1)
        if name in _ADDITIVE:
            close = error <= DRIFT * size
        elif name in _LOGS:
            close = error <= np.where(plain, DRIFT, 1.0)[:, None] * (1.0 + size)
        else:
            scale = size.max(axis=1, keepdims=True) + (name == "mean") * _resolution(fresh)[:, None]
            close = ~plain[:, None] | (error <= DRIFT * scale)
        need(bool(close.all()), f"work.{name} is not that of the statistics")
    need(bool(_upright(work).all()), "work has a variance that is not positive")


def _check_own(fresh: Any, work: Any) -> None:
    """Raise ValueError unless `work` is `fresh` but for rounding: nothing in it cancels, whatever the points."""
    for name, field, due in zip(work._fields, work, fresh, strict=True):
        need(bool(np.isfinite(due).all()), f"statistics give a work.{name} that is not finite")
        need(bool((np.abs(field - due) <= DRIFT * (1.0 + np.abs(due))).all()), f"work.{name} is not of the statistics")


def _reach(stats: Any, fresh: AnyWork) -> Any:
    """(K,) How far a component's mean and points lie out, in standardised units."""
    spread = np.sqrt(np.abs(stats.scatter).reshape(len(stats.mass), -1).max(axis=1) / stats.mass)
    unit = 1.0 if isinstance(fresh, GaussianWork | DiagonalWork) else _resolution(fresh)
    return np.maximum(np.abs(fresh.mean).max(axis=1), spread * unit)


def _resolution(fresh: AnyWork) -> Any:
    """(K,) About the least deviation of a component in any direction."""
    if isinstance(fresh, GaussianWork):
        return 1.0 / (np.abs(fresh.root).reshape(len(fresh.root), -1).max(axis=1) * np.sqrt(fresh.dof))
    if isinstance(fresh, DiagonalWork):
        return 1.0 / np.sqrt(fresh.inverse_spread.max(axis=1) * fresh.shape)
    return 1.0 / np.sqrt(2.0 * fresh.half_precision.reshape(len(fresh.mean), -1).max(axis=1))


def _upright(work: AnyWork) -> BoolArray:
    """Whether variances are positive, and a factor triangular."""
    if isinstance(work, GaussianWork):
        above = np.triu(work.root, 1) == 0
        return np.asarray(above.all() & (np.diagonal(work.root, axis1=1, axis2=2) > 0))
    return work.inverse_spread > 0 if isinstance(work, DiagonalWork) else work.half_precision > 0
