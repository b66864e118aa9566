"""Arguments and results that all batch engines share, and the predictive density of a result.

An engine divides N points among components. It may start from statistics whose points are gone (`Past`), and it tells a
callback how far it is (`Progress`). Its result (`BatchFit`) is data alone: the family that made it is passed beside it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shoal.families import AnyFamily
from shoal.mixture.predictor import Predictor, with_empty
from shoal.points.arrays import Array
from shoal.points.rows import Points


class BatchFit(NamedTuple):
    """Components in decreasing mass, T of them, and the bound that they reach on the evidence of the points."""

    stats: Any
    """Statistics of the family, T rows; those of a `Past` are in them."""
    resp: Array | None
    """(N, T) responsibilities, rows summing to at most one (the rest is the tail's); None where only labels exist."""
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
    """Whether the engine stopped by its rule, and not at the limit of rounds."""
    extra: dict[str, Array]
    """What the engine has beyond this, by name; each engine documents its own."""


class Past(NamedTuple):
    """Statistics of points that are gone, hard-tied to the first T components (ARCHITECTURE, section 2).

    An engine divides the points it is given and leaves these whole.
    """

    stats: Any
    """Statistics of the family, T rows."""
    entropy_pairs: Array | None
    """(T, T) symmetric, >= 0, nats: for every pair the entropy that the responsibilities of those points had between
    the two, given that they belong to one of them. None: the points were assigned to one component each."""


class Progress(NamedTuple):
    """How far an engine is; for observing only."""

    round: int
    elbo: float
    """Nats."""
    n_components: int
    message: str
    fraction: float | None
    """Of the work, in 0..1; None where the end is not foreseeable."""


ProgressCallback: TypeAlias = Callable[[Progress], None] | None


def log_density(family: AnyFamily, fit: BatchFit, x: Points) -> Array:
    """log predictive density (N,) of points x (N, D) in nats: sum_k weight_k t_k(x) + new weight * prior predictive.

    It integrates to one when the weights sum to one. In bounded memory.
    """
    log_weight = np.append(fit.log_weight, fit.log_new_weight)
    return Predictor(family, with_empty(family, fit.stats), log_weight).predict(x, with_resp=False).log_density


def by_mass(fit: BatchFit) -> BatchFit:
    """The same fit with its components in decreasing mass (equals keep their order).

    Only `stats`, `resp` and `log_weight` are put in order; what follows the components in `extra` is the engine's care.
    """
    order = np.argsort(-fit.stats[0], kind="stable")
    stats = type(fit.stats)(*(field[order] for field in fit.stats))
    resp = None if fit.resp is None else fit.resp[:, order]
    return fit._replace(stats=stats, resp=resp, log_weight=fit.log_weight[order])
