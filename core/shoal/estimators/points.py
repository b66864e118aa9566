"""Points as the estimators take them: checked by scikit-learn's rules, then at the door of the family's domain."""

from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from shoal.errors import NotFiniteError
from shoal.families import FAMILIES
from shoal.points.domains import REAL, Domain
from shoal.points.rows import Points, issparse


def domain_of(family: Any) -> Domain:
    """The domain of a family's name or of a prior; of what is neither, which is refused elsewhere, any real numbers."""
    if isinstance(family, str):
        return FAMILIES[family].domain if family in FAMILIES else REAL
    domain = getattr(family, "domain", REAL)
    return domain if isinstance(domain, Domain) else REAL


def checked_points(estimator: Any, X: Any, domain: Domain, *, reset: bool) -> Points:
    """Rows X (N, D) in the form in which they are held; sets or checks `n_features_in_`.

    Raises ShapeError, NotFiniteError, OutsideDomainError, and ValueError or TypeError where scikit-learn refuses.
    """
    if not reset and _as_before(estimator, X):
        with suppress(NotFiniteError):  # of which scikit-learn says it in words of its own
            return domain.points(X)
    if issparse(X) and not domain.sparse:
        domain.points(X)  # raises
    whole = getattr(getattr(X, "dtype", None), "kind", "f") in "iu"
    accept = ["csr"] if domain.sparse else False
    dtype = None if domain.sparse and whole else np.float64
    x = validate_data(estimator, X, reset=reset, dtype=dtype, order="C", accept_sparse=accept)
    return domain.points(x)


def _as_before(estimator: Any, X: Any) -> bool:
    """Whether X is a plain array with rows of the length known: all that scikit-learn would look at besides, at a cost
    that shows where chunks are small."""
    if type(X) is not np.ndarray or X.dtype != np.float64 or X.ndim != 2 or len(X) == 0:
        return False
    return X.shape[1] == estimator.n_features_in_ and not hasattr(estimator, "feature_names_in_")
