"""Draws of gamma and beta variables in logs, where a variable itself may be below any float."""

import numpy as np

from shoal.points.arrays import Array


def log_gamma_draws(shape: Array, rng: np.random.Generator) -> Array:
    """Logs of gamma variables of these shapes, > 0, and scale one.

    G(a) is G(a + 1) U^(1 / a), U uniform: a small shape, whose variable rounds to 0, has a logarithm (Marsaglia and
    Tsang 2000).
    """
    return np.asarray(np.log(rng.standard_gamma(shape + 1.0)) + np.log(rng.random(shape.shape)) / shape)


def log_beta_draws(a: Array, b: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """log p and log(1 - p) of beta variables p with these parameters: neither rounds to that of 0."""
    one, other = log_gamma_draws(a, rng), log_gamma_draws(b, rng)
    both = np.logaddexp(one, other)
    return one - both, other - both
