"""The command `shoal fit`: the library on a file, without a server."""

from pathlib import Path
from typing import Annotated

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError
from shoal_service.cli.fit_batch import fit_batch
from shoal_service.cli.fit_dataset import ExecutorOptions, fit_dataset, refuse_without_executor
from shoal_service.cli.fit_stream import fit_stream
from shoal_service.cli.model_options import (
    ONE_PASS,
    BatchOptions,
    Method,
    ModelOptions,
    OnePassOptions,
    estimator_settings,
)
from shoal_service.cli.output import check_target


def fit(
    file: options.Points,
    *,
    model: ModelOptions,
    one_pass: OnePassOptions,
    batch: BatchOptions,
    executor: ExecutorOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="LABELS.npy",
            help="Write the component id of each point to this file; with --executor, labels and log densities as "
            "Parquet to this folder.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="STATE.shoal",
            help="Write the state to this file, to load it later or to restore it into a server.",
        ),
    ] = None,
    reading: options.Reading,
    time_column: options.TimeColumn = None,
    as_json: options.Json = False,
) -> None:
    """Cluster a file without a server: in one pass with bounded memory, with a batch method, or by workers.

    Examples:

      shoal fit points.csv
      shoal fit points.csv --method vdp --json
      shoal fit mnist.npz --key train --family diagonal --out labels.npy
      shoal fit readings.csv --half-life 10000 --save state.shoal
      shoal fit readings.csv --half-life 1h --time-column at
      shoal fit 'readings/*.parquet' --executor processes --out labels
    """
    executor.refuse_alone()
    for target in (out, save):
        if target is not None:
            check_target(target, file, may_be_folder=target is out and executor.executor is not None)
    if executor.executor is not None and model.method is Method.default:
        model = model._replace(method=Method.vdp)
    settings = estimator_settings(model, one_pass, batch)
    if time_column is not None and not isinstance(settings.get("half_life"), str):
        raise CommandError("--time-column is for a --half-life that is a time, such as 1h; remove it, or give that")
    if executor.executor is not None:
        if save is not None:
            raise CommandError("--save writes the state of a stream, which a data set on disk does not have; remove it")
        fit_dataset(file, reading, settings, executor, out, as_json)
        return
    refuse_without_executor(file)
    if model.method in ONE_PASS:
        columns = options.FieldColumns(time_column=time_column).columns()
        fit_stream(file, reading.options(records=columns), settings, out, save, as_json)
        return
    if save is not None:
        raise CommandError(
            f"--save writes the state of a stream, which --method {model.method.value} does not have; remove it (--out "
            f"writes the labels), or choose a one-pass method ({', '.join(ONE_PASS)})"
        )
    fit_batch(file, reading.options(), settings, out, as_json)
