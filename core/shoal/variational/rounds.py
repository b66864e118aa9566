"""The infinite variational family of Kurihara, Welling and Vlassis (2006): its two steps, its bound, rounds of a fit.

q(z, v, eta) = prod_n q(z_n) prod_{i<=T} q(v_i) q(eta_i). Beyond T, sticks and parameters keep the prior, and the best
q(z_n > T) is geometric. One number a cell, the tail's responsibility, stands for it (eq. 6, ERRATA 1.1). With the best
q(v) and q(eta) for given responsibilities the bound has a closed form without expectations (ERRATA 0.3):

    elbo = sum_i [A(nat_i) - A(nat_0)] + sum_i [lB(a1 + N_i, a2 + N_{>i}) - lB(a1, a2)] + sum_n log h(x_n) + H
           + sum_n q(z_n > T) (E_p log p(x_n | eta) + E_p log v - log(1 - exp(E_p log(1 - v))))

with H the entropy of the responsibilities, tail included, and N_{>i} with the tail's mass. This is the value of eq. 2.
The value of eq. 5, after an E-step, lies above it and below the next one (ERRATA 1.6): every step raises the bound.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from shoal.families import AnyFamily
from shoal.families.natural_statistics import Origin, natural_gain, seen_from
from shoal.inference import (
    PastStats,
    StickPrior,
    expected_log_weights,
    log_mean_weights,
    no_past,
    stick_bound,
    stick_divergence,
    stick_posterior,
)
from shoal.mixture import BatchFit, Progress, ProgressCallback
from shoal.points.arrays import Array, IntArray
from shoal.variational.cells import Cells

_NEGLIGIBLE = -100.0
"""Log responsibility, relative to the largest, below which it counts as 0: denormal numbers cost 28 times as much."""
_MOST_ROUNDS_TO_GOAL = 20


class Model(NamedTuple):
    """Constants of a fit."""

    family: AnyFamily
    sticks: StickPrior
    origin: Origin
    prior_natural: Array  # (P,)
    prior_mean_params: Array  # (P,)
    prior_log_partition: float
    past: PastStats  # M rows
    past_natural: Array  # (M + 1, P) sums of statistics of the past, and a last row of zeros
    past_carrier: float  # sum of log h over the points of the past, about the origin

    @property
    def past_mass(self) -> Array:
        """(M + 1,), the last 0."""
        return np.append(self.past.mass, 0.0)


class Totals(NamedTuple):
    """Sums over the points of the cells after an E-step, those of the tail in the last row."""

    natural: Array  # (T + 1, P)
    mass: Array  # (T + 1,)
    entropy: float  # of the responsibilities, tail as one label, nats


class State(NamedTuple):
    """T components in stick order after an M-step."""

    params: Any  # Params about the origin, T rows
    natural: Array  # (T, P) sums of statistics, with the past's
    totals: Totals
    mass: Array  # (T,) with the past's
    sticks: Array  # (T, 2)
    past_row: IntArray  # (T,) the row of the model's past that a component has; -1: none
    elbo: float

    @property
    def n_components(self) -> int:
        """T."""
        return len(self.mass)


def model_of(family: AnyFamily, sticks: StickPrior, origin: Origin, past: PastStats | None = None) -> Model:
    """The constants of a fit, from its prior, its origin and its past."""
    prior = seen_from(family, family.posterior(family.empty_stats(1)), origin)
    natural, slope = family.natural(prior)[0], family.mean_params(prior)[0]
    past = no_past(family, 0) if past is None else past
    gain = natural_gain(family, past.stats, origin) if past.mass.size else np.zeros((0, natural.size))
    carrier = float(family.log_carrier(seen_from(family, past.stats, origin)).sum()) if past.mass.size else 0.0
    past_natural = np.vstack([gain, np.zeros(natural.size)])
    partition = float(family.log_partition(prior)[0])
    return Model(family, sticks, origin, natural, slope, partition, past, past_natural, carrier)


def without_past(n_components: int) -> IntArray:
    """Past rows of components without a past: -1 each."""
    return np.full(n_components, -1)


def log_evidence(model: Model, natural: Array) -> Array:
    """A(nat_0 + natural) - A(nat_0), (T,): log marginal of the points in the sums, without their carrier."""
    params = model.family.from_natural(model.prior_natural + natural)
    return model.family.log_partition(params) - model.prior_log_partition


def m_step(
    model: Model, carrier: float, totals: Totals, past_row: IntArray, reorder: bool = True
) -> tuple[State, IntArray]:
    """The best q(v) and q(eta), after components are put in decreasing mass; returns the state and the order.

    The new order, with q(v) computed again, never lowers the bound (ERRATA 1.13). The tail stays last.
    """
    mass = totals.mass[:-1] + model.past_mass[past_row]
    order = np.argsort(-mass, kind="stable") if reorder else np.arange(mass.size)
    totals = Totals(totals.natural[np.append(order, -1)], totals.mass[np.append(order, -1)], totals.entropy)
    past_row, mass, tail = past_row[order], mass[order], float(totals.mass[-1])
    natural = totals.natural[:-1] + model.past_natural[past_row]
    params = model.family.from_natural(model.prior_natural + natural)
    elbo = float((model.family.log_partition(params) - model.prior_log_partition).sum())
    elbo += carrier + model.past_carrier + stick_bound(model.sticks, mass, tail)
    elbo += float(totals.natural[-1] @ model.prior_mean_params) + tail * model.sticks.log_tail
    elbo += totals.entropy + model.past.entropy
    sticks = stick_posterior(model.sticks, mass, tail)
    return State(params, natural, totals, mass, sticks, past_row, elbo), order


def scorer(model: Model, state: State) -> tuple[Array, Array]:
    """Slopes (T + 1, P) and offsets (T + 1,) with S = slopes t(x) + offsets (+ log h), eq. 12 and 13; the tail last."""
    slopes = np.vstack([model.family.mean_params(state.params), model.prior_mean_params])
    return slopes, expected_log_weights(model.sticks, state.sticks)


def normalize(slopes: Array, offsets: Array, rows: Array) -> tuple[Array, Array]:
    """Responsibilities (T + 1, n) of cells with statistics `rows` (n, P), and log sum exp S (n,), carrier excluded."""
    score = slopes @ rows.T
    score += offsets[:, None]
    top = score.max(axis=0)
    score -= top
    np.maximum(score, _NEGLIGIBLE, out=score)
    np.exp(score, out=score)
    score -= np.exp(_NEGLIGIBLE)
    total = score.sum(axis=0)
    score /= total
    return score, top + np.log(total)


def e_step(model: Model, cells: Cells, state: State, resp: Array | None = None) -> tuple[Totals, float]:
    """The best q(z) for the state, and the bound there (eq. 5). `resp` (T + 1, A), if given, is filled in.

    Cost O(A T P): two matrix products.
    """
    totals, log_norm = _e_step_totals(model, cells, state, resp)
    return totals, _bound_after_e(model, cells, state, log_norm)


def _e_step_totals(model: Model, cells: Cells, state: State, resp: Array | None) -> tuple[Totals, float]:
    """The totals of the best q(z), and sum_n log sum_i exp S."""
    slopes, offsets = scorer(model, state)
    natural, mass, log_norm = np.zeros_like(slopes), np.zeros(len(offsets)), 0.0
    for part, rows in cells.blocks():
        share, log_total = normalize(slopes, offsets, rows)
        if resp is not None:
            resp[:, part] = share
        weight = cells.mass[part]
        log_norm += float(weight @ log_total)
        share *= weight
        mass += share.sum(axis=1)
        natural += share @ rows
    entropy = log_norm - float(np.vdot(natural, slopes)) - float(mass @ offsets)
    return Totals(natural, mass, max(entropy, 0.0)), log_norm


def _bound_after_e(model: Model, cells: Cells, state: State, log_norm: float) -> float:
    """Eq. 5: sum_n log sum_i exp S - KL(q(v)) - KL(q(eta)), and the terms of the past."""
    slopes = model.family.mean_params(state.params)
    fresh = state.natural - model.past_natural[state.past_row]
    divergence = float(np.vdot(fresh, slopes))
    divergence -= float((model.family.log_partition(state.params) - model.prior_log_partition).sum())
    past_labels = float(model.past_mass[state.past_row] @ expected_log_weights(model.sticks, state.sticks)[:-1])
    elbo = log_norm + cells.log_carrier + model.past_carrier + model.past.entropy + past_labels
    return elbo - divergence - stick_divergence(model.sticks, state.sticks)


def totals_of(cells: Cells, resp: Array) -> Totals:
    """The totals of given responsibilities (T + 1, A), whose columns sum to one."""
    natural = np.zeros((len(resp), cells.width))
    entropy = 0.0
    for part, rows in cells.blocks():
        share = resp[:, part]
        weight = cells.mass[part]
        natural += (share * weight) @ rows
        entropy -= float((share * np.log(np.where(share > 0.0, share, 1.0))).sum(axis=0) @ weight)
    return Totals(natural, resp @ cells.mass, entropy)


def round_of(model: Model, cells: Cells, state: State, resp: Array | None = None) -> tuple[State, IntArray]:
    """One round: all q(z), then all parameters. Returns the state, and the old place of each component.

    `resp` (T + 1, A), if given, is filled in, in the old order.
    """
    totals, _ = _e_step_totals(model, cells, state, resp)
    return m_step(model, cells.log_carrier, totals, state.past_row)


def stick_fit(
    stats: Any, resp: Array | None, sticks: Array, elbo: float, history: list[float], converged: bool, **extra: Any
) -> BatchFit:
    """The result of a fit under free sticks with q(v) = Beta(sticks[i]), `sticks` (T, 2), which are put into `extra`.

    stats, resp, converged and extra: as in `BatchFit`. `history`: the bound, nats, at the start and after each round.
    """
    log_weight = log_mean_weights(sticks)
    return BatchFit(
        stats=stats,
        resp=resp,
        log_weight=log_weight[:-1],
        log_new_weight=float(log_weight[-1]),
        elbo=elbo,
        elbo_history=np.array(history),
        elbo_is_exact=True,
        n_rounds=len(history) - 1,
        converged=converged,
        extra={"sticks": sticks, **extra},
    )


@dataclass
class Run:
    """The constants, the rules of stopping, the random numbers and the record of a fit.

    A move is accepted if it raises the bound by more than `threshold` nats, or `tol` a point. A threshold relative
    to the bound would depend on the units of the data, which set its zero and sign. Without any threshold components
    are released for ever, for gains of 1e-6 (ERRATA 1.7). Rounds continue while they raise the bound by more than a
    tenth of the threshold, so that moves are judged by settled bounds.
    """

    model: Model
    threshold: float
    max_iter: int
    rng: np.random.Generator
    candidate_points: int | None
    progress: ProgressCallback = None
    history: list[float] = field(default_factory=list)

    @property
    def exhausted(self) -> bool:
        """Whether the rounds are used up."""
        return len(self.history) > self.max_iter

    def note(self, elbo: float, n_components: int, message: str, trial: bool = False) -> None:
        """Count one round. The record holds the bound of the best state so far; a trial does not change it."""
        last = self.history[-1] if self.history else elbo
        self.history.append(last if trial else max(last, elbo))
        if self.progress is not None:
            self.progress(Progress(len(self.history) - 1, self.history[-1], n_components, message, None))

    def accept(self, elbo: float) -> None:
        """Record the bound of a trial that became the state."""
        self.history[-1] = max(self.history[-1], elbo)

    def fitted(self, cells: Cells, totals: Totals, past_row: IntArray, reorder: bool = True) -> State:
        """The state after an M-step."""
        return m_step(self.model, cells.log_carrier, totals, past_row, reorder)[0]

    def start(self, cells: Cells) -> State:
        """One component with all points; with a past, its components, with one round on the points."""
        n_past = len(self.model.past_natural) - 1
        if n_past == 0:
            resp = np.vstack([np.ones(cells.n_cells), np.zeros(cells.n_cells)])
            state = self.fitted(cells, totals_of(cells, resp), without_past(1))
        else:
            nothing = totals_of(cells, np.zeros((n_past + 1, cells.n_cells)))
            state = round_of(self.model, cells, self.fitted(cells, nothing, np.arange(n_past)))[0]
        self.note(state.elbo, state.n_components, "starting")
        return state

    def settle(
        self,
        cells: Cells,
        state: State,
        message: str,
        rounds: int | None = None,
        trial: bool = False,
        share: float = 0.1,
        goal: float = -np.inf,
    ) -> State:
        """Run rounds until one raises the bound by at most a share of the threshold, at most `rounds` of them.

        They end early where twenty more rounds like the last would not reach `goal`.
        """
        done = 0
        while not self.exhausted and (rounds is None or done < rounds):
            before, (state, _) = state.elbo, round_of(self.model, cells, state)
            self.note(state.elbo, state.n_components, message, trial)
            done += 1
            gain = state.elbo - before
            if gain <= share * self.threshold or (done > 2 and state.elbo + _MOST_ROUNDS_TO_GOAL * gain < goal):
                break
        return state

    def divided(self, cells: Cells, state: State) -> tuple[State, Array]:
        """One round; returns its responsibilities (T + 1, A) too, in the order of the new state, the tail last."""
        resp = np.empty((state.n_components + 1, cells.n_cells))
        state, order = round_of(self.model, cells, state, resp)
        self.note(state.elbo, state.n_components, "dividing")
        if np.any(order != np.arange(order.size)):
            resp = resp[np.append(order, order.size)]
        return state, resp
