"""Arguments and results that all batch engines share, and the predictive density of a result.

An engine divides N points among components. It may start from statistics of points that are gone (`Past`), and it
reports to a callback (`Progress`). Its result (`BatchFit`) is plain data; the family is passed beside it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shoal.families import AnyFamily
from shoal.mixture.predictor import Predictor, with_empty
from shoal.points.arrays import Array
from shoal.points.rows import Points, SparseRows


class BatchFit(NamedTuple):
    """T components in decreasing mass, and their bound on the evidence of the points."""

    stats: Any
    """Statistics of the family, T rows; those of a `Past` are in them."""
    resp: Array | None
    """(N, T) responsibilities; rows sum to one less the tail's share. None where there are only labels."""
    log_weight: Array
    """(T,) log of the expected mixture weights that densities use."""
    log_new_weight: float
    """Log of the weight of the prior predictive; -inf where the model is truncated and has none."""
    elbo: float
    """Lower bound on the log evidence in nats, all constants kept."""
    elbo_history: Array
    """Bound after every round (or, of a sampler, log joint), in nats."""
    elbo_is_exact: bool
    """False where an expectation in it is approximated: the value may then exceed the evidence."""
    n_rounds: int
    converged: bool
    """Whether the engine stopped by its tolerance, not at the limit of rounds."""
    extra: dict[str, Array]
    """Further results by name; each engine documents its own."""


class Past(NamedTuple):
    """Statistics of points that are gone, hard-tied to the first T components.

    An engine divides the given points and leaves these whole.
    """

    stats: Any
    """Statistics of the family, T rows."""
    entropy_pairs: Array | None
    """(T, T) symmetric, >= 0, nats: for every pair of components the entropy of those points' responsibilities between
    the two, given that they belong to one of them. None: each point was assigned to one component."""


class Progress(NamedTuple):
    """Progress of an engine; for observing only."""

    round: int
    elbo: float
    """Nats."""
    n_components: int
    message: str
    fraction: float | None
    """Share of the work done, in 0..1; None where it is unknown."""


ProgressCallback: TypeAlias = Callable[[Progress], None] | None


def predictor_of(family: AnyFamily, fit: BatchFit) -> Predictor:
    """Predictions of a fit's components (T) and of an empty one, which has the weight of everything else."""
    log_weight = np.append(fit.log_weight, fit.log_new_weight)
    return Predictor(family, with_empty(family, fit.stats), log_weight)


def log_density(family: AnyFamily, fit: BatchFit, x: Points) -> Array:
    """log predictive density (N,) of points x (N, D) in nats: sum_k weight_k t_k(x) + new weight * prior predictive.

    It integrates to one when the weights sum to one. Memory is bounded.
    """
    return predictor_of(family, fit).predict(x, with_resp=False).log_density


def by_mass(fit: BatchFit) -> BatchFit:
    """The same fit with its components in decreasing mass (equals keep their order).

    It reorders `stats`, `resp` and `log_weight` only; the engine reorders what it put in `extra`.
    """
    order = np.argsort(-fit.stats[0], kind="stable")
    stats = type(fit.stats)(*(field[order] for field in fit.stats))
    resp = None if fit.resp is None else fit.resp[:, order]
    return fit._replace(stats=stats, resp=resp, log_weight=fit.log_weight[order])


class PlacedPrior(NamedTuple):
    """A prior for points (x - location) / scale."""

    location: Array  # (D,)
    scale: Array  # (D,) > 0
    prior: AnyFamily
    learned: bool = False
    """Whether the prior was made from the data."""

    @property
    def log_volume(self) -> float:
        """log |d x / d standardised|, to be subtracted from the log density of each standardised point."""
        return float(np.log(self.scale).sum())

    def standardise(self, x: Points) -> Any:
        """Points in the prior's coordinates, (N, D) C-ordered; sparse rows are not standardised."""
        return x if isinstance(x, SparseRows) else np.ascontiguousarray((x - self.location) / self.scale)
