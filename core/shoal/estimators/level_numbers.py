"""Texts of categories in tables of points, replaced by level numbers before the points are checked."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.errors import SettingError
from shoal.families import FAMILIES, family_exists, known_family
from shoal.mixture import category_columns_of
from shoal.points.arrays import unmasked
from shoal.points.frames import column_names
from shoal.points.levels import LevelNames, budget_bytes, extended, numbers_of, texts_of
from shoal.points.rows import issparse


def with_level_numbers(
    X: Any,
    family: Any,
    known: LevelNames,
    *,
    extend: bool,
    feature_names: Sequence[str] | None = None,
    max_state_bytes: Any = None,
    holes: bool = False,
) -> tuple[Any, LevelNames]:
    """The rows X (N, D) with numbers in the place of texts, and the names of the levels, by column.

    X: a data frame of pandas or Polars, a table of Arrow, an array of objects or of texts, or a list of rows. Anything
    else comes back as it is, as do columns of another family than of categories, whose check then refuses texts.
    `known`: names that have numbers already. With `extend`, new texts get the next numbers; without, they are levels
    that nobody has seen. `feature_names`: of an earlier data frame, for rows without names. `max_state_bytes`: a
    setting of the stream, whose names have their share of it. `holes`: None and NaN are missing values.

    Raises NotNumericError, with the row, for a column of texts and other values.
    """
    columns = [] if issparse(X) else _category_columns(X, family, feature_names)
    if not columns:
        return X, known
    names = dict(known)
    room = budget_bytes(max_state_bytes) if isinstance(max_state_bytes, int) else math.inf
    titles = column_names(X)
    table = X if titles else _table(X)
    if table is None:
        return X, known
    found = False
    for column in columns:
        texts = texts_of(_values(table, column, holes), titles[column] if titles else column, holes=holes)
        if texts is None:
            continue
        found = True
        if extend:
            names[column] = extended(names.get(column, ()), texts, room / len(columns))
        table = _with_numbers(table, column, numbers_of(texts, names.get(column, ())))
    return (table, names) if found else (X, known)


def _category_columns(X: Any, family: Any, feature_names: Sequence[str] | None) -> list[int]:
    """The columns of categories that may hold texts: none where X has only numbers by its type."""
    if getattr(getattr(X, "dtype", None), "kind", "O") not in "OUT":
        return []
    names = tuple(column_names(X)) or feature_names
    try:
        text = known_family(family, names) if isinstance(family, str | Mapping) else getattr(family, "name", "")
        kind = FAMILIES[str(text)] if family_exists(text) else None
    except SettingError:  # later checks say so
        return []
    return [] if kind is None else list(category_columns_of(kind, _width(X)))


def _values(table: Any, column: int, holes: bool) -> list[Any]:
    """A column of a data frame, a table of Arrow or an array; None for a missing value where there may be some."""
    if hasattr(table, "set_column"):  # Arrow
        values: list[Any] = table.column(column).to_pylist()
    elif hasattr(table, "to_series"):  # Polars
        values = table.to_series(column).to_list()
    elif hasattr(table, "iloc"):  # pandas, whose missing values are of several types
        values = np.asarray(table.iloc[:, column], dtype=object).tolist()
        if holes:
            missing = table.iloc[:, column].isna()
            values = [None if gone else value for value, gone in zip(values, missing, strict=True)]
    else:
        values = np.asarray(table[:, column], dtype=object).tolist()
    return values


def _with_numbers(table: Any, column: int, numbers: Any) -> Any:
    """A table with numbers in a column; an array of `_table` is changed in place."""
    if hasattr(table, "set_column"):
        return table.set_column(column, table.column_names[column], [numbers])
    if hasattr(table, "to_series"):
        return table.with_columns(type(table.to_series(column))(table.columns[column], numbers))
    if hasattr(table, "iloc"):
        table = table.copy(deep=False)
        table[table.columns[column]] = numbers
        return table
    table[:, column] = numbers
    return table


def _width(X: Any) -> int:
    shape = getattr(X, "shape", None)
    if shape is not None:
        return int(shape[1]) if len(shape) == 2 else 0
    first = X[0] if isinstance(X, list | tuple) and X else ()
    return len(first) if isinstance(first, list | tuple) else 0


def _table(X: Any) -> Any:
    """A copy of rows as an array (N, D) of objects; None where they are no table."""
    try:
        table = np.array(unmasked(X), dtype=object)
    except ValueError:  # rows of different lengths
        return None
    return table if table.ndim == 2 else None
