"""Families of distributions, one folder each.

`base` holds the contract of a conjugate family and `derived` what follows from it. Families without
statistics that add are learnt by stochastic gradient and stand on `estimated`. `registry` knows every family by its
name.
"""

from shoal.families.base import AnyFamily, ConjugateFamily, concatenated, take
from shoal.families.bernoulli import BetaBernoulli
from shoal.families.categorical import DirichletCategorical
from shoal.families.derived import collapsed_log_marginal, expected_bound, join_gain, kl, log_marginal, scale_inplace
from shoal.families.diagonal import NormalInverseGamma
from shoal.families.dirichlet import DirichletObservations
from shoal.families.dirichlet_gradient import DirichletByGradient
from shoal.families.estimated import EstimatedFamily, EstimateStats, is_conjugate
from shoal.families.gaussian import NormalInverseWishart
from shoal.families.known_covariance import KnownCovariance
from shoal.families.multinomial import DirichletMultinomial
from shoal.families.negative_binomial import BetaNegativeBinomial
from shoal.families.poisson import GammaPoisson
from shoal.families.product import ProductPrior, names_given
from shoal.families.registry import (
    DEFAULT_FAMILY,
    FAMILIES,
    check_columns,
    family_exists,
    known_family,
    register,
    shown_family,
)
from shoal.families.student import MultivariateStudent
from shoal.families.subspace import SubspaceGaussian
from shoal.families.von_mises_fisher import VonMisesFisher

__all__ = [
    "DEFAULT_FAMILY",
    "FAMILIES",
    "AnyFamily",
    "BetaBernoulli",
    "BetaNegativeBinomial",
    "ConjugateFamily",
    "DirichletByGradient",
    "DirichletCategorical",
    "DirichletMultinomial",
    "DirichletObservations",
    "EstimateStats",
    "EstimatedFamily",
    "GammaPoisson",
    "KnownCovariance",
    "MultivariateStudent",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "ProductPrior",
    "SubspaceGaussian",
    "VonMisesFisher",
    "check_columns",
    "collapsed_log_marginal",
    "concatenated",
    "expected_bound",
    "family_exists",
    "is_conjugate",
    "join_gain",
    "kl",
    "known_family",
    "log_marginal",
    "names_given",
    "register",
    "scale_inplace",
    "shown_family",
    "take",
]
