"""Mean-field inference with a fixed number of components: TSB, O-TSB and FSD.

TSB is Blei and Jordan (2004): sticks truncated by v_T = 1, with q(v_i) for i < T. O-TSB puts components in their best
order between the halves of a round (Kurihara, Welling and Teh 2007, section 3.4, as put right by ERRATA 2.11 and 2.12).
FSD has a symmetric Dirichlet for the weights. Each bound is exact, rises in every round, and is a bound on the evidence
of its own truncated model: it may exceed that of the Dirichlet process (ERRATA 0.1).

The keywords that all six methods share:
    concentration  > 0.
    truncation     T; None takes as many as `resp_init` or the past has, else `default_truncation`.
    max_iter, tol  rounds at most (1000); a fit ends after a round that changes the bound by less than tol (1e-5) nats a
                   point. With tol 0 all rounds are done.
    resp_init      (N, T), rows summing to one: the parameters are fitted to it, in its order, before the first round.
    past           statistics of the first components, which stay whole.
    rng            for the start, where there is no `resp_init`.
`elbo_history[s]` of the result is the bound after s rounds; `extra["stick_place"]` (T,) tells at which place in the
model's order each component stood, the result itself being in decreasing mass. Raise NoPointsError, SettingError and
ShapeError.
"""

from dataclasses import dataclass
from typing import NotRequired, TypedDict, Unpack

import numpy as np

from shoal.errors import SettingError
from shoal.families import AnyFamily
from shoal.mixture.batch import BatchFit, Past, ProgressCallback
from shoal.points.arrays import Array
from shoal.variational.truncated_labels import Labels, Sticks, Symmetric, plugged_in
from shoal.variational.truncated_rounds import (
    Division,
    LogLikelihood,
    Rules,
    Run,
    go_round,
    padded,
    row_slices,
    softmax_inplace,
)
from shoal.variational.truncated_start import starting_resp


class FitOptions(TypedDict):
    """The keywords above."""

    concentration: float
    rng: np.random.Generator
    truncation: NotRequired[int | None]
    max_iter: NotRequired[int]
    tol: NotRequired[float]
    resp_init: NotRequired[Array | None]
    past: NotRequired[Past | None]
    progress: NotRequired[ProgressCallback]


def fit_tsb(family: AnyFamily, x: Array, **options: Unpack[FitOptions]) -> BatchFit:
    """Truncated stick breaking, uncollapsed: points x (N, D), keywords as above."""
    division = Uncollapsed(Sticks(options["concentration"]))
    return fit_with(family, x, division, ordered=False, message="tsb", **options).result()


def fit_o_tsb(family: AnyFamily, x: Array, **options: Unpack[FitOptions]) -> BatchFit:
    """TSB with the components put in their best order in every round, and q(v) worked out anew."""
    division = Uncollapsed(Sticks(options["concentration"]))
    return fit_with(family, x, division, ordered=True, message="o-tsb", **options).result()


def fit_fsd(family: AnyFamily, x: Array, **options: Unpack[FitOptions]) -> BatchFit:
    """Finite symmetric Dirichlet, uncollapsed."""
    division = Uncollapsed(Symmetric(options["concentration"]))
    return fit_with(family, x, division, ordered=False, message="fsd", **options).result()


@dataclass(frozen=True)
class Uncollapsed:
    """q(z) q(weights) q(eta), all factors independent: every q(z_n) at once, softmax of expected log joints."""

    labels: Labels
    is_exact: bool = True

    def divide_inplace(self, resp: Array, base: Array, log_likelihood: LogLikelihood) -> None:
        """The best q(z) under the best q(weights) for the responsibilities as they were."""
        log_weight = self.labels.expected_log_weight(resp.sum(axis=0) + base)
        for rows in row_slices(*resp.shape):
            resp[rows] = softmax_inplace(log_likelihood(rows) + log_weight)

    def log_prior(self, resp: Array, base: Array) -> float:
        """E log p(z | weights) - KL(q(weights) || prior) at the best q(weights): no expectation left (ERRATA 0.3)."""
        return plugged_in(self.labels.terms(base, len(resp)), resp.sum(axis=0))


class Fitted:
    """A fit that has ended."""

    def __init__(self, run: Run, history: list[float], converged: bool) -> None:
        self.run, self.history, self.converged = run, history, converged

    def result(self, **extra: Array) -> BatchFit:
        """In the form of every engine."""
        return self.run.result(self.history, self.converged, extra)


def fit_with(
    family: AnyFamily, x: Array, division: Division, *, ordered: bool, message: str, **options: Unpack[FitOptions]
) -> Fitted:
    """Start, and go round until the rule or the limit says stop."""
    past = options.get("past")
    rules = Rules(options.get("max_iter", 1000), options.get("tol", 1e-5), ordered, options.get("progress"), message)
    if rules.max_iter < 0 or not rules.tol >= 0.0:
        raise SettingError(f"max_iter is {rules.max_iter} and tol {rules.tol}; neither may be negative")

    def from_past(truncation: int) -> Array:
        """Every point divided by what the past left, as the first half of a round does."""
        assert past is not None
        stats = padded(family, past.stats, truncation)
        params, resp = family.posterior(stats), np.zeros((len(x), truncation))
        blank = Uncollapsed(division.labels)
        blank.divide_inplace(resp, stats[0], lambda rows: family.expected_log_likelihood(params, x[rows]))
        return resp

    resp = starting_resp(
        family,
        x,
        options.get("truncation"),
        options.get("resp_init"),
        past,
        options["concentration"],
        options["rng"],
        from_past,
    )
    run = Run(family, x, division, resp, past)
    return Fitted(run, *go_round(run, rules))
