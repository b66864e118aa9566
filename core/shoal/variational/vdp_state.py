"""The infinite variational family of Kurihara, Welling and Vlassis (2006), its two steps and its bound.

q(z, v, eta) = prod_n q(z_n) prod_{i<=T} q(v_i) q(eta_i); beyond T sticks and parameters keep the prior and q(z_n > T)
is geometric in its best form, so that one number a cell, the tail's responsibility, stands for it (eq. 6, ERRATA 1.1).
With the best q(v) and q(eta) for given responsibilities the bound has a closed form without expectations (ERRATA 0.3):

    elbo = sum_i [A(nat_i) - A(nat_0)] + sum_i [lB(a1 + N_i, a2 + N_{>i}) - lB(a1, a2)] + sum_n log h(x_n) + H
           + sum_n q(z_n > T) (E_p log p(x_n | eta) + E_p log v - log(1 - exp(E_p log(1 - v))))

with H the entropy of the responsibilities, tail included, and N_{>i} with the tail's mass. It is the value of eq. 2;
the value of eq. 5, after an E-step, lies above it and below the next one (ERRATA 1.6): every step raises the bound.
"""

from typing import Any, NamedTuple

import numpy as np

from shoal.families import AnyFamily
from shoal.families.natural_statistics import Origin, seen_from
from shoal.points.arrays import Array, BoolArray, IntArray
from shoal.variational.vdp_cells import Cells
from shoal.variational.vdp_sticks import (
    StickPrior,
    expected_log_weights,
    stick_bound,
    stick_divergence,
    stick_posterior,
)

_NEGLIGIBLE = -100.0
"""Log responsibility relative to the largest below which one is 0: no denormal numbers, which cost 28 times as much."""


class Model(NamedTuple):
    """What stays the same during a fit."""

    family: AnyFamily
    sticks: StickPrior
    origin: Origin
    prior: Any  # Params, one row, about the origin
    prior_natural: Array  # (P,)
    prior_mean_params: Array  # (P,)
    prior_log_partition: float
    past_carrier: float  # sum of log h over the points of the past, about the origin


class Tied(NamedTuple):
    """The past of each component: what the points that are gone left it (zeros where there are none)."""

    natural: Array  # (T, P)
    mass: Array  # (T,)
    pairs: Array  # (T, T) entropy between pairs, nats
    entropy: float  # a lower bound on that of all of them, nats
    source: BoolArray  # (T, T0) which of the components that it began with a component holds


class Totals(NamedTuple):
    """What an E-step leaves of the cells: sums over points, the tail's in the last row."""

    natural: Array  # (T + 1, P)
    mass: Array  # (T + 1,)
    entropy: float  # of the responsibilities, tail as one label, nats


class State(NamedTuple):
    """T components in stick order after an M-step."""

    params: Any  # Params about the origin, T rows
    natural: Array  # (T, P) sums of statistics, the past's included
    totals: Totals
    sticks: Array  # (T, 2)
    tied: Tied
    tags: IntArray  # (T,) names that follow components through reordering
    elbo: float

    @property
    def n_components(self) -> int:
        """T."""
        return len(self.tags)

    @property
    def mass(self) -> Array:
        """(T,) with the past."""
        return self.totals.mass[:-1] + self.tied.mass


def model_of(family: AnyFamily, sticks: StickPrior, origin: Origin, past_carrier: float = 0.0) -> Model:
    """The constants of a fit."""
    prior = seen_from(family, family.posterior(family.empty_stats(1)), origin)
    natural, slope = family.natural(prior)[0], family.mean_params(prior)[0]
    return Model(family, sticks, origin, prior, natural, slope, float(family.log_partition(prior)[0]), past_carrier)


def untied(n_components: int, width: int) -> Tied:
    """No past."""
    return Tied(
        np.zeros((n_components, width)),
        np.zeros(n_components),
        np.zeros((n_components,) * 2),
        0.0,
        np.zeros((n_components, 0), bool),
    )


def placed(tied: Tied, rows: IntArray) -> Tied:
    """The past with its rows at the places `rows` says, -1 standing for none."""
    has = rows >= 0
    pairs = np.where(has[:, None] & has, tied.pairs[np.ix_(rows, rows)], 0.0)
    natural = np.where(has[:, None], tied.natural[rows], 0.0)
    return Tied(natural, np.where(has, tied.mass[rows], 0.0), pairs, tied.entropy, tied.source[rows] & has[:, None])


def log_evidence(model: Model, natural: Array) -> Array:
    """A(nat_0 + natural) - A(nat_0), (T,): log marginal of the points behind the sums, without their carrier."""
    params = model.family.from_natural(model.prior_natural + natural)
    return model.family.log_partition(params) - model.prior_log_partition


def m_step(
    model: Model, carrier: float, totals: Totals, tied: Tied, tags: IntArray, reorder: bool = True
) -> tuple[State, IntArray]:
    """The best q(v) and q(eta), components put in decreasing mass first; the state, and the order taken.

    Reordering with q(v) worked out anew never lowers the bound (ERRATA 1.13); the tail stays last.
    """
    mass = totals.mass[:-1] + tied.mass
    order = np.argsort(-mass, kind="stable") if reorder else np.arange(mass.size)
    totals = Totals(totals.natural[np.append(order, -1)], totals.mass[np.append(order, -1)], totals.entropy)
    tied = placed(tied, order)
    mass, tail, natural = mass[order], float(totals.mass[-1]), totals.natural[:-1] + tied.natural
    params = model.family.from_natural(model.prior_natural + natural)
    elbo = float((model.family.log_partition(params) - model.prior_log_partition).sum())
    elbo += carrier + model.past_carrier + stick_bound(model.sticks, mass, tail)
    elbo += float(totals.natural[-1] @ model.prior_mean_params) + tail * model.sticks.log_tail
    elbo += totals.entropy + tied.entropy
    sticks = stick_posterior(model.sticks, mass, tail)
    return State(params, natural, totals, sticks, tied, tags[order], elbo), order


def scorer(model: Model, state: State) -> tuple[Array, Array]:
    """Slopes (T + 1, P) and offsets (T + 1,) with S = slopes t(x) + offsets (+ log h), eq. 12 and 13; the tail last."""
    slopes = np.vstack([model.family.mean_params(state.params), model.prior_mean_params])
    return slopes, expected_log_weights(model.sticks, state.sticks)


def divide(slopes: Array, offsets: Array, rows: Array) -> tuple[Array, Array]:
    """Responsibilities (T + 1, n) of cells with statistics `rows` (n, P), and log sum exp S (n,), carrier left out."""
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
    totals, log_norm = _divided(model, cells, state, resp)
    return totals, _bound_after_e(model, cells, state, log_norm)


def _divided(model: Model, cells: Cells, state: State, resp: Array | None) -> tuple[Totals, float]:
    """What the best q(z) leaves of the cells, and sum_n log sum_i exp S."""
    slopes, offsets = scorer(model, state)
    natural, mass, log_norm = np.zeros_like(slopes), np.zeros(len(offsets)), 0.0
    for part, rows in cells.blocks():
        share, log_total = divide(slopes, offsets, rows)
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
    """Eq. 5: sum_n log sum_i exp S - KL(q(v)) - KL(q(eta)), and what the past adds."""
    slopes = model.family.mean_params(state.params)
    fresh = state.natural - state.tied.natural
    divergence = float(np.vdot(fresh, slopes))
    divergence -= float((model.family.log_partition(state.params) - model.prior_log_partition).sum())
    tied_labels = float(state.tied.mass @ expected_log_weights(model.sticks, state.sticks)[:-1])
    elbo = log_norm + cells.log_carrier + model.past_carrier + state.tied.entropy + tied_labels
    return elbo - divergence - stick_divergence(model.sticks, state.sticks)


def totals_of(cells: Cells, resp: Array) -> Totals:
    """What given responsibilities (T + 1, A), columns summing to one, leave of the cells."""
    natural = np.zeros((len(resp), cells.reach.size))
    entropy = 0.0
    for part, rows in cells.blocks():
        share = resp[:, part]
        weight = cells.mass[part]
        natural += (share * weight) @ rows
        entropy -= float((share * np.log(np.where(share > 0.0, share, 1.0))).sum(axis=0) @ weight)
    return Totals(natural, resp @ cells.mass, entropy)


def round_of(
    model: Model, cells: Cells, state: State, resp: Array | None = None, reorder: bool = True
) -> tuple[State, IntArray]:
    """One round: all q(z), then all parameters. The state, and where its components stood in the old one."""
    totals, _ = _divided(model, cells, state, resp)
    return m_step(model, cells.log_carrier, totals, state.tied, state.tags, reorder)
