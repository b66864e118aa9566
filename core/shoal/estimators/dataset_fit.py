"""A batch fit of a data set on disk, in the units of the data."""

from typing import Any

import numpy as np

from shoal.errors import SettingError
from shoal.estimators.batch_engines import check_family
from shoal.estimators.batch_fit import FittedBatch, check_family_exists, place_prior, presented
from shoal.inference import stick_prior
from shoal.mixture import Progress, ProgressCallback, predictor_of
from shoal.offline import (
    Dataset,
    FitSettings,
    Observer,
    PredictTask,
    Work,
    fit_dataset,
    sample_rows,
    sampled,
    write_predictions,
)
from shoal.runtime.executors import Executor
from shoal.variational import TreeSearch

METHODS = ("vdp", "fast-vdp")
"""Methods that fit a data set on disk."""
_EXPANSION = 1e-3
_MOST_ROUNDS = 10_000


def check_dataset_method(method: str, n_init: int) -> None:
    """Raise SettingError for a method that needs all points in memory, and for several starts."""
    if method not in METHODS:
        raise SettingError(
            f"method {method!r} needs all points in memory; a data set on disk is fitted by {' or '.join(METHODS)}"
        )
    if n_init != 1:
        raise SettingError(f"n_init is {n_init}; a data set on disk is fitted from one start")


def fit_batch_dataset(
    family: Any,
    method: str,
    dataset: Dataset,
    *,
    concentration: float,
    settings: dict[str, Any],
    executor: Executor,
    rng: np.random.Generator,
    callback: ProgressCallback,
) -> FittedBatch:
    """Fit the rows of a data set, with settings from `checked_settings`.

    The automatic prior follows from 1,000 rows of a sample.
    """
    check_family_exists(family)
    check_family("fast-vdp", family)
    name = family if isinstance(family, str) else type(family).name
    with executor.started() as pool:
        work = Work(dataset, pool, _rows_to(callback, dataset.n_rows))
        sample = sampled(work, name, sample_rows(dataset.n_features), rng)
        placed = place_prior(family, sample, concentration, rng)
        volume = dataset.n_rows * placed.log_volume
        found = fit_dataset(
            work, placed, sample, _settings(method, concentration, settings), rng, _in_units(callback, volume)
        )
    fit, _, sizes = presented(found.fit, found.best, volume)
    return FittedBatch(placed, fit, fit, None, sizes, predictor_of(placed.prior, fit))


def write_batch_predictions(
    fitted: FittedBatch, dataset: Dataset, folder: Any, executor: Executor, callback: ProgressCallback
) -> list[str]:
    """Predict every row of a data set, and write label and log density as Parquet. Returns the names of the files."""
    with executor.started() as pool:
        work = Work(dataset, pool, _rows_to(callback, dataset.n_rows))
        return write_predictions(work, PredictTask(fitted.placed, fitted.predictor), folder)


def _settings(method: str, concentration: float, settings: dict[str, Any]) -> FitSettings:
    sticks = settings.get("sticks")
    search = TreeSearch(
        stick_prior(None if sticks is not None else concentration, sticks),
        settings.get("tol", 1e-5),
        settings.get("max_iter", _MOST_ROUNDS),
        settings.get("moves", "default"),
        _EXPANSION,
    )
    sweeps = None if method == "vdp" else settings.get("point_rounds", 0)
    return FitSettings(search, sweeps, settings.get("leaf_points"))


def _rows_to(callback: ProgressCallback, n_rows: int) -> Observer:
    """An observer of passes that reports to a callback: the message is the pass, the fraction that of the rows."""
    if callback is None:
        return lambda stage, done: None
    return lambda stage, done: callback(Progress(0, np.nan, 0, stage, done / n_rows))


def _in_units(callback: ProgressCallback, volume: float) -> ProgressCallback:
    if callback is None:
        return None
    return lambda at: callback(at._replace(elbo=at.elbo - volume))
