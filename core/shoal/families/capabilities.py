"""Abilities that a family may declare beside the contract in `base`.

Each is a method, described by a small Protocol, and is read through a function that holds what is done without it. So
an engine asks for the ability and never for the family. More of them stand beside their default: natural statistics in
`natural_statistics`, choices of priors in `prior_choices`, the predictive cache in `predictive_cache`.
"""

from typing import Any, ClassVar, NamedTuple, Protocol, cast

import numpy as np

from shoal.families.base import AnyFamily
from shoal.families.derived import log_marginal
from shoal.families.located.types import WeightedMoments
from shoal.families.natural_statistics import (
    Origin,
    has_location,
    origin_for,
    seen_from,
    statistics,
    statistics_table,
)
from shoal.points.arrays import Array
from shoal.points.rows import SparseRows

_BLOCK_ELEMENTS = 1 << 19


class QuadraticForm(NamedTuple):
    """Scores of T components: E log p(x | k) = constant_k - |root_k (x - centre_k)|^2 / 2."""

    constant: Array  # (T,)
    centre: Array  # (T, D)
    root: Array  # (T, D, D) lower triangular, or (T, D) the diagonal
    inverse: Array  # of `root`


class HasQuadraticForm(Protocol):
    """A family whose expected log densities are quadratic in the point."""

    def quadratic_form(self, params: Any) -> QuadraticForm | None:
        """The scores of components as quadratic forms; None for a prior under which they have no quick one."""


def quadratic_form(family: AnyFamily, params: Any) -> QuadraticForm | None:
    """The scores of components as quadratic forms; None where they are none."""
    return cast(HasQuadraticForm, family).quadratic_form(params) if hasattr(family, "quadratic_form") else None


class CollectsMoments(Protocol):
    """A family with a quadratic form whose statistics follow from weighted first and second moments."""

    def stats_of_moments(self, sums: WeightedMoments, most: float, past: Any) -> Any | None:
        """See the function of that name."""

    def scatter_in_layout(self, scatter: Array) -> Array:
        """Scatters (K, D, D), or their diagonals (K, D) where those suffice, in the layout of the statistics."""


def stats_of_moments(family: AnyFamily, sums: WeightedMoments, most: float, past: Any) -> Any | None:
    """Statistics (T) of the points behind the moments and of the past together, by a kernel.

    None where a second moment is more than `most` times what is left of it about the points' own mean: too many digits
    would be lost, and the moments are to be summed again about a nearer centre.
    """
    return cast(CollectsMoments, family).stats_of_moments(sums, most, past)


def scatter_in_layout(family: AnyFamily, scatter: Array) -> Array:
    """Scatters (K, D, D), or their diagonals (K, D) where those suffice, in the layout of the family's statistics."""
    return cast(CollectsMoments, family).scatter_in_layout(scatter)


def reads_all_products(family: AnyFamily) -> bool:
    """Whether t(x) is (x, 1, 1, all products of two features), as `QuadraticRows` computes it without a table."""
    return bool(getattr(family, "reads_all_products", False))


class SplitPrior(NamedTuple):
    """A normal-inverse-Wishart prior, or one that reads like it."""

    mean: Array  # (D,)
    strength: float
    dof: float
    """0: the covariance is known."""
    scale: Array  # (D, D), or (D,) where it is diagonal


class HasSplitPrior(Protocol):
    """A family whose components a compiled two-way split can divide."""

    def split_prior(self) -> SplitPrior | None:
        """The prior as the kernel reads it; None where the general search is the faster one."""


def split_prior(family: AnyFamily) -> SplitPrior | None:
    """The prior as the compiled two-way split reads it; None for a family that it cannot divide."""
    return cast(HasSplitPrior, family).split_prior() if hasattr(family, "split_prior") else None


class HasWorkingRows(Protocol):
    """A family that reads little of a point, and accepts rows of that little in place of points."""

    def working_rows(self, x: Any) -> Array:
        """See the function of that name."""


def working_rows(family: AnyFamily, x: Any) -> Any:
    """Points x (N, D) in the form in which engines hold them: every method of the family accepts either, and reads this
    one faster. The points themselves for most families."""
    return cast(HasWorkingRows, family).working_rows(x) if hasattr(family, "working_rows") else x


class ColumnBlock(NamedTuple):
    """A block of columns and its family."""

    kind: type[AnyFamily]
    columns: Any  # (E,) of int64


def blocks_of(kind: type[AnyFamily]) -> tuple[ColumnBlock, ...]:
    """The blocks of a family that is a product of others; none for any other family."""
    kinds = getattr(kind, "kinds", ())
    return tuple(
        ColumnBlock(block, columns) for block, columns in zip(kinds, getattr(kind, "columns", ()), strict=True)
    )


class RefitsToRows(Protocol):
    """A family with a part of its prior that is fitted to points, not chosen among candidates."""

    def refitted(self, x: Array, weights: Array, past: Any) -> AnyFamily:
        """See the function of that name."""

    def lags_behind(self, stats: Any, past: Any) -> bool:
        """See the function of that name."""


def is_refitted(family: AnyFamily) -> bool:
    """Whether a part of the family's prior is fitted to points again."""
    return hasattr(family, "refitted")


def refitted(family: AnyFamily, x: Any, weights: Array, past: Any) -> AnyFamily:
    """The family fitted to points x (N, D) with weights (N,), and to others of which there are statistics `past` (T
    rows); the family itself where that would change little. Statistics follow by `prior_choices.restated`."""
    return cast(RefitsToRows, family).refitted(x, weights, past)


def lags_behind(family: AnyFamily, stats: Any, past: Any) -> bool:
    """Whether points with statistics `stats` (T rows), without those of `past`, are so unlike those that the family was
    fitted to that it is to be fitted again soon; never for a family that is not fitted to points."""
    return is_refitted(family) and cast(RefitsToRows, family).lags_behind(stats, past)


class SplitsByPart(Protocol):
    """A family whose compiled two-way split reads a part of each row."""

    def split_rows(self, x: Array) -> Array:
        """See the function of that name."""


def split_rows(family: AnyFamily, x: Array) -> Array:
    """The part (N, E) of rows x that `split_prior` is a prior of: the rows themselves for most families."""
    return cast(SplitsByPart, family).split_rows(x) if hasattr(family, "split_rows") else x


class HasFastEvidence(Protocol):
    """A family with a kernel for its evidence."""

    def fast_log_marginal(self, stats: Any) -> Array | None:
        """log m(S_k) (T,), nats; None where the kernel cannot say."""


def fast_log_marginal(family: AnyFamily, stats: Any) -> Array:
    """log m(S_k) (T,), nats: `derived.log_marginal` to rounding, by a kernel where there is one."""
    if hasattr(family, "fast_log_marginal"):
        value = cast(HasFastEvidence, family).fast_log_marginal(stats)
        if value is not None:
            return value
    return log_marginal(family, stats)


class HasGradientAtOnce(Protocol):
    """A family whose log partition function and its gradient share most of their work."""

    def log_partition_with_gradient(self, params: Any) -> tuple[Array, Array]:
        """See the function of that name."""


def log_partition_with_gradient(family: AnyFamily, params: Any) -> tuple[Array, Array]:
    """The log partition function (T,) and its gradient, the mean parameters (T, P)."""
    if hasattr(family, "log_partition_with_gradient"):
        return cast(HasGradientAtOnce, family).log_partition_with_gradient(params)
    return family.log_partition(params), family.mean_params(params)


class LeavesOut(Protocol):
    """A family that scores a component's own points without them in closed form."""

    def log_left_out(self, component: Any, x: Any, share: Array) -> Array:
        """See the function of that name."""


def log_left_out(family: AnyFamily, component: Any, x: Any, share: Array) -> Array:
    """log p(x | the component without it) (M,) of points x (M, D) that are in it with weights `share` (M,)."""
    if hasattr(family, "log_left_out"):
        return cast(LeavesOut, family).log_left_out(component, x, share)
    return log_left_out_by_partition(family, component, x, share)


def log_left_out_by_partition(family: AnyFamily, component: Any, x: Any, share: Array) -> Array:
    """The same for any family. With A the log partition function of the conjugate prior and s the natural parameters
    of the posterior without a point, log p(x) = A(s + t(x)) - A(s) + log h(x): all points of a block at once.
    """
    origin = Origin(component.mean[0], True) if has_location(family) else origin_for(family, x)
    whole = family.natural(seen_from(family, family.posterior(component), origin))
    scores = np.empty(len(share))
    step = max(1, _BLOCK_ELEMENTS // whole.size)
    for start in range(0, len(share), step):
        part = slice(start, start + step)
        rows, log_carrier = statistics(family, x[part], origin)
        rows = rows.toarray() if isinstance(rows, SparseRows) else rows
        rest = whole - share[part, None] * rows
        scores[part] = _log_partition(family, rest + rows) - _log_partition(family, rest) + log_carrier
    return scores


def _log_partition(family: AnyFamily, natural: Array) -> Array:
    return np.asarray(family.log_partition(family.from_natural(natural)))


class HasLatentVariables(Protocol):
    """A family with a latent variable at each point, such as the precision factor of a Student t.

    Its statistics hold a distribution of that variable, which `suffstats` takes as typical. Evidence of statistics is
    then a lower bound; engines that need the evidence itself refuse the family.
    """

    def suffstats_given(self, params: Any, x: Any, resp: Array) -> Any:
        """See the function of that name."""

    def natural_rows_given(self, params: Any, x: Any, origin: Origin) -> Array:
        """See the function of that name."""

    def absorbed(self, stats: Any, x: Any, resp: Array) -> Any:
        """See the function of that name."""


LATENT_ROUNDS = 8
"""Rounds by which `fitted_suffstats` fits latent variables and parameters to each other."""


def has_latent_variables(family: Any) -> bool:
    """Whether a family (class or prior) has a latent variable at each point, so that its evidence is a lower bound."""
    return hasattr(family, "suffstats_given")


def suffstats_given(family: AnyFamily, params: Any, x: Any, resp: Array) -> Any:
    """Statistics (K) of points x (N, D) under resp (N, K), the latent variables at their best given the components'
    posteriors `params` (K). Most families have none."""
    if not hasattr(family, "suffstats_given"):
        return family.suffstats(x, resp)
    return cast(HasLatentVariables, family).suffstats_given(params, x, resp)


def fitted_suffstats(family: AnyFamily, x: Any, resp: Array) -> Any:
    """Statistics (K) of points x (N, D) under resp (N, K), latent variables and parameters fitted to each other."""
    stats = family.suffstats(x, resp)
    if hasattr(family, "suffstats_given"):
        for _ in range(LATENT_ROUNDS):
            stats = suffstats_given(family, family.posterior(stats), x, resp)
    return stats


def natural_rows_given(family: AnyFamily, params: Any, x: Any, origin: Origin) -> Any:
    """t(x) (N, P) of points x (N, D), the latent variables at their best given one component's posterior (one row).

    As `natural_statistics.statistics_table`.
    """
    if not hasattr(family, "natural_rows_given"):
        return statistics_table(family, x, origin)
    return cast(HasLatentVariables, family).natural_rows_given(params, x, origin)


def absorbed(family: AnyFamily, stats: Any, x: Any, resp: Array) -> Any:
    """Statistics (K) with a point x (1, D) added under resp (1, K), its latent variables fitted with the components."""
    if not hasattr(family, "absorbed"):
        return family.add(stats, family.suffstats(x, resp))
    return cast(HasLatentVariables, family).absorbed(stats, x, resp)


class ReadsEarlierStatistics(Protocol):
    """A family whose statistics had other fields in an earlier version, which stored states may still have."""

    earlier_stats_fields: ClassVar[tuple[str, ...]]
    """Their names."""

    def stats_from_earlier(self, *fields: Array) -> Any:
        """The statistics that say the same, from the arrays of those fields."""


def earlier_stats_fields(family: AnyFamily) -> tuple[str, ...]:
    """The fields that statistics of the family had in an earlier version; none for most families."""
    return cast(ReadsEarlierStatistics, family).earlier_stats_fields if hasattr(family, "stats_from_earlier") else ()


def stats_from_earlier(family: AnyFamily, *fields: Array) -> Any:
    """Statistics of a family from the arrays that an earlier version had in their place."""
    return cast(ReadsEarlierStatistics, family).stats_from_earlier(*fields)


class HasCore(Protocol):
    """A family of heavy tails, so that variances say little of where most points of a component lie."""

    def core_variance(self, stats: Any) -> Array:
        """See the function of that name."""


def core_variance(family: AnyFamily, stats: Any) -> Array | None:
    """Variances (K, D) of components without what heavy tails add to them; None for families without such tails."""
    return cast(HasCore, family).core_variance(stats) if hasattr(family, "core_variance") else None


class ExpectsCovariance(Protocol):
    """A family whose prior expects a covariance within components."""

    def expected_covariance(self) -> Array:
        """In proportion: a number, (D,) the diagonal, or (D, D)."""


def expected_covariance(family: AnyFamily) -> Array | None:
    """The covariance that the prior expects within components, in proportion; None where it expects none."""
    return cast(ExpectsCovariance, family).expected_covariance() if hasattr(family, "expected_covariance") else None


def has_scatter(family: AnyFamily) -> bool:
    """Whether statistics are mass, mean and scatter, all but the mean sums over points."""
    return bool(getattr(family, "has_scatter", False))


def is_restandardised(family: AnyFamily) -> bool:
    """Whether statistics can be stated in other units: where they are mass, mean and scatter of the features."""
    return has_scatter(family) and family.empty_stats(1).scatter.shape[1:] in (
        (family.n_features,),
        (family.n_features, family.n_features),
    )


def restandardised(family: AnyFamily, stats: Any, shift: Array, factor: Array) -> Any:
    """Statistics of points z as those of points z * factor + shift, both (D,) and factor > 0."""
    assert is_restandardised(family)
    both = factor if stats.scatter.ndim == 2 else factor[:, None]
    mean = np.where(stats.mass[:, None] > 0.0, stats.mean * factor + shift, 0.0)
    return stats._replace(mean=mean, scatter=stats.scatter * factor * both)


class ProjectsCovariance(Protocol):
    """A family whose predictive covariances in few directions need no matrix of D x D."""

    def projected_covariance(self, params: Any, axes: Array) -> Array:
        """See the function of that name."""


def projected_covariance(family: AnyFamily, params: Any, axes: Array) -> Array | None:
    """(K, A, A) predictive covariances of the products of `axes` (A, D) with a point, NaN where one does not exist.

    None where the family needs the whole covariance for them.
    """
    if not hasattr(family, "projected_covariance"):
        return None
    return cast(ProjectsCovariance, family).projected_covariance(params, axes)
