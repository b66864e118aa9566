"""The kernels of `divide_kernel` in plain NumPy, on dense arrays."""

import numpy as np
from scipy.special import entr, expit, softmax

from shoal.points.arrays import Array


def divide_block(score: Array, log_weight: Array, weights: Array, log_floor: float) -> tuple[Array, float, float]:
    """Responsibilities (n, T), their entropy, and the share that dropped entries had, both summed times `weights`."""
    value = score + log_weight
    whole = softmax(value, axis=1)
    kept = np.where(value - value.max(axis=1, keepdims=True) >= log_floor, whole, 0.0)
    total = kept.sum(axis=1)
    resp: Array = kept / total[:, None]
    return resp, float(weights @ entr(resp).sum(axis=1)), float(weights @ (1.0 - total))


def divide_in_two(score: Array, log_odds: float, weight: Array) -> tuple[Array, tuple[float, float, float]]:
    """Shares (m,) of the first of two children; the weight of each, and the entropy, summed times `weight`."""
    first, second = expit(score + log_odds), expit(-score - log_odds)
    entropy = entr(first) + entr(second)
    return first, (float(weight @ first), float(weight @ second), float(weight @ entropy))


def pair_entropies(resp: Array, weights: Array) -> Array:
    """E (T, T), nats, of responsibilities (N, T): the weighted entropy between two, given that it is one of them."""
    n_components = resp.shape[1]
    found = np.zeros((n_components, n_components))
    for a in range(n_components):
        for b in range(a):
            u, v = resp[:, a], resp[:, b]
            found[a, b] = found[b, a] = weights @ (entr(u) + entr(v) - entr(u + v))
    return found
