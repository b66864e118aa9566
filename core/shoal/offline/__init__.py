"""Fits of data sets on disk, by workers: more rows than memory holds, on the cores of one machine or on a Ray cluster.

    opening       files of rows (`npy_rows`, `arrow_rows`) as a data set of blocks (`dataset`)
    passes        what workers do with a block, and the sums over all blocks
    fit           a tree of cells, the search on it, and sweeps over the points
    predictions   a pass that writes labels and log densities

Executors stand in `runtime.executors`.
"""

from shoal.offline.dataset import Dataset
from shoal.offline.fit import DatasetFit, FitSettings, fit_dataset, sample_rows
from shoal.offline.opening import is_dataset, open_dataset, open_dataset_like
from shoal.offline.passes import Observer, Work, sampled
from shoal.offline.predictions import PredictTask, output_names, write_predictions

__all__ = [
    "Dataset",
    "DatasetFit",
    "FitSettings",
    "Observer",
    "PredictTask",
    "Work",
    "fit_dataset",
    "is_dataset",
    "open_dataset",
    "open_dataset_like",
    "output_names",
    "sample_rows",
    "sampled",
    "write_predictions",
]
