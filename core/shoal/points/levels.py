"""Names of the levels of categories: texts, and the level numbers that stand for them.

The levels of a column are numbered in the order in which their texts come, from 0. So a number keeps its meaning, and
the same texts in the same order give the same numbers. The first `MOST_NAMED_LEVELS` texts of a column have numbers of
their own. All further ones are the level `OTHER_LEVEL`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from shoal.errors import NotNumericError
from shoal.points.arrays import Array

LevelNames: TypeAlias = Mapping[int, tuple[str, ...]]
"""Names of the levels by column: the name of level l at place l."""

MOST_NAMED_LEVELS = 1_000
"""Most levels of a column that have names."""

MAX_LEVEL_NAME = 200
"""Most characters of the name of a level."""

OTHER_LEVEL = float(MOST_NAMED_LEVELS)
"""The level of all texts without a number of their own. A family takes it as one that was not seen before."""


def budget_bytes(max_state_bytes: int) -> int:
    """Most bytes of the names of levels that points bring: a 32nd of the state's, at most 16 MiB."""
    return min(16 << 20, max_state_bytes // 32)


_OBJECT_BYTES = 64
"""Of a text in memory, beside its characters, with its place in a list."""


def extended(names: Sequence[str], texts: Iterable[str | None], room: float = math.inf) -> tuple[str, ...]:
    """The names with the new ones of some texts behind them, as far as there is room. `room`: most bytes of all. None
    is a missing text."""
    known = dict.fromkeys(names)
    room -= bytes_of_names(known)
    for text in texts:
        if text is None:
            continue
        needed = 0 if text in known else bytes_of_names([text])
        if 0 < needed <= room and len(known) < MOST_NAMED_LEVELS:  # whatever the batches that the texts come in
            known[text] = None
            room -= needed
    return tuple(known)


def bytes_of_names(names: Iterable[str]) -> int:
    """Bytes of some names in memory."""
    return sum(_OBJECT_BYTES + len(name.encode("utf-8", "surrogatepass")) for name in names)


def numbers_of(texts: Iterable[str | None], names: Sequence[str]) -> Array:
    """The level number of each text, `OTHER_LEVEL` for one without a name, and NaN for a missing one."""
    places: dict[str | None, float] = {name: float(place) for place, name in enumerate(names)} | {None: math.nan}
    return np.array([places.get(text, OTHER_LEVEL) for text in texts], dtype=np.float64)


def extends(names: Sequence[str], before: Sequence[str]) -> bool:
    """Whether names begin with those of before, so that every number keeps its meaning."""
    return tuple(names[: len(before)]) == tuple(before)


def texts_of(values: Sequence[Any], column: object, *, holes: bool = False) -> list[str | None] | None:
    """The values of a column, where they are texts; None where none is.

    With `holes`, None and NaN are missing values, and come back as None. Raises NotNumericError, with the row, for a
    column of texts and other values, and for an empty or too long text.
    """
    if not any(isinstance(value, str) for value in values):
        return None
    for row, value in enumerate(values):
        if holes and _is_missing(value):
            continue
        if not isinstance(value, str):
            raise NotNumericError(
                f"row {row} holds {value!r:.40} in column {column!r}, whose other values are texts; send one kind",
                row=row,
            )
        if not 1 <= len(value) <= MAX_LEVEL_NAME:
            raise NotNumericError(
                f"row {row} holds a text of {len(value)} characters in column {column!r}; the name of a level has 1 to "
                f"{MAX_LEVEL_NAME}",
                row=row,
            )
    return [str(value) if isinstance(value, str) else None for value in values]


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
