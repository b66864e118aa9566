"""Components as a table for people and as lines for programs, for the server and for `shoal fit`."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal_service.cli.output import print_line, sparkline, weight_bar

if TYPE_CHECKING:
    from rich.table import Table

MOST_TICKS = 24
"""Largest number of features with a tick, so that a row fits in a terminal."""


class Row(NamedTuple):
    """One component."""

    id: int
    weight: float
    mass: float
    mean: Any  # (D,) or None
    born_at: int | None
    last_seen_at: int | None


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[int] = ()) -> None:
    """Print rows below the names of their columns. Where a terminal is narrow, words are cut and numbers stay whole.

    `numbers`: indices of the columns with numbers, which stand at the right.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_header=any(columns))
    for i, column in enumerate(columns):
        right = i in numbers
        table.add_column(
            column, style="cyan" if i == 0 else None, justify="right" if right else "left", no_wrap=right or i == 0
        )
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console(highlight=False).print(table)


def print_plain_components(rows: Sequence[Row]) -> None:
    """Print tab-separated lines after a header. The numbers of a mean are exact and separated by commas."""
    dated = not rows or any(row.born_at is not None for row in rows)
    print_line("id", "weight", "mass", *(("born_at", "last_seen_at") if dated else ()), "mean")
    for row in rows:
        mean = "" if row.mean is None else ",".join(repr(float(value)) for value in row.mean)
        seen = ["" if at is None else at for at in (row.born_at, row.last_seen_at)] if dated else []
        print_line(row.id, repr(float(row.weight)), repr(float(row.mass)), *seen, mean)


def print_component_table(title: str, rows: Sequence[Row], footer: str) -> None:
    """Print `component_table`."""
    from rich.console import Console

    Console(highlight=False).print(component_table(title, rows, footer))


def component_table(title: str, rows: Sequence[Row], footer: str) -> "Table":
    """Make a table with a bar for each weight. Long means are ticks, from low to high among the rows, per feature."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, caption=footer)
    table.caption_justify = "left"
    # Where a terminal is narrow, ticks are cut and numbers stay whole.
    table.add_column("id", justify="right", style="cyan", no_wrap=True)
    table.add_column("weight", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, style="blue")
    table.add_column("mass", justify="right", no_wrap=True)
    table.add_column("mean", overflow="ellipsis")
    dated = any(row.born_at is not None for row in rows)
    for title_ in ("born at", "last seen") if dated else ():
        table.add_column(title_, justify="right", style="dim", no_wrap=True)
    heaviest = max((row.weight for row in rows), default=1.0) or 1.0
    for row, mean in zip(rows, _means(rows), strict=True):
        seen = ["" if at is None else f"{at:,}" for at in (row.born_at, row.last_seen_at)] if dated else []
        table.add_row(
            str(row.id), f"{row.weight:.4f}", weight_bar(row.weight / heaviest), f"{row.mass:,.1f}", mean, *seen
        )
    return table


def _means(rows: Sequence[Row]) -> list[str]:
    """Write up to three features as numbers, more as ticks."""
    means = [row.mean for row in rows if row.mean is not None]
    if not means:
        return [""] * len(rows)
    if len(means[0]) <= 3:
        return ["" if row.mean is None else "  ".join(f"{value:.4g}" for value in row.mean) for row in rows]
    shown = [list(map(float, mean[:MOST_TICKS])) for mean in means]
    low, high = (
        [min(column) for column in zip(*shown, strict=True)],
        [max(column) for column in zip(*shown, strict=True)],
    )
    more = "…" if len(means[0]) > MOST_TICKS else ""
    ticks = ["" if row.mean is None else sparkline(list(map(float, row.mean[:MOST_TICKS])), low, high) for row in rows]
    return [tick + more if tick else "" for tick in ticks]
