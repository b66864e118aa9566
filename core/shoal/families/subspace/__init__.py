"""Gaussian components in a subspace of few directions, with noise outside it that all share."""

from shoal.families.subspace.prior import SubspaceGaussian
from shoal.families.subspace.types import SubspaceCache, SubspaceStats

__all__ = ["SubspaceCache", "SubspaceGaussian", "SubspaceStats"]
