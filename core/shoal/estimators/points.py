"""Points as the estimators take them: checked by scikit-learn's rules, then at the door of the family's domain."""

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from shoal.domains import REAL, Domain
from shoal.families import FAMILIES
from shoal.rows import Points, issparse


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
    if issparse(X) and not domain.sparse:
        domain.points(X)  # raises
    whole = getattr(getattr(X, "dtype", None), "kind", "f") in "iu"
    accept = ["csr"] if domain.sparse else False
    dtype = None if domain.sparse and whole else np.float64
    x = validate_data(estimator, X, reset=reset, dtype=dtype, order="C", accept_sparse=accept)
    return domain.points(x)
