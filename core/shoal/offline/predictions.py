"""A pass that predicts every row of a data set, and writes the predictions as Parquet: a file for each input file.

The rows of a file are those of the input file, in its order. A file is complete or absent.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shoal.errors import InputError
from shoal.mixture import PlacedPrior, Predictor, predict_call
from shoal.offline.arrow_rows import pyarrow_dataset
from shoal.offline.dataset import Block, File, chunks_of
from shoal.offline.passes import Work
from shoal.points.arrays import Array, IntArray
from shoal.runtime.files import FileName, complete_file

LABEL, LOG_DENSITY = "label", "log_density"
"""Columns of the files: the component, 0..K-1, int64; and log p(row), nats, float64."""


class PredictTask(NamedTuple):
    """What the pass shares."""

    placed: PlacedPrior
    predictor: Predictor


def write_predictions(work: Work, task: PredictTask, folder: FileName) -> list[str]:
    """Write the predictions of all rows into a folder, which is made where it is absent. Returns the files' names.

    A file `a/b.npy` or `a/b.parquet` of the data set gives `a/b.parquet` in the folder. Raises InputError where two
    files would have one name.
    """
    names = output_names([file.name for file in work.dataset.files])
    _compile(task.placed)  # here, or all workers do
    predicted = work.over_blocks("labelling", _predictions_of_block, task)
    for file, name in zip(work.dataset.files, names, strict=True):
        with complete_file(folder, name) as path:
            _write(path, file, predicted)
    return names


def output_names(names: list[str]) -> list[str]:
    """Names of the files of predictions, by the names of the files of rows. Raises InputError."""
    found: dict[str, str] = {}
    for name in names:
        stem = name.rpartition(".")[0] or name
        if (other := found.setdefault(f"{stem}.parquet", name)) is not name:
            raise InputError(f"the labels of {other} and of {name} would be one file, {stem}.parquet; rename one")
    return list(found)


def _predictions_of_block(task: PredictTask, block: Block) -> tuple[IntArray, Array]:
    """Label and log density (n,) of each row of a block."""
    placed = task.placed
    _compile(placed)
    labels, densities = [], []
    for x in chunks_of(block, placed.prior.n_features):
        found = task.predictor.predict(placed.prior.domain.held(x), with_resp=False, placed=placed.standardise)
        labels.append(found.row)
        densities.append(found.log_density - placed.log_volume)
    return np.concatenate(labels), np.concatenate(densities)


def _compile(placed: PlacedPrior) -> None:
    """Compile or load the kernel of predictions, where the family has one, so that every worker predicts by it."""
    call = predict_call(placed.prior)
    if call is not None:
        call[0](*call[1])


def _write(path: str, file: File, predicted: Iterator[tuple[IntArray, Array]]) -> None:
    pa = pyarrow_dataset().pa
    import pyarrow.parquet as parquet

    schema = pa.schema([(LABEL, pa.int64()), (LOG_DENSITY, pa.float64())])
    with parquet.ParquetWriter(path, schema) as writer:
        for _ in file.blocks:
            label, density = next(predicted)
            writer.write_table(pa.table({LABEL: label, LOG_DENSITY: density}, schema=schema))
