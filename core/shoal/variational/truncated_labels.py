"""The priors of labels that have a fixed number T of components: truncated sticks, and a symmetric Dirichlet.

`Sticks`: v_i ~ Beta(1, alpha) for i < T and v_T = 1 (Blei and Jordan 2004; ERRATA 2.1, 2.8, 3.1-3.4).
`Symmetric`: weights ~ Dirichlet(alpha/T, ..., alpha/T) (Kurihara, Welling and Teh 2007, eq. 7, 12).

Integrated over the weights, the log probability of labels with counts m is in both a sum of functions of one count:

    constant + sum_i lG(own_i + m_i) - sum_j log(tail_j + m_{>j})                                     `LabelTerms`

    sticks     own = 1 for i < T, alpha for the last; tail = alpha for j = 1..T-2 (the factors of ERRATA 2.1 telescope)
    symmetric  own = alpha/T; no tails

The same expression, with expected counts put in, is the labels' part of the bound at the best q(weights) (ERRATA 0.3),
and its forward differences are the conditional probabilities of one label given the others (ERRATA 2.2).
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import gammaln, psi

from shoal.points.arrays import Array, IntArray
from shoal.variational.ordering import best_stick_order


class LabelTerms(NamedTuple):
    """log p(labels) of N points as functions of one count each; `base` counts that are given are already in it."""

    own: Array  # (T,) > 0
    tail: Array  # (T - 2,) > 0 for sticks, (0,) otherwise
    constant: float  # nats


def masses_above(mass: Array) -> Array:
    """m_{>j} for j = 1..T-2, along the last axis: the tails that have a term of their own."""
    n_tails = max(mass.shape[-1] - 2, 0)
    return np.flip(np.cumsum(np.flip(mass, -1), axis=-1), -1)[..., 1 : n_tails + 1]


def plugged_in(terms: LabelTerms, mass: Array) -> float:
    """The terms at counts `mass` (T,), nats: log p(labels) of whole ones, and the uncollapsed bound's part of any."""
    tails = masses_above(mass)[: terms.tail.size]
    return terms.constant + float(gammaln(terms.own + mass).sum() - np.log(terms.tail + tails).sum())


@dataclass(frozen=True)
class Sticks:
    """T labels by stick breaking, the last stick taking what is left."""

    concentration: float

    def terms(self, base: Array, n_points: float) -> LabelTerms:
        """The terms of `n_points` points beside counts `base` (T,) that are given."""
        alpha, n_labels, total = self.concentration, base.size, n_points + float(base.sum())
        own = np.ones(n_labels)
        own[-1] = alpha
        constant = (n_labels - 1) * np.log(alpha) - gammaln(alpha + total)
        if n_labels > 1:
            constant -= np.log(alpha + total)  # the first tail is everybody
        tail = np.full(max(n_labels - 2, 0), alpha) + masses_above(base)
        return LabelTerms(own + base, tail, float(constant))

    def expected_log_weight(self, mass: Array) -> Array:
        """E log pi (T,) under the best q(v) for expected counts `mass` (T,)."""
        stop, go = self._posterior(mass)
        both = psi(stop + go)
        return _chain(psi(stop) - both, psi(go) - both)

    def log_mean_weight(self, mass: Array) -> Array:
        """log E pi (T,), which sum to one; the same as ERRATA 2.2 with expected counts put in (ERRATA 2.13)."""
        stop, go = self._posterior(mass)
        both = np.log(stop + go)
        return _chain(np.log(stop) - both, np.log(go) - both)

    def best_order(self, mass: Array) -> IntArray:
        """The order (T,) in which components of expected counts `mass` (T,) have the largest bound."""
        return best_stick_order(mass, self.concentration)

    def _posterior(self, mass: Array) -> tuple[Array, Array]:
        """The two parameters, (T - 1,) each, of q(v_i), i < T."""
        tails = np.cumsum(mass[::-1])[::-1]
        return 1.0 + mass[:-1], self.concentration + tails[1:]


@dataclass(frozen=True)
class Symmetric:
    """T labels, exchangeable: weights of a symmetric Dirichlet whose parameters sum to the concentration."""

    concentration: float

    def terms(self, base: Array, n_points: float) -> LabelTerms:
        """The terms of `n_points` points beside counts `base` (T,) that are given."""
        alpha, total = self.concentration, n_points + float(base.sum())
        share = alpha / base.size
        constant = gammaln(alpha) - gammaln(alpha + total) - base.size * gammaln(share)
        return LabelTerms(share + base, np.zeros(0), float(constant))

    def expected_log_weight(self, mass: Array) -> Array:
        """E log pi (T,) under the best q(pi) for expected counts `mass` (T,)."""
        return np.asarray(psi(self.concentration / mass.size + mass) - psi(self.concentration + mass.sum()))

    def log_mean_weight(self, mass: Array) -> Array:
        """log E pi (T,), which sum to one: exact for collapsed labels too, being linear in the counts (ERRATA 2.13)."""
        return np.asarray(np.log(self.concentration / mass.size + mass) - np.log(self.concentration + mass.sum()))

    def best_order(self, mass: Array) -> IntArray:
        """Labels are exchangeable: as they stand."""
        return np.arange(mass.size)


Labels: TypeAlias = Sticks | Symmetric


def _chain(log_stop: Array, log_go: Array) -> Array:
    """log pi (T,) from log v and log(1 - v) (T - 1,) each, with v_T = 1."""
    return np.asarray(np.append(log_stop, 0.0) + np.append(0.0, np.cumsum(log_go)))
