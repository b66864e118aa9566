"""Texts of categories in tables of points, replaced by level numbers before the points are checked."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.errors import SettingError
from shoal.families import FAMILIES, family_exists, known_family
from shoal.mixture import category_columns_of
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

    X: a data frame of pandas, an array of objects or of texts, or a list of rows. Anything else comes back as it is, as
    do columns of another family than of categories, whose check then refuses texts. `known`: names that have numbers
    already. With `extend`, new texts get the next numbers; without, they are levels that nobody has seen.
    `feature_names`: of an earlier data frame, for rows without names. `max_state_bytes`: a
    setting of the stream, whose names have their share of it. `holes`: None and NaN are missing values.

    Raises NotNumericError, with the row, for a column of texts and other values.
    """
    columns = [] if issparse(X) else _category_columns(X, family, feature_names)
    if not columns:
        return X, known
    names = dict(known)
    room = budget_bytes(max_state_bytes) if isinstance(max_state_bytes, int) else math.inf
    frame = hasattr(X, "columns") and hasattr(X, "assign")
    table = X.copy() if frame else _table(X)
    if table is None:
        return X, known
    found = False
    for column in columns:
        values = np.asarray(table.iloc[:, column] if frame else table[:, column], dtype=object).tolist()
        if holes and frame:  # pandas has missing values of other types, too
            values = [None if gone else value for value, gone in zip(values, table.iloc[:, column].isna(), strict=True)]
        texts = texts_of(values, table.columns[column] if frame else column, holes=holes)
        if texts is None:
            continue
        found = True
        if extend:
            names[column] = extended(names.get(column, ()), texts, room / len(columns))
        numbers = numbers_of(texts, names.get(column, ()))
        if frame:
            table[table.columns[column]] = numbers
        else:
            table[:, column] = numbers
    return (table, names) if found else (X, known)


def _category_columns(X: Any, family: Any, feature_names: Sequence[str] | None) -> list[int]:
    """The columns of categories that may hold texts: none where X has only numbers by its type."""
    if getattr(getattr(X, "dtype", None), "kind", "O") not in "OUT":
        return []
    names = tuple(map(str, getattr(X, "columns", ()))) or feature_names
    try:
        text = known_family(family, names) if isinstance(family, str | Mapping) else getattr(family, "name", "")
        kind = FAMILIES[str(text)] if family_exists(text) else None
    except SettingError:  # later checks say so
        return []
    return [] if kind is None else list(category_columns_of(kind, _width(X)))


def _width(X: Any) -> int:
    shape = getattr(X, "shape", None)
    if shape is not None:
        return int(shape[1]) if len(shape) == 2 else 0
    first = X[0] if isinstance(X, list | tuple) and X else ()
    return len(first) if isinstance(first, list | tuple) else 0


def _table(X: Any) -> Any:
    """A copy of rows as an array (N, D) of objects; None where they are no table."""
    try:
        table = np.array(X, dtype=object)
    except ValueError:  # rows of different lengths
        return None
    return table if table.ndim == 2 else None
