"""The rounds that the six methods with a fixed number of components share.

State of a fit: the responsibilities q(z), updated in place, and with them the order in which the components stand. All
other parameters are at their best for q(z), so that the bound is

    sum_i log m(S_i) + E log p(labels) + H(q(z))                                                        (ERRATA 0.3)

with log m(S_i) the evidence of the statistics of component i, carriers included, and the label term integrated over the
weights (collapsed) or at the best q(weights). One round is all q(z), then, in the o-methods, the order, then all
parameters. A past adds its statistics and masses to the components' and a lower bound on its entropy to the bound.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from scipy.special import entr

from shoal.families import AnyFamily, take
from shoal.families.derived import log_marginal
from shoal.inference.past import entropy_below
from shoal.mixture.batch import BatchFit, Past, Progress, ProgressCallback, by_mass
from shoal.points.arrays import Array, IntArray
from shoal.variational.truncated_labels import Labels

BLOCK_ELEMENTS = 1 << 19
"""Responsibilities handled at once: 4 MiB, and a few times that in temporaries."""

LogLikelihood: TypeAlias = Callable[[slice], Array]
"""E log p(x_n | eta_i) (rows, T) of a slice of the points, under a q(eta) that stays the same during a round."""


class Division(Protocol):
    """How q(z) is updated, and what the labels add to the bound."""

    @property
    def labels(self) -> Labels:
        """The prior of the labels."""

    @property
    def is_exact(self) -> bool:
        """Whether `log_prior` is what it stands for, and not an approximation that may exceed it."""

    def divide_inplace(self, resp: Array, base: Array, log_likelihood: LogLikelihood) -> None:
        """All q(z_n): resp (N, T), beside given counts `base` (T,)."""

    def log_prior(self, resp: Array, base: Array) -> float:
        """E log p(labels), nats, integrated over the weights or at the best q(weights)."""


class Rules(NamedTuple):
    """When to stop, and what to do between the halves of a round."""

    max_iter: int
    tol: float  # nats a point
    ordered: bool  # whether components are put in their best order
    progress: ProgressCallback
    message: str


class Run:
    """A fit in progress: q(z) with the past, in the order in which the components stand."""

    def __init__(self, family: AnyFamily, x: Array, division: Division, resp: Array, past: Past | None) -> None:
        self.family, self.x, self.division, self.resp = family, x, division, resp
        n_components = resp.shape[1]
        self.past = None if past is None else padded(family, past.stats, n_components)
        self.base = np.zeros(n_components) if self.past is None else np.array(self.past[0])
        self.past_entropy = 0.0
        if past is not None and past.entropy_pairs is not None:
            self.past_entropy = entropy_below(np.array(past.entropy_pairs, dtype=np.float64))
        self.fit_parameters()

    def fit_parameters(self) -> None:
        """The best q(eta), as the statistics that it follows from."""
        stats = self.family.suffstats(self.x, self.resp)
        self.stats: Any = stats if self.past is None else self.family.add(stats, self.past)

    def divide(self) -> None:
        """All q(z)."""
        params = self.family.posterior(self.stats)
        self.division.divide_inplace(
            self.resp, self.base, lambda rows: self.family.expected_log_likelihood(params, self.x[rows])
        )

    def reorder(self) -> bool:
        """Put the components in their best order by expected counts, if the bound is the better for it.

        Uncollapsed it is (ERRATA 2.11); collapsed, the expectation depends on the whole distributions of the counts,
        and the order that is best for their means may be worse (ERRATA 2.12): then they stay as they are.
        """
        order = self.division.labels.best_order(self.resp.sum(axis=0) + self.base)
        if np.array_equal(order, np.arange(order.size)):
            return False
        resp = np.take(self.resp, order, axis=1)
        if self.division.log_prior(resp, self.base[order]) <= self.division.log_prior(self.resp, self.base):
            return False
        self.resp, self.base = resp, self.base[order]
        self.past = None if self.past is None else take(self.past, order)
        return True

    def elbo(self) -> float:
        """The bound, nats, with the parameters at their best for q(z)."""
        evidence = float(log_marginal(self.family, self.stats).sum())
        return evidence + self.entropy() + self.division.log_prior(self.resp, self.base)

    def entropy(self) -> float:
        """H(q(z)), the past's included, nats."""
        blocks = row_slices(*self.resp.shape)
        return self.past_entropy + sum(float(entr(self.resp[rows]).sum()) for rows in blocks)

    def result(self, history: list[float], converged: bool, extra: dict[str, Array]) -> BatchFit:
        """Components in decreasing mass; `stick_place` says where each stood in the model's own order."""
        place: IntArray = np.argsort(-self.stats[0], kind="stable")
        fit = BatchFit(
            stats=self.stats,
            resp=self.resp,
            log_weight=self.division.labels.log_mean_weight(self.stats[0]),
            log_new_weight=-np.inf,
            elbo=history[-1],
            elbo_history=np.array(history),
            elbo_is_exact=self.division.is_exact,
            n_rounds=len(history) - 1,
            converged=converged,
            extra={"stick_place": place.astype(np.float64), **extra},
        )
        return by_mass(fit)


def go_round(run: Run, rules: Rules) -> tuple[list[float], bool]:
    """Rounds until one changes the bound by less than tol * N nats, or `max_iter` of them.

    Gives the bound after 0, 1, 2, ... rounds, and whether the first of the two ended them. With tol 0 all are done.
    """
    history = [run.elbo()]
    for number in range(1, rules.max_iter + 1):
        run.divide()
        if rules.ordered:
            run.reorder()
        run.fit_parameters()
        history.append(run.elbo())
        if rules.progress is not None:
            n_components = int(np.count_nonzero(run.stats[0] >= 0.5))
            rules.progress(Progress(number, history[-1], n_components, rules.message, None))
        if abs(history[-1] - history[-2]) < rules.tol * len(run.x):
            return history, True
    return history, False


def padded(family: AnyFamily, stats: Any, n_components: int) -> Any:
    """Statistics with empty rows after their own, up to `n_components`."""
    empty = family.empty_stats(n_components - len(stats[0]))
    return type(stats)(*(np.concatenate([a, b]) for a, b in zip(stats, empty, strict=True)))


def row_slices(n_rows: int, n_columns: int) -> list[slice]:
    """Consecutive slices of the rows of a table, of bounded size each."""
    step = max(1, BLOCK_ELEMENTS // max(n_columns, 1))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def softmax_inplace(score: Array) -> Array:
    """Rows of exp(score) normalised to one, in `score` (N, T) itself."""
    score -= score.max(axis=1, keepdims=True)
    np.exp(score, out=score)
    score /= score.sum(axis=1, keepdims=True)
    return score
