"""Priors of labels with a fixed number T of components: truncated sticks, and a symmetric Dirichlet.

`Sticks`: v_i ~ Beta(1, alpha) for i < T and v_T = 1 (Blei and Jordan 2004; ERRATA 2.1, 2.8, 3.1-3.4).
`Symmetric`: weights ~ Dirichlet(alpha/T, ..., alpha/T) (Kurihara, Welling and Teh 2007, eq. 7, 12).

With the weights integrated out, both give the log probability of labels with counts m as a sum of functions of one
count each (`LabelTerms`):

    constant + sum_i lG(own_i + m_i) - sum_j log(tail_j + m_{>j})

    sticks     own = 1 for i < T, alpha for the last; tail = alpha for j = 1..T-2 (the factors of ERRATA 2.1 telescope)
    symmetric  own = alpha/T; no tails

At expected counts the expression is the labels' part of the bound at the best q(weights) (ERRATA 0.3). Its forward
differences are the conditional probabilities of one label given the others (ERRATA 2.2).

The order of the components matters for sticks (`best_stick_order`). The labels' evidence depends on it through

    lG(alpha + N_T) - lG(1 + N_T) - sum_{i<T} log(alpha + N_{>=i})                                     (ERRATA 2.11)

For a given last label the others are best in descending order, which makes every tail as small as possible. For
alpha <= 1 the smallest label is the best last one, so that plain descending order is best (Kurihara, Welling and Teh
2007, section 3.4). For alpha > 1 the last stick is expected to be longer than the one before it. Any label may then be
the best last one, and all T are tried.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import gammaln, psi

from shoal.points.arrays import Array, IntArray

_BLOCK_ELEMENTS = 1 << 20
_ROUNDING = 1e-13


class LabelTerms(NamedTuple):
    """Terms of log p(labels) of N points, functions of one count each; they include given counts `base`."""

    own: Array  # (T,) > 0
    tail: Array  # (T - 2,) > 0 for sticks, (0,) otherwise
    constant: float  # nats


def masses_above(mass: Array) -> Array:
    """m_{>j} for j = 1..T-2, along the last axis: the tails with a term of their own."""
    n_tails = max(mass.shape[-1] - 2, 0)
    return np.flip(np.cumsum(np.flip(mass, -1), axis=-1), -1)[..., 1 : n_tails + 1]


def plugged_in(terms: LabelTerms, mass: Array) -> float:
    """The terms at counts `mass` (T,), nats.

    At whole numbers this is log p(labels), at expected counts the labels' part of the uncollapsed bound.
    """
    tails = masses_above(mass)[: terms.tail.size]
    return terms.constant + float(gammaln(terms.own + mass).sum() - np.log(terms.tail + tails).sum())


@dataclass(frozen=True)
class Sticks:
    """T labels by stick breaking; the last stick is the rest."""

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
        """log E pi (T,), which sum to one; equal to ERRATA 2.2 at expected counts (ERRATA 2.13)."""
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
        """log E pi (T,), which sum to one: exact for collapsed labels too, as it is linear in the counts (2.13)."""
        return np.asarray(np.log(self.concentration / mass.size + mass) - np.log(self.concentration + mass.sum()))

    def best_order(self, mass: Array) -> IntArray:
        """The order as it is: labels are exchangeable."""
        return np.arange(mass.size)


Labels: TypeAlias = Sticks | Symmetric


def _chain(log_stop: Array, log_go: Array) -> Array:
    """log pi (T,) from log v and log(1 - v) (T - 1,) each, with v_T = 1."""
    return np.asarray(np.append(log_stop, 0.0) + np.append(0.0, np.cumsum(log_go)))


def best_stick_order(mass: Array, concentration: float) -> IntArray:
    """The order (T,) of masses (T,) >= 0, any real numbers, that makes the labels' evidence largest.

    Equal masses keep their order, and the order stays where no other is better. Cost O(T log T), for concentrations
    above one O(T^2), in bounded memory.
    """
    descending = np.argsort(-mass, kind="stable")
    if concentration <= 1.0 or mass.size < 2:
        return descending
    values = _last_label_values(mass[descending], concentration)
    best = float(values.max())
    place = int(np.flatnonzero(values >= best - _ROUNDING * abs(best))[-1])  # of equals the smallest
    return np.append(np.delete(descending, place), descending[place])


def _last_label_values(sizes: Array, alpha: float) -> Array:
    """Terms that depend on the order, (T,): one sum for each choice of the last label among descending `sizes` (T,).

    With label l last, the tails of labels before place l stay. Labels after it move up, and their tails, themselves
    included, grow by n_l.
    """
    tails = np.cumsum(sizes[::-1])[::-1]
    kept = np.append(0.0, np.cumsum(np.log(alpha + tails)))[:-1]
    values = gammaln(alpha + sizes) - gammaln(1.0 + sizes) - kept
    step = max(1, _BLOCK_ELEMENTS // sizes.size)
    places = np.arange(sizes.size)
    for start in range(0, sizes.size, step):
        rows = slice(start, start + step)
        moved = np.log(alpha + tails[None, :] + sizes[rows, None])
        values[rows] -= np.where(places[None, :] > places[rows, None], moved, 0.0).sum(axis=1)
    return np.asarray(values)
