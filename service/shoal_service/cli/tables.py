"""Components as a table for people and as lines for programs, for the server and for `shoal fit`."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal_service.cli.output import print_line, sparkline, weight_bar

if TYPE_CHECKING:
    from rich.table import Table

LABEL_WIDTH = 24
"""Most characters of a label in a line of a table."""
LEVEL_WIDTH = 16
"""Most characters of a level of categories."""
MOST_NUMBERS = 3
"""Largest number of features that are shown as numbers."""
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
    label: str | None = None
    levels: Mapping[int, str] = MappingProxyType({})
    """The most frequent level of features of categories, by column, which people see as their mean."""


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[int] = (), whole: Sequence[int] = ()
) -> None:
    """Print rows below the names of their columns. Where a terminal is narrow, texts go on in a second line.

    `numbers`: indices of the columns with numbers, at the right. They stay in one line, as the columns of `whole` do.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_header=any(columns))
    for i, column in enumerate(columns):
        right = i in numbers
        table.add_column(
            column,
            style="cyan" if i == 0 else None,
            justify="right" if right else "left",
            no_wrap=right or i == 0 or i in whole,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console(highlight=False).print(table)


def print_plain_components(rows: Sequence[Row], names: Sequence[str] | None = None) -> None:
    """Print tab-separated lines after a header. The numbers of a mean are exact and separated by commas.

    `names`: of the features; the header holds them. Labels come last, if there are any.
    """
    dated = not rows or any(row.born_at is not None for row in rows)
    labelled = any(row.label is not None for row in rows)
    mean = "mean" if names is None else f"mean[{','.join(names)}]"
    print_line("id", "weight", "mass", *(("born_at", "last_seen_at") if dated else ()), mean, *["label"] * labelled)
    for row in rows:
        mean = "" if row.mean is None else ",".join(repr(float(value)) for value in row.mean)
        seen = ["" if at is None else at for at in (row.born_at, row.last_seen_at)] if dated else []
        print_line(row.id, repr(float(row.weight)), repr(float(row.mass)), *seen, mean, *[row.label or ""] * labelled)


def print_component_table(title: str, rows: Sequence[Row], footer: str, names: Sequence[str] | None = None) -> None:
    """Print `component_table`."""
    from rich.console import Console

    Console(highlight=False).print(component_table(title, rows, footer, names))


def component_table(title: str, rows: Sequence[Row], footer: str, names: Sequence[str] | None = None) -> "Table":
    """Make a table with a bar for each weight. Long means are ticks, from low to high among the rows, per feature."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, caption=footer)
    table.caption_justify = "left"
    table.collapse_padding = True
    # Where a terminal is narrow, ticks are cut and numbers stay whole.
    table.add_column("id", justify="right", style="cyan", no_wrap=True)
    table.add_column("weight", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, style="blue")
    table.add_column("mass", justify="right", no_wrap=True)
    labelled = any(row.label is not None for row in rows)
    if labelled:
        table.add_column("label", overflow="fold", max_width=LABEL_WIDTH)
    head, *means = _means(rows, names)
    table.add_column(head, overflow="ellipsis")
    dated = any(row.born_at is not None for row in rows)
    for title_ in ("born at", "last seen") if dated else ():
        table.add_column(title_, justify="right", style="dim", no_wrap=True)
    heaviest = max((row.weight for row in rows), default=1.0) or 1.0
    widest = max(map(len, (head, *means)))
    bar = 12 if widest <= MOST_TICKS and not labelled else 6 if widest <= MOST_TICKS // 2 or not labelled else 0
    for row, mean in zip(rows, means, strict=True):
        seen = ["" if at is None else f"{at:,}" for at in (row.born_at, row.last_seen_at)] if dated else []
        label = [Text(row.label or "")] if labelled else []
        table.add_row(
            str(row.id),
            f"{row.weight:.4f}",
            weight_bar(row.weight / heaviest, bar),
            f"{row.mass:,.1f}",
            *label,
            mean,
            *seen,
        )
    return table


def _values(row: Row) -> list[str]:
    return [row.levels[i][:LEVEL_WIDTH] if i in row.levels else f"{value:.4g}" for i, value in enumerate(row.mean)]


def _means(rows: Sequence[Row], names: Sequence[str] | None) -> list[str]:
    """The head and the cells of the means: up to three features as numbers below one another, more as ticks."""
    means = [row.mean for row in rows if row.mean is not None]
    if not means:
        return [""] * (len(rows) + 1)
    if len(means[0]) <= MOST_NUMBERS:
        heads = [[name if len(name) <= LEVEL_WIDTH else f"{name[: LEVEL_WIDTH - 1]}…" for name in names or ()]]
        texts = heads + [[] if row.mean is None else _values(row) for row in rows]
        widths = [max(map(len, column)) for column in zip(*filter(None, texts), strict=True)]
        padded = ["  ".join(f"{one:>{width}}" for one, width in zip(text, widths, strict=False)) for text in texts]
        return [padded[0] or "mean", *padded[1:]]
    shown = [list(map(float, mean[:MOST_TICKS])) for mean in means]
    low, high = (
        [min(column) for column in zip(*shown, strict=True)],
        [max(column) for column in zip(*shown, strict=True)],
    )
    more = "…" if len(means[0]) > MOST_TICKS else ""
    ticks = ["" if row.mean is None else sparkline(list(map(float, row.mean[:MOST_TICKS])), low, high) for row in rows]
    return ["mean", *(tick + more if tick else "" for tick in ticks)]


def not_shown(n: int) -> str:
    """The line below a table that leaves out the `n` smallest rows."""
    return f"{n:,} smaller {'one is' if n == 1 else 'ones are'} not shown (--limit 0 shows all)"
