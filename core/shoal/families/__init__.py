"""Conjugate families: one module a family; everything derived is written once over the contract in `base`."""

from typing import Any

from shoal.families.base import AnyFamily, ConjugateFamily, take
from shoal.families.derived import expected_bound, join_gain, kl, log_marginal
from shoal.families.diagonal import NormalInverseGamma
from shoal.families.gaussian import NormalInverseWishart
from shoal.families.known_covariance import KnownCovariance

FAMILIES: dict[str, type[ConjugateFamily[Any, Any]]] = {
    family.name: family for family in (NormalInverseWishart, NormalInverseGamma, KnownCovariance)
}
"""Every family by its word on the wire."""

__all__ = [
    "FAMILIES",
    "AnyFamily",
    "ConjugateFamily",
    "KnownCovariance",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "expected_bound",
    "join_gain",
    "kl",
    "log_marginal",
    "take",
]
