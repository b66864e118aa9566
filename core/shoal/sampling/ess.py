"""Effective sample size: the number of independent draws with the same information about a function of the chains.

The estimate pools all chains (Gelman et al. 2013, "Bayesian Data Analysis", section 11.5): disagreement between chains
lowers it. The sum of autocorrelations is cut off by the initial monotone sequence of Geyer (1992,
"Practical Markov chain Monte Carlo", section 3.3), which holds for reversible chains and is a good guess for others.
"""

import numpy as np

from shoal.points.arrays import Array

FEWEST = 4
"""Fewest draws a chain for an estimate."""


def effective_sample_size(values: Array) -> float:
    """The estimate from a function's values (C, S), chains by rows, draws in order; NaN where there is none.

    There is none with fewer than four draws a chain, or where all values are equal: the function may be constant, or
    not have moved yet. The estimate is at most C S log10(C S), for chains with negative autocorrelation.
    """
    n_chains, n_draws = values.shape
    if n_draws < FEWEST or not np.ptp(values) > 0.0:
        return float("nan")
    covariance = autocovariance(values)
    within = float(covariance[:, 0].mean()) * n_draws / (n_draws - 1)
    between = float(values.mean(axis=1).var(ddof=1)) if n_chains > 1 else 0.0
    variance = within * (n_draws - 1) / n_draws + between
    correlation = 1.0 - (within - covariance.mean(axis=0) * n_draws / (n_draws - 1)) / variance
    correlation[0] = 1.0
    total = n_chains * n_draws
    time = max(_monotone_sum(correlation), 1.0 / np.log10(total))
    return float(total / time)


def autocovariance(values: Array) -> Array:
    """(C, S): mean over t of (f_t - mean)(f_{t+lag} - mean) of each chain (C, S), at lags 0..S-1, divided by S."""
    n_draws = values.shape[1]
    centred = values - values.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, n=2 * n_draws, axis=1)
    products: Array = np.fft.irfft(spectrum * spectrum.conj(), n=2 * n_draws, axis=1)
    return np.asarray(products[:, :n_draws] / n_draws)


def _monotone_sum(correlation: Array) -> float:
    """1 + 2 times the sum of autocorrelations, over pairs of lags while positive, each at most the one before."""
    n_pairs = correlation.size // 2
    pairs = correlation[: 2 * n_pairs].reshape(n_pairs, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0.0)
    pairs = pairs[: negative[0]] if negative.size else pairs
    return float(2.0 * np.minimum.accumulate(pairs).sum() - 1.0) if pairs.size else 0.0
