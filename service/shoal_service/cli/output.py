"""Output: progress on stderr, tables and bars for people, plain lines and JSON for programs."""

import io
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from shoal_service.cli.exits import CommandError

if TYPE_CHECKING:
    from rich.console import Console

    from shoal.mixture import Progress as FitProgress
    from shoal.points.arrays import IntArray
    from shoal_service.cli.embedding import TextFile
    from shoal_service.cli.readers.files import PointFile

_TICKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def print_json(value: Any) -> None:
    """Print one JSON document on one line. NaN and infinity become null."""
    import json

    typer.echo(json.dumps(_plain(value), allow_nan=False))


def print_line(*cells: Any) -> None:
    """Print one line of tab-separated cells."""
    typer.echo("\t".join(str(cell) for cell in cells))


def check_target(target: Path, source: str | Path, *, may_be_folder: bool = False) -> None:
    """Raise CommandError, before any work, for a file that cannot be written, and for one that is read."""
    folder = target.absolute().parent
    if not folder.is_dir():
        raise CommandError(f"cannot write {target}: the folder {folder} does not exist")
    if target.is_dir() and not may_be_folder:
        raise CommandError(f"cannot write {target}: it is a folder; give the name of a file")
    if target.is_file() and Path(source).exists() and target.samefile(source):
        raise CommandError(f"{target} is the file that is read, and would be replaced; choose another name")


def for_people() -> bool:
    """Whether stdout is a terminal, where tables are printed instead of plain lines."""
    return sys.stdout.isatty()


def weight_bar(share: float, width: int = 12) -> str:
    """A bar of `width` cells for a share in [0, 1], exact to an eighth of a cell."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def sparkline(values: Sequence[float], low: Sequence[float], high: Sequence[float]) -> str:
    """One tick per feature: the position of the value between its low and high."""
    return "".join(_tick(v, lo, hi) for v, lo, hi in zip(values, low, high, strict=True))


def _tick(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return " "
    if not high > low:
        return _TICKS[3]
    return _TICKS[min(7, int(8 * (value - low) / (high - low)))]


def count(n: int, what: str, many: str | None = None) -> str:
    """`1 point`, `12,000 points`."""
    return f"{n:,} {what if n == 1 else many or what + 's'}"


@contextmanager
def progress_bar(title: str, file: "PointFile | TextFile", *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr while a file is processed. Call the function with the number of points done.

    Nothing is shown if stderr is not a terminal, or with `quiet`.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[points]:,} points"),
        TextColumn("{task.fields[rate]:,.0f}/s", style="dim"),
        TimeElapsedColumn(),
    )
    started = time.monotonic()
    with Progress(*columns, console=stderr_console(), transient=True) as progress:
        task = progress.add_task(title, total=None, points=0, rate=0.0)

        def advance(done: int) -> None:
            completed, total = file.progress(done)
            rate = done / max(time.monotonic() - started, 1e-9)
            progress.update(task, completed=completed, total=total, points=done, rate=rate)

        yield advance


@contextmanager
def rounds_bar(title: str) -> Iterator["Callable[[FitProgress], None] | None"]:
    """Show a bar on stderr for a fit with many rounds. Gives a callback for the `Progress` of the library.

    Gives None, which costs nothing, if stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn())
    with Progress(*columns, console=stderr_console(), transient=True) as progress:
        task = progress.add_task(title, total=None, state="starting")

        def show(at: "FitProgress") -> None:
            said = "" if at.message == title else f"{at.message}, "
            state = f"{said}round {at.round:,}, {count(at.n_components, 'component')}, {at.elbo:,.1f} nats"
            total = None if at.fraction is None else 1.0
            progress.update(task, completed=at.fraction or 0.0, total=total, state=state)

        yield show


@contextmanager
def passes_bar(n_rows: int) -> Iterator["Callable[[FitProgress], None]"]:
    """Show a bar on stderr for passes over a data set of so many rows: rows, rate and time left of each pass.

    Gives a callback for the `Progress` of the library. If stderr is not a terminal, a line is printed after each pass.
    """
    if not sys.stderr.isatty():
        yield _lines_of_passes(n_rows)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
        TextColumn("left,", style="dim"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=stderr_console(), transient=True) as progress:
        task, started = progress.add_task("starting", total=None, state=""), time.monotonic()

        def show(at: "FitProgress") -> None:
            nonlocal started
            if at.fraction is None:
                state = f"{count(at.n_components, 'component')}, {at.elbo:,.1f} nats"
                progress.update(task, description=at.message, state=state)
                return
            done = round(at.fraction * n_rows)
            if done == 0:
                started = time.monotonic()
                progress.reset(task, total=n_rows, description=at.message)
            rate = done / max(time.monotonic() - started, 1e-9)
            progress.update(task, completed=done, state=f"{done:,} of {count(n_rows, 'row')}, {rate:,.0f}/s")

        yield show


def _lines_of_passes(n_rows: int) -> "Callable[[FitProgress], None]":
    """Print a line on stderr at the end of each pass."""
    started = time.monotonic()

    def show(at: "FitProgress") -> None:
        nonlocal started
        if at.fraction == 0.0:
            started = time.monotonic()
        elif at.fraction is not None and round(at.fraction * n_rows) == n_rows:
            seconds = max(time.monotonic() - started, 1e-9)
            typer.echo(f"{at.message}: {count(n_rows, 'row')} in {seconds:.1f} s, {n_rows / seconds:,.0f}/s", err=True)

    return show


def stderr_console() -> "Console":
    """Console for bars and messages."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def save_labels(labels: "IntArray", out: Path) -> None:
    """Write labels as npy, the whole file or nothing, and say so on stderr."""
    import numpy as np

    from shoal.runtime.files import write_whole

    blob = io.BytesIO()
    np.save(blob, labels)
    write_whole(out, blob.getvalue())
    stderr_console().print(f"{count(len(labels), 'label')} written to {out}")
