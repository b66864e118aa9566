"""The registry of families: every family by its name."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from shoal.errors import SettingError, counted
from shoal.families.base import AnyFamily, ConjugateFamily
from shoal.families.bernoulli import BetaBernoulli
from shoal.families.capabilities import blocks_of, has_latent_variables
from shoal.families.categorical import DirichletCategorical
from shoal.families.diagonal import NormalInverseGamma
from shoal.families.dirichlet import DirichletObservations
from shoal.families.dirichlet_gradient import DirichletByGradient
from shoal.families.estimated import is_conjugate
from shoal.families.gaussian import NormalInverseWishart
from shoal.families.known_covariance import KnownCovariance
from shoal.families.multinomial import DirichletMultinomial
from shoal.families.negative_binomial import BetaNegativeBinomial
from shoal.families.poisson import GammaPoisson
from shoal.families.product import canonical_text, is_text_of_product, mapping_of, product_class
from shoal.families.student import MultivariateStudent
from shoal.families.subspace import SubspaceGaussian
from shoal.families.von_mises_fisher import VonMisesFisher


class Families(dict[str, type[ConjugateFamily[Any, Any]]]):
    """Families by name. The canonical text of a product gives its class too, without being listed."""

    def __missing__(self, name: str) -> type[AnyFamily]:
        """The class of a product. Raises KeyError for another unknown name, SettingError for an invalid product."""
        if not is_text_of_product(name):
            raise KeyError(name)
        return cast(type[AnyFamily], product_class(name, _part))


def _part(name: str) -> type[AnyFamily]:
    """A family that can be a block of a product."""
    kind = FAMILIES.get(name)
    if kind is None or not _adds_evidence(kind):
        possible = ", ".join(other for other, each in FAMILIES.items() if _adds_evidence(each))
        raise SettingError(f"{name[:80]!r} cannot be a family of columns; choose among {possible}")
    return kind


def _adds_evidence(kind: type[AnyFamily]) -> bool:
    """Whether a family has the evidence of its points, which a product adds up."""
    return is_conjugate(kind) and not has_latent_variables(kind)


FAMILIES = Families(
    (family.name, family)
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
        DirichletObservations,
        cast(type[AnyFamily], DirichletByGradient),
        cast(type[AnyFamily], VonMisesFisher),
    )
)
"""Every family by its name on the wire."""

DEFAULT_FAMILY = NormalInverseWishart.name
"""Family of a stream or a fit that does not choose one."""

_KindT = TypeVar("_KindT", bound=type[Any])


def known_family(family: Any, names: Sequence[str] | None = None) -> Any:
    """A family as settings name it: a mapping of columns (or `names` of features) to families, also as JSON, as its
    canonical text, and everything else as it is. Raises SettingError for a mapping that names no product."""
    if is_text_of_product(family):
        family = mapping_of(family)
    if not isinstance(family, Mapping):
        return family
    return FAMILIES[canonical_text(family, names)].name


def shown_family(family: str, names: Sequence[str] | None = None) -> str | dict[str, str]:
    """A family as users write it: a product as a mapping, from the names of features where there are any, else from
    columns."""
    blocks = blocks_of(FAMILIES[family])
    if not blocks:
        return family
    if names is None:
        return mapping_of(family)
    owner = {int(column): block.kind.name for block in blocks for column in block.columns}
    return {name: owner[column] for column, name in enumerate(names)}


def family_exists(family: Any) -> bool:
    """Whether a name is that of a family, or the canonical text of a product. Raises SettingError for an invalid
    product."""
    if is_text_of_product(family):
        return bool(FAMILIES[family].name == family)
    return isinstance(family, str) and family in FAMILIES


def check_columns(family: str, n_features: int) -> None:
    """Raise SettingError for fewer columns than the family, or a family of columns, needs, and for a product that names
    other columns than those of `n_features`."""
    kind = FAMILIES[family]
    if hasattr(kind, "check_features"):
        kind.check_features(n_features)
    parts = [(block.kind, len(block.columns)) for block in blocks_of(kind)]
    for part, size in parts or [(kind, n_features)]:
        fewest = getattr(part, "fewest_features", 1)
        if size < fewest:
            given = f"{'it is given' if parts else 'the points have'} {counted(size, 'feature')}"
            raise SettingError(
                f"family {part.name!r} needs {fewest} features or more, but {given}; send more columns or choose "
                "another family"
            )


def register(kind: _KindT) -> _KindT:
    """Register a family under its name, for the settings of streams and for snapshots; a class decorator.

    The family is a `ConjugateFamily` or an `EstimatedFamily`. Without kernels of its own NumPy serves it.

    Raises SettingError where the name belongs to another family.
    """
    known = FAMILIES.get(kind.name)
    if known is not None and known.__qualname__ != kind.__qualname__:
        raise SettingError(f"there is a family {kind.name!r} already ({known.__qualname__}); choose another name")
    FAMILIES[kind.name] = cast(type[AnyFamily], kind)
    return kind
