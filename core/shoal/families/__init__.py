"""The families, one module each. Of conjugate ones everything derived is written once over the contract in `base`; the
others, learnt by stochastic gradient, stand on `estimated`."""

from typing import Any, TypeVar, cast

from shoal.errors import SettingError
from shoal.families.base import AnyFamily, ConjugateFamily, take
from shoal.families.bernoulli import BetaBernoulli
from shoal.families.derived import collapsed_log_marginal, expected_bound, join_gain, kl, log_marginal, scale_inplace
from shoal.families.diagonal import NormalInverseGamma
from shoal.families.dirichlet import DirichletObservations
from shoal.families.estimated import EstimatedFamily, EstimateStats, is_conjugate
from shoal.families.gaussian import NormalInverseWishart
from shoal.families.known_covariance import KnownCovariance
from shoal.families.multinomial import DirichletMultinomial
from shoal.families.poisson import GammaPoisson
from shoal.families.von_mises_fisher import VonMisesFisher

FAMILIES: dict[str, type[ConjugateFamily[Any, Any]]] = {
    family.name: family
    for family in (
        NormalInverseWishart,
        NormalInverseGamma,
        KnownCovariance,
        DirichletMultinomial,
        BetaBernoulli,
        GammaPoisson,
        cast(type[AnyFamily], DirichletObservations),
        cast(type[AnyFamily], VonMisesFisher),
    )
}
"""Every family by its word on the wire."""

_KindT = TypeVar("_KindT", bound=type[EstimatedFamily])


def register(kind: _KindT) -> _KindT:
    """Make a family of your own known by its name, for the settings of streams and for snapshots; a class decorator.

    Raises SettingError where the name belongs to another.
    """
    held = FAMILIES.get(kind.name)
    if held is not None and held.__qualname__ != kind.__qualname__:
        raise SettingError(f"there is a family {kind.name!r} already ({held.__qualname__}); choose another name")
    FAMILIES[kind.name] = cast(type[AnyFamily], kind)
    return kind


__all__ = [
    "FAMILIES",
    "AnyFamily",
    "BetaBernoulli",
    "ConjugateFamily",
    "DirichletMultinomial",
    "DirichletObservations",
    "EstimateStats",
    "EstimatedFamily",
    "GammaPoisson",
    "KnownCovariance",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "VonMisesFisher",
    "collapsed_log_marginal",
    "expected_bound",
    "is_conjugate",
    "join_gain",
    "kl",
    "log_marginal",
    "register",
    "scale_inplace",
    "take",
]
