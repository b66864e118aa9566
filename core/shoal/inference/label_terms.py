"""Label terms of the bound: sticks v_i ~ Beta(a1, a2), each one free, before a tail of infinitely many more.

Concentration alpha is Beta(1, alpha). Beyond the T components of a fit, sticks keep the prior (Kurihara, Welling and
Vlassis 2006, eq. 4-7 and 12, as corrected by ERRATA 1.1-1.5). The tail has one mass. It is 0 during a search: the
bound of an empty tail is a bound too, and the same as that of T free sticks (ERRATA 0.3).

A search asks five things of the labels: expected log weights, the label term of the bound, its change by a split and by
a join, and the odds of two children. Functions that say so accept masses in any order; the others need the order of
the sticks.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, psi

from shoal.errors import SettingError
from shoal.points.arrays import Array, IntArray
from shoal.process import join_label_gain, log_label_prior


class StickPrior(NamedTuple):
    """Beta(a1, a2) of every stick, both > 0."""

    a1: float
    a2: float

    @property
    def log_tail(self) -> float:
        """log of sum_{i>T} exp(S_i) without the terms of the sticks up to T and of the point.

        It is E_p log v - log(1 - exp(E_p log(1 - v))), ERRATA 1.1.
        """
        total = psi(self.a1 + self.a2)
        log_stop, log_go = psi(self.a1) - total, psi(self.a2) - total
        return float(log_stop - np.log(-np.expm1(log_go)))


def stick_prior(concentration: float | None, sticks: tuple[float, float] | None) -> StickPrior:
    """Beta(1, concentration), or the pair `sticks`; exactly one is given. Raises SettingError."""
    if (concentration is None) == (sticks is None):
        raise SettingError("give either `concentration` or `sticks=(a1, a2)`, and not both")
    a1, a2 = (1.0, concentration) if sticks is None else sticks
    prior = StickPrior(float(a1), float(a2))  # type: ignore[arg-type]  # one of the two is given
    if not all(np.isfinite(value) and value > 0.0 for value in prior):
        raise SettingError(f"sticks are Beta({prior.a1}, {prior.a2}); both parameters must be positive numbers")
    return prior


def masses_after(mass: Array, tail: float) -> Array:
    """N_{>i} (T,): the mass of the later components and of the tail (ERRATA 1.5)."""
    after = np.empty_like(mass)
    if mass.size:
        after[:-1] = np.cumsum(mass[:0:-1])[::-1]
        after[-1] = 0.0
    return after + tail


def stick_posterior(prior: StickPrior, mass: Array, tail: float) -> Array:
    """Parameters (T, 2) of the optimal q(v_i), eq. 14."""
    return np.stack([prior.a1 + mass, prior.a2 + masses_after(mass, tail)], axis=1)


def stick_bound(prior: StickPrior, mass: Array, tail: float) -> float:
    """E log p(z | v) - KL(q(v) || p(v)) at the optimal q(v) of T sticks, nats (ERRATA 0.3, every stick free)."""
    sticks = stick_posterior(prior, mass, tail)
    return float(betaln(sticks[:, 0], sticks[:, 1]).sum() - mass.size * betaln(prior.a1, prior.a2))


def expected_log_sticks(sticks: Array) -> tuple[Array, Array]:
    """E log v_i and E log(1 - v_i), (T,) each, of q(v_i) = Beta(sticks[i])."""
    total = psi(sticks.sum(axis=1))
    return psi(sticks[:, 0]) - total, psi(sticks[:, 1]) - total


def expected_log_weights(prior: StickPrior, sticks: Array) -> Array:
    """(T + 1,): E log pi_i of the components, and last the log of the summed exp(E log pi_i) of the tail."""
    log_stop, log_go = expected_log_sticks(sticks)
    passed = np.concatenate([[0.0], np.cumsum(log_go)])
    result: Array = np.append(log_stop, prior.log_tail) + passed
    return result


def log_mean_weights(sticks: Array) -> Array:
    """(T + 1,): log E pi_i and, for the prior predictive, the log of the rest (ERRATA 1.2); exp sums to one."""
    log_total = np.log(sticks.sum(axis=1))
    log_stop, log_go = np.log(sticks[:, 0]) - log_total, np.log(sticks[:, 1]) - log_total
    result: Array = np.append(log_stop, 0.0) + np.concatenate([[0.0], np.cumsum(log_go)])
    return result


def stick_divergence(prior: StickPrior, sticks: Array) -> float:
    """sum_i KL(Beta(sticks[i]) || Beta(a1, a2)), nats."""
    log_stop, log_go = expected_log_sticks(sticks)
    change = (sticks[:, 0] - prior.a1) * log_stop + (sticks[:, 1] - prior.a2) * log_go
    log_norm = betaln(prior.a1, prior.a2) - betaln(sticks[:, 0], sticks[:, 1])
    return float((change + log_norm).sum())


def label_bound(prior: StickPrior, mass: Array) -> float:
    """The label term, nats, of masses (T,) in any order and an empty tail. Decreasing order is best (ERRATA 1.13)."""
    if prior.a1 == 1.0:
        return log_label_prior(mass, prior.a2)
    return stick_bound(prior, np.sort(mass)[::-1], 0.0)


def log_weights(prior: StickPrior, mass: Array) -> Array:
    """Expected log weights (T,), nats, of sticks in decreasing order of `mass` (T,), which is in any order."""
    order = np.argsort(-mass, kind="stable")[::-1]  # lightest first: the mass behind each is a running sum
    own = mass[order]
    behind = prior.a2 + np.append(0.0, np.cumsum(own[:-1]))
    total = psi(prior.a1 + own + behind)
    go = psi(behind) - total
    out = np.empty(mass.size)
    out[order] = psi(prior.a1 + own) - total + np.append(np.cumsum(go[:0:-1])[::-1], 0.0)
    return out


def mass_behind(mass: Array, rows: IntArray) -> Array:
    """(R,) the mass of the components that stand behind those of `rows` in decreasing order of `mass` (T,)."""
    order = np.argsort(-mass, kind="stable")
    after = np.empty(mass.size)
    after[order] = masses_after(mass[order], 0.0)
    result: Array = after[rows]
    return result


def split_gain(prior: StickPrior, first: Array, second: Array, after: Array | float) -> Array:
    """Change of the label term when a component becomes two in its place, the heavier first. Elementwise.

    `after` is the mass behind the component. Other components keep their order, so this is at most the change of
    `label_bound`.
    """
    big, small = np.maximum(first, second), np.minimum(first, second)
    children = betaln(prior.a1 + big, prior.a2 + small + after) + betaln(prior.a1 + small, prior.a2 + after)
    parent = betaln(prior.a1 + big + small, prior.a2 + after) + betaln(prior.a1, prior.a2)
    result: Array = children - parent
    return result


def split_log_odds(prior: StickPrior, first: Array, second: Array, after: Array | float) -> Array:
    """E log pi of the first child less that of the second, next to each other, the heavier in front. Elementwise."""
    big, small = np.maximum(first, second), np.minimum(first, second)
    odds = psi(prior.a1 + big) - psi(prior.a2 + small + after)
    odds = odds - psi(prior.a1 + small) + psi(prior.a1 + small + prior.a2 + after)
    return np.asarray(np.where(first >= second, odds, -odds))


def join_gains(prior: StickPrior, mass: Array, first: IntArray, second: IntArray) -> Array:
    """Change (P,) of the label term when components first[p] and second[p] of `mass` (T,) become one, for each p."""
    if prior.a1 == 1.0:
        return join_label_gain(mass, prior.a2, first, second)
    now, gains = label_bound(prior, mass), np.empty(first.size)
    for p, (i, j) in enumerate(zip(first, second, strict=True)):
        gains[p] = label_bound(prior, np.append(np.delete(mass, [i, j]), mass[i] + mass[j])) - now
    return gains
