"""The sweep of `collapsed_kernel` in plain NumPy: the same step, said in moments."""

import numpy as np

from shoal.points.arrays import Array
from shoal.variational.collapsed_exact import conditional
from shoal.variational.poisson_binomial import CountMoments, count_moments
from shoal.variational.truncated_labels import LabelTerms


def taylor_sweep_reference_inplace(resp: Array, log_likelihood: Array, terms: LabelTerms) -> None:
    """Update resp (N, T) row by row under E log p(x_n | eta_i) (N, T), the moments summed anew for every point."""
    others = np.ones(len(resp), dtype=bool)
    for n in range(len(resp)):
        others[n] = False
        moments = count_moments(resp[others], terms.tail.size)
        score = log_likelihood[n] + conditional(_second_order(terms, moments), terms)
        weights = np.exp(score - score.max())
        resp[n] = weights / weights.sum()
        others[n] = True


def _second_order(terms: LabelTerms, moments: CountMoments) -> Array:
    """E log(own + m), then E [log(tail + m) - log(tail + m + 1)], each f(mean) + f''(mean) variance / 2."""
    own, tail = terms.own + moments.mean, terms.tail + moments.tail_mean
    labels = np.log(own) - 0.5 * moments.variance / own**2
    tails = np.log(tail) - np.log(tail + 1.0) - 0.5 * moments.tail_variance * (tail**-2 - (tail + 1.0) ** -2)
    return np.concatenate([labels, tails])
