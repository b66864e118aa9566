"""Checks of points for the estimators: by the rules of scikit-learn, then by the domain of the family."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from shoal.errors import InputError, NotFiniteError, NotNumericError, ShapeError
from shoal.families import FAMILIES, check_columns, family_exists, known_family
from shoal.mixture import LATEST_TIME, MAX_FEATURE_NAME
from shoal.offline import is_dataset
from shoal.points.arrays import Array, unmasked
from shoal.points.domains import REAL, Domain
from shoal.points.frames import column_names, moments_of
from shoal.points.rows import Points, issparse

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def domain_of(family: Any) -> Domain:
    """The domain of a family's name or of a prior; real numbers for other values, which later checks refuse."""
    if isinstance(family, str):
        return FAMILIES[family].domain if family_exists(family) else REAL
    domain = getattr(family, "domain", REAL)
    return domain if isinstance(domain, Domain) else REAL


def checked_for(estimator: Any, X: Any, family: Any, *, reset: bool, holes: bool = False) -> Points:
    """`checked_points` for a family: a name, a prior, or a mapping from columns to names, which may be those of a data
    frame. Raises SettingError for a mapping that names no product of these columns."""
    if not isinstance(family, Mapping):
        return checked_points(estimator, X, domain_of(family), reset=reset, holes=holes)
    x = checked_points(estimator, X, REAL, reset=reset, holes=holes)
    text = known_family(family, feature_names_of(estimator))
    check_columns(text, x.shape[1])
    FAMILIES[text].domain.check(x, holes=holes)
    return x


def checked_points(estimator: Any, X: Any, domain: Domain, *, reset: bool, holes: bool = False) -> Points:
    """Checked rows X (N, D); sets or checks `n_features_in_`. `holes`: NaN stands for a missing value.

    Raises ShapeError, NotFiniteError, OutsideDomainError, and ValueError or TypeError where scikit-learn refuses.
    """
    if is_dataset(X):
        raise InputError(
            "files and data sets on disk are read by DPMixture.fit and DPMixture.write_predictions only; read the rows "
            "and give them as an array or a data frame"
        )
    X = unmasked(X)
    if not reset and _as_before(estimator, X):
        with suppress(NotFiniteError):  # scikit-learn raises its own error below
            return domain.points(X, holes=holes)
    if issparse(X) and not domain.sparse:
        domain.points(X)  # raises
    whole = getattr(getattr(X, "dtype", None), "kind", "f") in "iu"
    accept = ["csr"] if domain.sparse else False
    dtype = None if domain.sparse and whole else np.float64
    finite: Any = "allow-nan" if holes else True
    rules: Any = {"dtype": dtype, "order": "C", "accept_sparse": accept, "ensure_all_finite": finite}
    try:
        x = validate_data(estimator, X, reset=reset, **rules)
    except ValueError:
        _refuse_text(X)
        _refuse_not_finite(estimator, X, domain, holes)
        raise
    return domain.points(x, holes=holes)


def _refuse_text(X: Any) -> None:
    """Raise NotNumericError for the first text in a table that is no number. It says what texts need."""
    if getattr(getattr(X, "dtype", None), "kind", "O") not in "OUT" or issparse(X):
        return
    names = column_names(X)
    for row, values in enumerate(np.array(X, dtype=object)):
        for column, value in enumerate(values if np.ndim(values) else ()):
            try:
                float(value if isinstance(value, str) else 0.0)
            except ValueError:
                raise NotNumericError(
                    f"row {row} holds {value!r:.60} in column {names[column] if names else column!r}, which is none of "
                    "categories; name the family of each column, as in family={0: 'gaussian', 1: 'categorical'}",
                    row=row,
                ) from None


def _refuse_not_finite(estimator: Any, X: Any, domain: Domain, holes: bool) -> None:
    """Raise NotFiniteError for the first NaN or infinity of a table, with its row and feature. scikit-learn names
    neither. `holes`: NaN is allowed."""
    if getattr(getattr(X, "dtype", None), "kind", "f") == "c":
        return
    if issparse(X):
        domain.points(X, holes=holes)
        return
    try:
        x = X.to_numpy(np.float64, na_value=np.nan) if hasattr(X, "iloc") else np.asarray(X, np.float64)
    except (TypeError, ValueError):
        return
    bad = np.isinf(x) if holes else ~np.isfinite(x)
    if bad.ndim != 2 or not bad.any():
        return
    row = int(bad.any(axis=1).argmax())
    column = int(bad[row].argmax())
    names = column_names(X)
    place = f"feature {names[column]!r}" if names else f"column {column}"
    missing = bool(np.isnan(x[row, column]))
    advice = ", or set missing='marginal'" if missing and hasattr(estimator, "missing") else ""
    value = "NaN" if missing else repr(float(x[row, column]))
    raise NotFiniteError(f"row {row} holds {value} in {place}; send finite numbers{advice}", row=row)


def checked_times(times: Any, n: int) -> Array:
    """Times (n,) in seconds since 1970, from numbers, `numpy.datetime64` (UTC), a column of moments of a data frame, or
    `datetime` with a time zone. Raises ShapeError, InputError."""
    moments = moments_of(times)
    given = np.asarray(times) if moments is None else moments
    if moments is not None:
        given = np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1e6)
    elif given.dtype.kind == "O" and given.ndim == 1:
        given = np.array([_seconds(value, row) for row, value in enumerate(given)], dtype=object)
    try:
        found = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"times are not numbers ({error}); give seconds since 1970, or datetime64") from error
    if found.shape != (n,):
        raise ShapeError(f"times have shape {found.shape} for {n} points; give one for each point")
    if not np.all(np.abs(found) < LATEST_TIME):
        row = int(np.flatnonzero(~(np.abs(found) < LATEST_TIME))[0])
        raise InputError(f"the time of row {row} is {float(found[row])}; give seconds since 1970")
    return found


def _seconds(time: Any, row: int) -> Any:
    """The seconds since 1970 of a `datetime`. Anything else as it is. Raises InputError for one without a zone."""
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise InputError(f"the time of row {row} is {time}, without a time zone; use a datetime with tzinfo")
    return (time - _EPOCH).total_seconds()


def feature_names_of(estimator: Any) -> tuple[str, ...] | None:
    """The names of a data frame's columns that `fit` was given; None without any, and where two are the same."""
    names = tuple(map(str, getattr(estimator, "feature_names_in_", ())))
    usable = 0 < len(names) == len(set(names)) and all(0 < len(name) <= MAX_FEATURE_NAME for name in names)
    return names if usable else None


def _as_before(estimator: Any, X: Any) -> bool:
    """Whether X is a plain array with rows of the known length. It replaces checks of scikit-learn that are slow for
    small chunks."""
    if type(X) is not np.ndarray or X.dtype != np.float64 or X.ndim != 2 or len(X) == 0:
        return False
    return X.shape[1] == estimator.n_features_in_ and not hasattr(estimator, "feature_names_in_")
