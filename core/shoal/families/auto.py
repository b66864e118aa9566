"""Families that some rows may be of, told by the domain that the rows lie in.

The rules are conservative: a domain is taken only where every row lies in it. Where several families share a domain,
they are candidates, and `sequential.family_choice` compares them.
"""

from typing import NamedTuple

import numpy as np

from shoal.families.bernoulli import BetaBernoulli
from shoal.families.diagonal import NormalInverseGamma
from shoal.families.dirichlet import DirichletObservations
from shoal.families.gaussian import NormalInverseWishart
from shoal.families.negative_binomial import BetaNegativeBinomial
from shoal.families.poisson import GammaPoisson
from shoal.families.student import MultivariateStudent
from shoal.families.subspace import SubspaceGaussian
from shoal.families.von_mises_fisher import VonMisesFisher
from shoal.points.arrays import Array
from shoal.points.domains import BINARY, COUNTS, FAULT

FEWEST_DIRECTIONS = 16
"""Features from which rows of length one are taken as directions: with fewer, it may be chance or a convention."""

EMBEDDING = 128
"""Features from which real rows are taken as embeddings: full covariances need more rows than a cluster has."""

SMALL_COUNT = 8.0
"""Largest median of the values above zero for which many columns of whole numbers are counts, such as words of texts.
Larger ones, such as pixels, are measurements that were rounded."""


class Candidates(NamedTuple):
    """Families to choose among, and what the rows are, in words."""

    default: str
    """The family to take unless another is clearly better."""
    others: tuple[str, ...]
    """The simplest first."""
    what: str
    whole_numbers: bool = False
    """Whether densities of real numbers are compared with probabilities of whole numbers."""
    comparable: bool = True
    """Whether all densities are of the same measure."""


def candidates_for(rows: Array) -> Candidates:
    """The families that rows (N, D), N >= 1, may be of."""
    d = rows.shape[1]
    real = SubspaceGaussian.name if d >= EMBEDDING else NormalInverseWishart.name
    if bool(BINARY.allowed(rows).all()):
        return Candidates(BetaBernoulli.name, (), "all values are 0 or 1")
    if bool(COUNTS.allowed(rows).all()):
        what = "all values are whole numbers, none is negative"
        if d < EMBEDDING:
            return Candidates(real, (GammaPoisson.name, BetaNegativeBinomial.name), what, whole_numbers=True)
        if np.median(rows[rows > 0.0]) <= SMALL_COUNT:
            return Candidates(GammaPoisson.name, (BetaNegativeBinomial.name,), f"{what}, most are 0 or small")
        return Candidates(real, (), f"{what}, with {EMBEDDING} features or more, and most are 0 or large")
    shares = d > 1 and bool((rows >= 0.0).all()) and bool((np.abs(rows.sum(axis=1) - 1.0) <= FAULT).all())
    if shares and bool((rows > 0.0).all()):
        what = "all rows are proportions: not negative, with the sum one"
        return Candidates(DirichletObservations.name, (real,), what, comparable=False)
    if d >= FEWEST_DIRECTIONS and bool((np.abs(np.sqrt((rows * rows).sum(axis=1)) - 1.0) <= FAULT).all()):
        return Candidates(VonMisesFisher.name, (real,), "all rows are unit vectors", comparable=False)
    if d >= EMBEDDING:
        return Candidates(real, (), f"rows are real numbers with {EMBEDDING} features or more")
    what = (
        "rows are proportions, some of them zero, where a Dirichlet has no density"
        if shares
        else "rows are real numbers"
    )
    return Candidates(real, (NormalInverseGamma.name, MultivariateStudent.name), what)


def usual_candidates(n_features: int) -> tuple[str, ...]:
    """The families that are compared for real numbers, which most points are: their kernels are compiled beforehand."""
    if n_features >= EMBEDDING:
        return (SubspaceGaussian.name,)
    return (NormalInverseWishart.name, NormalInverseGamma.name, MultivariateStudent.name)


def provisional_family(n_features: int) -> str:
    """The family of a stream whose family is not chosen yet: of real numbers, which all points are."""
    return NormalInverseWishart.name if n_features <= 32 else NormalInverseGamma.name
