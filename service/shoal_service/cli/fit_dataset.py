"""Data sets on disk of `shoal fit`: files that need not fit in memory, by the workers of an executor."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shoal_service.cli.exits import CommandError
from shoal_service.cli.fit_batch import show_fit
from shoal_service.cli.output import count, passes_bar, stderr_console
from shoal_service.cli.ray_messages import beside_ray

if TYPE_CHECKING:
    from shoal_service.cli.options import Reading

WORKERS = "Workers"


class ExecutorName(StrEnum):
    """Executors of a data set on disk."""

    in_process = "in-process"
    processes = "processes"
    ray = "ray"


class ExecutorOptions(NamedTuple):
    """Options of the workers of a data set on disk."""

    executor: Annotated[
        ExecutorName | None,
        typer.Option(
            metavar="NAME",
            help="Fit files that need not fit in memory, by vdp (the default then) or fast-vdp: in-process, in "
            "processes of this machine, or on ray. FILE may be a folder or a glob of Parquet, Arrow or npy files.",
            rich_help_panel=WORKERS,
        ),
    ] = None
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address of a Ray cluster. (default: one of its own, on this machine)",
            rich_help_panel=WORKERS,
        ),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of workers. (default: one a core)", rich_help_panel=WORKERS),
    ] = None

    def refuse_alone(self) -> None:
        """Raise CommandError for an option that needs an executor."""
        for option, value in (("--address", self.address), ("--workers", self.workers)):
            if value is not None and self.executor is None:
                raise CommandError(f"{option} is for an executor; add --executor processes or --executor ray")


def fit_dataset(
    source: str,
    reading: "Reading",
    settings: dict[str, Any],
    options: ExecutorOptions,
    out: Path | None,
    as_json: bool,
) -> None:
    """Fit a `DPMixture` with these settings to a data set on disk, write labels to the folder `out`, and show it."""
    from shoal import DPMixture
    from shoal.offline import open_dataset, output_names
    from shoal.runtime.executors import executor_of

    _refuse_options_of_text(source, reading)
    executor = executor_of(options.executor and options.executor.value, options.workers, options.address)
    columns = None if reading.columns is None else [name.strip() for name in reading.columns.split(",") if name.strip()]
    dataset = open_dataset(source, columns)
    if out is not None:  # what the writing would refuse is refused before the fit
        if out.exists() and not out.is_dir():
            raise CommandError(f"--out {out} is a file; with --executor it must be a folder, or a name for a new one")
        output_names(dataset, out)
    on_ray = options.executor is ExecutorName.ray
    with sigterm_as_exit(), beside_ray() if on_ray else nullcontext(), passes_bar(dataset.n_rows) as show:
        model = DPMixture(**settings, executor=executor, callback=show).fit(dataset)
        written = None if out is None else model.write_predictions(dataset, out)
    if written is not None:
        said = f"{count(dataset.n_rows, 'label')} written to {count(len(written), 'file')} in {out}"
        stderr_console().print(said, soft_wrap=True)
    show_fit(model, as_json)


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """Let SIGTERM end the work as an interrupt does: workers are stopped, and no incomplete file stays."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def refuse_without_executor(source: str) -> None:
    """Raise CommandError for a folder or a glob."""
    path = Path(source)
    if path.is_dir() or (any(mark in source for mark in "*?[") and not path.exists()):
        raise CommandError(f"{source} is a folder or a glob of files; add --executor processes")


def _refuse_options_of_text(source: str, reading: "Reading") -> None:
    """Raise CommandError for what a data set on disk has not."""
    if source == "-":
        raise CommandError("stdin is read once, and a data set on disk several times; save the points to a file first")
    named = {
        "--format": reading.format_,
        "--key": reading.key,
        "--header": reading.header,
        "--delimiter": reading.delimiter,
        "--features": reading.features,
    }
    for option, value in named.items():
        if value is not None:
            raise CommandError(f"{option} is not for --executor, which reads Parquet, Arrow and npy files; remove it")
