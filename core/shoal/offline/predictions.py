"""A pass that predicts every row of a data set, and writes the predictions as Parquet: a file for each input file.

The rows of a file are those of the input file, in its order. A file is complete or absent.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shoal.errors import InputError
from shoal.mixture import PlacedPrior, Predictor, predict_call
from shoal.offline.arrow_rows import pyarrow_dataset
from shoal.offline.dataset import Block, Dataset, File, chunks_of
from shoal.offline.passes import Fault, Work, fault_in, without_fault
from shoal.points.arrays import Array, IntArray
from shoal.runtime.files import FileName, complete_file, files_in

LABEL, LOG_DENSITY = "label", "log_density"
"""Columns of the files: the component, 0..K-1, int64; and log p(row), nats, float64."""


class PredictTask(NamedTuple):
    """What the pass shares."""

    placed: PlacedPrior
    predictor: Predictor


def write_predictions(work: Work, task: PredictTask, folder: FileName) -> list[str]:
    """Write the predictions of all rows into a folder, which is made where it is absent. Returns the files' names.

    Raises InputError for names that `output_names` refuses, and for the first row that is no point of the family.
    """
    names = output_names(work.dataset, folder)
    _compile(task.placed)  # here, or all workers do
    found = work.over_blocks("labelling", _predictions_of_block, task)
    predicted = (without_fault(work.dataset, i, part) for i, part in enumerate(found))
    for file, name in zip(work.dataset.files, names, strict=True):
        with complete_file(folder, name) as path:
            _write(path, file, predicted)
    return names


def output_names(dataset: Dataset, folder: FileName) -> list[str]:
    """Names of the files of predictions in a folder: `a/b.parquet` for a file `a/b.npy` or `a/b.parquet` of rows.

    Raises InputError where two would have one name, and where one would replace a file of rows.
    """
    found: dict[str, str] = {}
    for name in (file.name for file in dataset.files):
        stem = name.rpartition(".")[0] or name
        if (other := found.setdefault(f"{stem}.parquet", name)) is not name:
            raise InputError(f"the labels of {other} and of {name} would be one file, {stem}.parquet; rename one")
    replaced = files_in(folder, found, {file.path for file in dataset.files})
    if replaced:
        raise InputError(f"labels in {folder} would replace the rows in {replaced[0]}; choose another folder")
    return list(found)


def _predictions_of_block(task: PredictTask, block: Block) -> tuple[IntArray, Array] | Fault:
    """Label and log density (n,) of each row of a block."""
    placed = task.placed
    done = 0
    _compile(placed)
    labels, densities = [], []
    for x in chunks_of(block, placed.prior.n_features):
        if (fault := fault_in(placed.prior.domain, x, placed.prior.n_features, done)) is not None:
            return fault
        done += len(x)
        found = task.predictor.predict(placed.prior.domain.convert(x), with_resp=False, placed=placed.standardise)
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
