"""The contract of a family: a conjugate prior, its statistics, and a handful of functions over both.

A family object *is* the prior (its hyperparameters, frozen) and carries the algebra of its exponential family.
Two kinds of value pass through it, both NamedTuples of arrays with the component axis first:

* `Stats`: sufficient statistics of K components, additive. Field `mass` (K,) is always the first. Second moments are
  centred (mean and scatter), joined by the pairwise update: a raw sum of squares loses all digits on shifted data.
* `Params`: the parameters of K posteriors (or of the prior, as the posterior of empty statistics).

A third, `Predictive`, holds what `log_predictive` needs of a posterior, computed once (Cholesky factors, constants).
Readers that score many small batches against the same components keep it. Its fields too have the component axis first.

Everything else, log marginal, KL, merge gain and the terms of a bound, is derived once from these, in `derived.py`.
"""

from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np

from shoal.points.arrays import Array
from shoal.points.domains import Domain

StatsT = TypeVar("StatsT", bound=tuple[Any, ...])
ParamsT = TypeVar("ParamsT", bound=tuple[Any, ...])
RowsT = TypeVar("RowsT", bound=tuple[Any, ...])


class ConjugateFamily(Protocol[StatsT, ParamsT]):
    """A conjugate family together with its prior. Immutable and hashable; equal when name and hyperparameters are."""

    name: ClassVar[str]
    """The family's name on the wire and on the command line."""

    description: ClassVar[str]
    """What the points of a component are, in some words, for lists of families."""

    domain: ClassVar[Domain]
    """The set of points. Where it is `sparse`, every method that accepts points accepts `SparseRows` too."""

    @property
    def n_features(self) -> int:
        """D, the number of features of a point."""

    @property
    def n_free_parameters(self) -> int:
        """Free parameters of one component's likelihood, for the bounds that statistics sets."""

    @classmethod
    def weak(cls, n_features: int) -> "ConjugateFamily[StatsT, ParamsT]":
        """A prior that says little of points in the domain; standardised where it is located (`LocatedPrior`)."""

    def empty_stats(self, n_components: int) -> StatsT:
        """Statistics of `n_components` components that have seen nothing."""

    def suffstats(self, x: Any, resp: Array) -> StatsT:
        """Statistics (K) of points x (N, D) under responsibilities resp (N, K), each >= 0."""

    def add(self, a: StatsT, b: StatsT) -> StatsT:
        """Join row by row: the statistics of both sets of points together."""

    def subtract(self, a: StatsT, b: StatsT) -> StatsT:
        """The statistics of `a` without those of `b`, whose points must be among a's. Undoes `add`."""

    def scale(self, stats: StatsT, factor: float | Array) -> StatsT:
        """Every point's weight times `factor` (a scalar or (K,), >= 0)."""

    def posterior(self, stats: StatsT) -> ParamsT:
        """Parameters of the posterior given the statistics, row by row."""

    def natural(self, params: ParamsT) -> Array:
        """Natural parameters (K, P), flat; off-diagonal elements of symmetric matrices once, with multiplicity 2."""

    def from_natural(self, natural: Array) -> ParamsT:
        """Inverse of `natural`."""

    def log_partition(self, params: ParamsT) -> Array:
        """A (K,): log normaliser of the conjugate density, all constants kept."""

    def mean_params(self, params: ParamsT) -> Array:
        """Gradient of the log partition by the natural parameters (K, P): the expected statistics of the parameter."""

    def relative(self, values: RowsT, to: StatsT | ParamsT) -> RowsT:
        """Stats or Params in coordinates whose origin is, row by row, the location of `to` (one row broadcasts).

        Evidence and KL do not depend on the origin, natural parameters do, and far from it they lose their digits.
        A family without a location gives `values` back.
        """

    def log_carrier(self, stats: StatsT) -> Array:
        """Sum over the points of resp * log h(x), (K,): what the data add to the evidence whatever the parameter."""

    def expected_log_likelihood(self, params: ParamsT, x: Any) -> Array:
        """E_q[log p(x | parameter)] (N, K), carrier included."""

    def predictive(self, params: ParamsT) -> Any:
        """The `Predictive` of K posteriors: the expensive, point-free part of `log_predictive`, a NamedTuple."""

    def log_predictive_from(self, predictive: Any, x: Any) -> Array:
        """log p(x | posterior) (N, K) from a `Predictive`."""

    def log_predictive(self, params: ParamsT, x: Any) -> Array:
        """log p(x | posterior) (N, K), carrier included; a Student t where the family's is one.

        The same as `log_predictive_from(predictive(params), x)`, in bounded memory.
        """

    def predictive_mean(self, params: ParamsT) -> Array:
        """Mean (K, D) of the posterior predictive; NaN where it does not exist."""

    def predictive_variance(self, params: ParamsT) -> Array:
        """Variance (K, D) of the posterior predictive; infinite where it is."""

    def predictive_covariance(self, params: ParamsT) -> Array:
        """Covariance (K, D, D) of the posterior predictive; infinite where it is."""

    def sample_parameters(self, params: ParamsT, rng: np.random.Generator) -> Any:
        """One draw of each component's likelihood parameter, as a NamedTuple with the component axis first."""

    def sample_points(self, parameters: Any, n: int, rng: np.random.Generator) -> Array:
        """n points (K, n, D) from each component of a `sample_parameters` draw."""

    def log_likelihood(self, parameters: Any, x: Any) -> Array:
        """log p(x | parameter) (N, K) of points x (N, D) under a `sample_parameters` draw, carrier included."""

    def positions(self, stats: StatsT) -> Array:
        """(K, E): where components lie, such that near ones are candidates for one component."""

    def coordinates(self, x: Any) -> Any:
        """(N, D): where points lie, such that those of one component are near each other; for starts of searches."""

    def to_arrays(self) -> dict[str, Array]:
        """The hyperparameters by name, as arrays, enough for `from_arrays` to give an equal family."""

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> "ConjugateFamily[StatsT, ParamsT]":
        """Inverse of `to_arrays`."""


class LocatedPrior(Protocol):
    """A family of points anywhere in space makes weak priors with more choices."""

    stand_in: ClassVar[str]
    """Name of the family whose prior is searched in place of this one's where features are many, and for single
    features."""

    @classmethod
    def weak(
        cls, n_features: int, within_variance: float = 0.1, mean_strength: float = 0.01, dof: float = 1.0
    ) -> "AnyFamily":
        """A prior for standardised data (mean 0, total variance 1 in each feature), weak unless told otherwise.

        Its mean 0 is worth `mean_strength` points; the variance within a component is about `within_variance`, and that
        is worth `dof` points beyond the least for which it has a mean (no matter where variances are known).
        """


class CandidatePriors(Protocol):
    """A family of any other domain lists the priors that are worth trying for some rows."""

    @classmethod
    def candidate_priors(cls, rows: Any, thorough: bool) -> "list[AnyFamily]":
        """Priors to choose among by how well they predict `rows` (N, D), from weak to strong; at least one.

        `thorough` asks for a finer choice than fits that are soon redone need.
        """


AnyFamily: TypeAlias = ConjugateFamily[Any, Any]
"""A family whose statistics and parameters the caller only passes through."""


def take(values: RowsT, rows: Any) -> RowsT:
    """The chosen rows (a slice, indices or a mask) of any NamedTuple of component-first arrays."""
    return type(values)(*(field[rows] for field in values))


def concatenated(*parts: RowsT) -> RowsT:
    """The rows of one or more NamedTuples of the same kind of component-first arrays, one after another."""
    return type(parts[0])(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def contiguous(values: RowsT) -> RowsT:
    """Rows as kernels read and write them, of one type: in C order and writable. Copies only where it must."""
    if all(field.flags.carray for field in values):
        return values
    return type(values)(*(np.array(field, order="C") for field in values))
