"""The registry of families: every family by its name."""

from typing import Any, TypeVar, cast

from shoal.errors import SettingError
from shoal.families.base import AnyFamily, ConjugateFamily
from shoal.families.bernoulli import BetaBernoulli
from shoal.families.categorical import DirichletCategorical
from shoal.families.diagonal import NormalInverseGamma
from shoal.families.dirichlet import DirichletObservations
from shoal.families.gaussian import NormalInverseWishart
from shoal.families.known_covariance import KnownCovariance
from shoal.families.multinomial import DirichletMultinomial
from shoal.families.negative_binomial import BetaNegativeBinomial
from shoal.families.poisson import GammaPoisson
from shoal.families.student import MultivariateStudent
from shoal.families.subspace import SubspaceGaussian
from shoal.families.von_mises_fisher import VonMisesFisher

FAMILIES: dict[str, type[ConjugateFamily[Any, Any]]] = {
    family.name: family
    for family in (
        NormalInverseWishart,
        MultivariateStudent,
        NormalInverseGamma,
        KnownCovariance,
        DirichletMultinomial,
        BetaBernoulli,
        GammaPoisson,
        BetaNegativeBinomial,
        SubspaceGaussian,
        DirichletCategorical,
        cast(type[AnyFamily], DirichletObservations),
        cast(type[AnyFamily], VonMisesFisher),
    )
}
"""Every family by its name on the wire."""

DEFAULT_FAMILY = NormalInverseWishart.name
"""Family of a stream or a fit that does not choose one."""

_KindT = TypeVar("_KindT", bound=type[Any])


def register(kind: _KindT) -> _KindT:
    """Register a family under its name, for the settings of streams and for snapshots; a class decorator.

    The family is a `ConjugateFamily` or an `EstimatedFamily`. Without kernels of its own NumPy serves it.

    Raises SettingError where the name belongs to another family.
    """
    held = FAMILIES.get(kind.name)
    if held is not None and held.__qualname__ != kind.__qualname__:
        raise SettingError(f"there is a family {kind.name!r} already ({held.__qualname__}); choose another name")
    FAMILIES[kind.name] = cast(type[AnyFamily], kind)
    return kind
