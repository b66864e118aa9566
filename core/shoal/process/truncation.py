"""Stick breaking cut off after T components by v_T = 1: how large T must be, and what the labels say of the weights.

v_i ~ Beta(1, alpha) for i < T. Given labels with counts n the sticks are independent, v_i ~ Beta(1 + n_i, alpha +
n_{>i}) (Ishwaran and James 2001, section 5.2). Only v_1..v_{T-1} are random (ERRATA 3.1).
"""

import numpy as np
from scipy.special import betaln

from shoal.points.arrays import Array

_TRUNCATION_ERROR = 0.01


def default_truncation(n_points: int, concentration: float) -> int:
    """T for which the truncated process is within 0.01 of the whole one, in total variation of N labelled points.

    Ishwaran and James (2001), theorem 2: the difference is about 4 N exp(-(T - 1) / alpha). At most N, at least 2.
    """
    enough = 1 + int(np.ceil(concentration * np.log(4.0 * n_points / _TRUNCATION_ERROR)))
    return max(2, min(enough, n_points))


def log_truncated_label_prior(counts: Array, concentration: float) -> float:
    """log p(labels) in nats of labels with counts (T,) in the order of the sticks, the sticks integrated out.

    Each stick's evidence, sum_{i<T} lB(1 + n_i, alpha + n_{>i}) - lB(1, alpha) (ERRATA 2.1 has it in gammas). Of labels
    as numbered, not of the partition: that is the sum over the T! / (T - k)! ways to number its k blocks.
    """
    stop, go = _posterior(np.asarray(counts, dtype=np.float64), concentration)
    return float(np.sum(betaln(stop, go) - betaln(1.0, concentration)))


def expected_stick_weights(counts: Array, concentration: float) -> Array:
    """E pi (T,) given labels with counts (T,) in the order of the sticks: they sum to one."""
    stop, go = _posterior(np.asarray(counts, dtype=np.float64), concentration)
    return _broken(stop / (stop + go), go / (stop + go))


def sample_log_weights(counts: Array, concentration: float, rng: np.random.Generator) -> Array:
    """log pi (T,) of one draw of the sticks given labels with counts (T,)."""
    stop, go = _posterior(np.asarray(counts, dtype=np.float64), concentration)
    a, b = rng.standard_gamma(stop), rng.standard_gamma(go)  # v = a / (a + b), and 1 - v keeps its digits near zero
    tiny = np.finfo(np.float64).tiny  # a gamma of small shape underflows: its log is then below -700 all the same
    log_a, log_b = np.log(np.maximum(a, tiny)), np.log(np.maximum(b, tiny))
    log_both = np.logaddexp(log_a, log_b)
    return np.asarray(np.append(log_a - log_both, 0.0) + np.append(0.0, np.cumsum(log_b - log_both)))


def _posterior(counts: Array, concentration: float) -> tuple[Array, Array]:
    """The two parameters, (T - 1,) each, of v_i given the labels."""
    tails = np.cumsum(counts[::-1])[::-1]
    return 1.0 + counts[:-1], concentration + tails[1:]


def _broken(stop: Array, go: Array) -> Array:
    """Weights (T,) of independent sticks with means stop, and 1 - mean go."""
    return np.asarray(np.append(stop, 1.0) * np.append(1.0, np.cumprod(go)))
