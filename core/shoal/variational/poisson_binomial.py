"""The Poisson binomial distribution, and expectations under it, exact or to second order.

It is the distribution of a count of independent flips with unequal probabilities. Under q(z) = prod_n q(z_n) the number
of points with a given label, or with a label beyond a given one, has it. Every term of the collapsed models is the
expectation of a function of one such count (ERRATA 2.4, 2.5).
"""

from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import gammaln, polygamma, psi

from shoal.points.arrays import Array
from shoal.variational.label_priors import LabelTerms, masses_above

_DIRECT = 256
"""Most flips convolved one by one; more are halved, and the halves convolved by Fourier transform."""
_BLOCK_ELEMENTS = 1 << 21


class CountMoments(NamedTuple):
    """Means and variances of the counts in the terms of a label model."""

    mean: Array  # (T,) of each label
    variance: Array  # (T,)
    tail_mean: Array  # of labels beyond j, one for each tail of the terms
    tail_variance: Array


def count_moments(resp: Array, n_tails: int) -> CountMoments:
    """Moments of the counts under responsibilities (N, T), of all points."""
    n_labels = resp.shape[1]
    moments = np.zeros((4, n_labels))
    step = max(1, _BLOCK_ELEMENTS // n_labels)
    for start in range(0, len(resp), step):
        block = resp[start : start + step]
        above = masses_above(block)[:, :n_tails]
        moments[0] += block.sum(axis=0)
        moments[1] += (block * (1.0 - block)).sum(axis=0)
        moments[2, :n_tails] += above.sum(axis=0)
        moments[3, :n_tails] += np.maximum(above * (1.0 - above), 0.0).sum(axis=0)
    return CountMoments(moments[0], moments[1], moments[2, :n_tails], moments[3, :n_tails])


def taylor_value(terms: LabelTerms, moments: CountMoments) -> float:
    """The terms to second order about the mean counts, nats: f(mean) + f''(mean) variance / 2 each.

    It is no bound. Where an offset is small, the variance of a small count has far too much weight (ERRATA 2.6).
    """
    own, tail = terms.own + moments.mean, terms.tail + moments.tail_mean
    value = gammaln(own).sum() - np.log(tail).sum()
    curvature = (polygamma(1, own) * moments.variance).sum() + (moments.tail_variance / tail**2).sum()
    return terms.constant + float(value) + 0.5 * float(curvature)


def exact_value(terms: LabelTerms, resp: Array) -> float:
    """The terms in exact expectation under responsibilities (N, T), nats. Cost O(T N log^2 N) for many points.

    Each function is replaced by its difference from its tangent at the mean, and its value at the mean is added. Only
    the rounding changes: otherwise the noise of the transform far from the mean would have a weight of N log N.
    """
    n_points, n_labels = resp.shape
    total = terms.constant
    counts = np.arange(n_points + 1.0)
    step = max(1, _BLOCK_ELEMENTS // (n_points + 1))
    for start in range(0, n_labels, step):
        c = terms.own[start : start + step, None]
        share = resp[:, start : start + step]
        at = share.sum(axis=0)[:, None]
        bent = gammaln(c + counts) - gammaln(c + at) - psi(c + at) * (counts - at)
        total += float((count_pmf(share) * bent).sum() + gammaln(c + at).sum())
    for start in range(0, terms.tail.size, step):
        c = terms.tail[start : start + step, None]
        share = np.stack([resp[:, j + 1 :].sum(axis=1) for j in range(start, start + len(c))], axis=1)
        at = share.sum(axis=0)[:, None]
        bent = np.log(c + counts) - np.log(c + at) - (counts - at) / (c + at)
        total -= float((count_pmf(np.clip(share, 0.0, 1.0)) * bent).sum() + np.log(c + at).sum())
    return total


def count_pmf(p: Array) -> Array:
    """Probabilities (C, N + 1) of 0..N successes in N flips, for C counts at once: p (N, C) in 0..1.

    Exact to rounding; for more than 256 flips to about 1e-16 of the largest probability, and never negative.
    """
    n, c = p.shape
    if n > _DIRECT:
        return _convolved(count_pmf(p[: n // 2]), count_pmf(p[n // 2 :]))
    pmf = np.zeros((c, n + 1))
    pmf[:, 0] = 1.0
    for i in range(n):
        hit = p[i, :, None] * pmf[:, : i + 1]
        pmf[:, : i + 1] -= hit
        pmf[:, 1 : i + 2] += hit
    return np.asarray(np.maximum(pmf, 0.0, out=pmf))


def _convolved(a: Array, b: Array) -> Array:
    size = a.shape[1] + b.shape[1] - 1
    fast = next_fast_len(size, real=True)
    product = irfft(rfft(a, fast, axis=1) * rfft(b, fast, axis=1), fast, axis=1)[:, :size]
    return np.asarray(np.maximum(product, 0.0))
