"""Draws of the von Mises-Fisher distribution by rejection.

Wood (1994), "Simulation of the von Mises Fisher distribution": the cosine w of the angle to the mean direction has the
density (1 - w^2)^((d - 3) / 2) exp(k w), under an envelope from a Beta distribution; the direction across is uniform.
"""

import numpy as np

from shoal.points.arrays import Array


def drawn(direction: Array, concentration: Array, n: int, rng: np.random.Generator) -> Array:
    """(K, n, D): n unit vectors about each direction (K, D), of length one; concentrations (K,) >= 0, 0 is uniform."""
    k, d = direction.shape
    cosine = _cosines(d, np.repeat(np.asarray(concentration, dtype=np.float64), n), rng).reshape(k, n, 1)
    across = rng.standard_normal((k, n, d))
    across -= np.matmul(across, direction[:, :, None]) * direction[:, None, :]
    across /= np.linalg.norm(across, axis=2, keepdims=True)
    points: Array = cosine * direction[:, None, :] + np.sqrt(np.maximum(1.0 - cosine * cosine, 0.0)) * across
    points /= np.linalg.norm(points, axis=2, keepdims=True)
    return points


def _cosines(d: int, concentration: Array, rng: np.random.Generator) -> Array:
    """(M,) cosines of the angles to the mean direction."""
    b = (d - 1.0) / (2.0 * concentration + np.hypot(2.0 * concentration, d - 1.0))
    start, short = (1.0 - b) / (1.0 + b), 2.0 * b / (1.0 + b)  # the mode of the envelope, and one less it
    log_most = np.log(2.0 * short / (1.0 + b))  # log(1 - start^2)
    cosine, waiting = np.empty_like(concentration), np.arange(concentration.size)
    while waiting.size:
        z = rng.beta(0.5 * (d - 1.0), 0.5 * (d - 1.0), waiting.size)
        own = b[waiting]
        w = (1.0 - (1.0 + own) * z) / (1.0 - (1.0 - own) * z)
        gap, least = 2.0 * own * z / (1.0 - (1.0 - own) * z), short[waiting]  # one less w: w itself may round to one
        height = concentration[waiting] * (least - gap)
        height += (d - 1.0) * (np.log(least + start[waiting] * gap) - log_most[waiting])
        taken = height >= np.log1p(-rng.random(waiting.size))
        cosine[waiting[taken]] = w[taken]
        waiting = waiting[~taken]
    return cosine
