"""One sweep of the collapsed methods with expectations to second order, every q(z_n) in turn: the compiled form.

Each point is removed from the moments of the counts, its responsibilities are computed from the others, and it is added
again: O(T) a point. The NumPy form, `collapsed.taylor_sweep_reference_inplace`, makes a dozen calls a point and takes
forty times as long at ten components. A test holds the two together.
"""

import math

from shoal.points.arrays import Array
from shoal.runtime.kernels import kernel


@kernel()
def taylor_sweep_inplace(
    resp: Array,
    log_likelihood: Array,
    own: Array,
    tail: Array,
    mean: Array,
    variance: Array,
    tail_mean: Array,
    tail_variance: Array,
) -> None:
    """Update resp (N, T) row by row, with the moments of the counts over all points, which are kept up to date.

    `log_likelihood` (N, T) is E log p(x_n | eta_i); own (T,) and tail are offsets of the label terms. The scores are

        log(own_i + m) - v / (2 (own_i + m)^2) + sum_{j<i} [log(t_j) - log(t_j + 1) - u_j (t_j^-2 - (t_j + 1)^-2) / 2]

    with m, v and t_j - tail_j, u_j mean and variance of the counts without n. Rounding errors of empty counts are
    cut to 0 <= variance <= mean: divided by the square of a small offset they would matter.
    """
    n_points, n_labels = resp.shape
    n_tails = tail.shape[0]
    for n in range(n_points):
        beyond = 0.0
        for k in range(n_labels - 1, -1, -1):
            r = resp[n, k]
            beyond += r
            mean[k] = max(mean[k] - r, 0.0)
            variance[k] = min(max(variance[k] - r * (1.0 - r), 0.0), mean[k])
            if 1 <= k <= n_tails:
                tail_mean[k - 1] = max(tail_mean[k - 1] - beyond, 0.0)
                left = tail_variance[k - 1] - max(beyond * (1.0 - beyond), 0.0)
                tail_variance[k - 1] = min(max(left, 0.0), tail_mean[k - 1])
        passed, top = 0.0, -math.inf
        for k in range(n_labels):
            c = own[k] + mean[k]
            score = log_likelihood[n, k] + passed + math.log(c) - 0.5 * variance[k] / (c * c)
            resp[n, k] = score
            top = max(top, score)
            if k < n_tails:
                t = tail[k] + tail_mean[k]
                bend = 1.0 / (t * t) - 1.0 / ((t + 1.0) * (t + 1.0))
                passed -= math.log1p(1.0 / t) + 0.5 * tail_variance[k] * bend
        total = 0.0
        for k in range(n_labels):
            weight = math.exp(resp[n, k] - top)
            resp[n, k] = weight
            total += weight
        beyond = 0.0
        for k in range(n_labels - 1, -1, -1):
            r = resp[n, k] / total
            resp[n, k] = r
            beyond += r
            mean[k] += r
            variance[k] += r * (1.0 - r)
            if 1 <= k <= n_tails:
                tail_mean[k - 1] += beyond
                tail_variance[k - 1] += max(beyond * (1.0 - beyond), 0.0)
