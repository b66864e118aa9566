"""Shared parts of all commands here: options, the clock, tables that are written after each row, and plots.

Times are CPU seconds of this process (user and system) on one thread, because the machine may do other work. Methods
that are compared run in the same process, one after the other.
"""

import argparse
import csv
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is loaded, because BLAS reads it once

RESULTS = Path(__file__).resolve().parents[1] / "results" / "papers"
MISSING = ""
"""In a CSV: not measured, or not given by the paper."""
_T = TypeVar("_T")


def options(description: str | None, **choices: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser with the options of all commands, and one `--name` for each of `choices`: which to run."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a smaller form, of minutes; its files end in -quick")
    size.add_argument("--tiny", action="store_true", help="seconds, only to see that it runs; its files end in -tiny")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of CSV and PNG files")
    parser.add_argument("--seed", type=int, default=0)
    for name, values in choices.items():
        parser.add_argument(f"--{name}", nargs="+", choices=list(values), default=list(values))
    return parser


def by_size(arguments: argparse.Namespace, full: _T, quick: _T, tiny: _T) -> _T:
    """Return the one of three values that the options select."""
    return tiny if arguments.tiny else quick if arguments.quick else full


def path_of(arguments: argparse.Namespace, name: str, suffix: str) -> Path:
    """Return the file of a result. Forms of different size have different files."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    return Path(arguments.out) / f"{name}{by_size(arguments, '', '-quick', '-tiny')}{suffix}"


def machine() -> str:
    import numpy
    import scipy

    versions = f"Python {platform.python_version()}, NumPy {numpy.__version__}, SciPy {scipy.__version__}"
    return f"{_processor()}, {os.cpu_count()} CPUs, 1 thread used, {versions}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def timed(work: Callable[[], _T]) -> tuple[_T, float]:
    """Return the result of `work` and its CPU seconds."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def best_of(repeats: int, work: Callable[[], _T]) -> tuple[_T, float]:
    """Return the result of `work` and the least CPU seconds of several repeats. Other work only adds to them."""
    runs = [timed(work) for _ in range(repeats)]
    return runs[-1][0], min(seconds for _, seconds in runs)


class Table:
    """Rows of one CSV file, written after every row, so that an interrupted run leaves its rows.

    Rows in the file stay until a row with the same values in the `key` columns replaces them. So several runs can fill
    a long table.
    """

    def __init__(self, path: Path, columns: str | Sequence[str], key: Sequence[str]) -> None:
        names = columns.split() if isinstance(columns, str) else columns
        self.path, self.columns, self.key = path, ["date", "machine", *names], list(key)
        self.rows = self._read()

    def _read(self) -> list[dict[str, str]]:
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return [row for row in csv.DictReader(file) if set(row) == set(self.columns)]

    def add(self, **values: Any) -> None:
        """Add a row. Missing columns stay empty. Numbers get six digits."""
        row = {"date": datetime.now(UTC).date().isoformat(), "machine": machine()}
        row |= {name: _text(values.pop(name, MISSING)) for name in self.columns[2:]}
        if values:
            raise KeyError(f"no such columns: {sorted(values)}")
        self.rows = self._read()  # read again: another run may have added rows
        same = [at for at, old in enumerate(self.rows) if all(old[name] == row[name] for name in self.key)]
        if same:
            self.rows[same[0]] = row
        else:
            self.rows.append(row)
        self._write()
        print("  ".join(f"{name} {row[name]}" for name in self.columns[2:] if row[name] != MISSING), flush=True)

    def _write(self) -> None:
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)

    def drop(self, **values: Any) -> None:
        """Delete the rows with these values, because the new rows may be fewer."""
        gone = self.where(**values)
        self.rows = [row for row in self.rows if row not in gone]
        self._write()

    def where(self, **values: Any) -> list[dict[str, str]]:
        """Return the rows with these values."""
        return [row for row in self.rows if all(row[name] == _text(value) for name, value in values.items())]


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def data_file(name: str) -> Path:
    """Return a file of the folder that SHOAL_DATA names, or exit with a message."""
    folder = os.environ.get("SHOAL_DATA")
    if not folder or not (Path(folder) / name).exists():
        sys.exit(f"this needs {name} in the folder that the environment variable SHOAL_DATA names")
    return Path(folder) / name


def plot(path: Path, panels: Sequence[dict[str, Any]], title: str) -> None:
    """Draw panels side by side, as PNG.

    Each panel has `series` (label -> (x, y), (x, y, error) or (x, y, error, error of x); x or y may be names) and the
    axis labels `x` and `y`. Optional are `log` ("x", "y" or "xy") and `marks` (label -> height): horizontal lines, such
    as a paper's figure."""
    try:
        import matplotlib as mpl
    except ImportError:
        print(f"{path.name} is not drawn: matplotlib is not installed (pip install matplotlib)")
        return
    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.8), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        for label, values in panel["series"].items():
            style = "--" if "paper" in label else "-"
            style = "" if any(isinstance(at, str) for axis_values in values[:2] for at in axis_values) else style
            yerr, xerr = (*values[2:], None, None)[:2]
            axis.errorbar(*values[:2], yerr=yerr, xerr=xerr, fmt=f"o{style}", ms=3, capsize=2, label=label)
        for label, height in panel.get("marks", {}).items():
            axis.axhline(height, color="grey", ls=":", label=label)
        if "x" in panel.get("log", ""):
            axis.set_xscale("log")
        if "y" in panel.get("log", ""):
            axis.set_yscale("log")
        axis.set_xlabel(panel["x"])
        axis.set_ylabel(panel["y"])
        axis.legend(fontsize=7)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
    print(f"drawn: {path.name}")


def floats(rows: Iterable[dict[str, str]], name: str) -> list[float]:
    """Return a column of these rows as floats."""
    return [float(row[name]) for row in rows]
