"""Data frames of pandas and Polars, and tables of Arrow: names, moments in time, and the index."""

from typing import Any

import numpy as np


def moments_of(values: Any) -> Any:
    """An array of `datetime64[us]` in UTC from an array or a column of moments; None for anything else.

    A column is one of pandas, Polars or Arrow, with a time zone or without one; those without are in UTC. A missing
    moment is NaT.
    """
    if not hasattr(values, "__array__"):
        return None
    zoned = getattr(getattr(values, "dtype", None), "kind", None) == "M"  # NumPy would make objects of these
    found = np.asarray(values, dtype="datetime64[us]" if zoned else None)
    return found.astype("datetime64[us]", copy=False) if found.dtype.kind == "M" else None


def column_names(X: Any) -> list[str]:
    """The names of the columns of a data frame or of an Arrow table. Empty for anything else."""
    return list(map(str, getattr(X, "column_names", getattr(X, "columns", ()))))


def index_columns(schema: Any) -> frozenset[str]:
    """The columns of an Arrow schema in which pandas keeps the index of a data frame. It is no feature."""
    known = (schema.pandas_metadata or {}).get("index_columns", ())
    return frozenset(name for name in known if isinstance(name, str))
