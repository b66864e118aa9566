"""Truncation-free variational inference: stochastic, with new components where the points need them.

Wang and Blei (2012), "Truncation-free online variational inference for Bayesian nonparametric models". Mean-field
inference divides a point by exp E log p(x, z | everything), under which a component without points hardly competes.
Here the local step is collapsed instead,

    q(z_n = k) proportional to E[p(x_n, z_n = k | weights, parameters)] = E[pi_k] t_k(x_n),   k <= T
    q(z_n > T) proportional to E[1 - pi_1 - ... - pi_T] t_0(x_n)

with the predictive densities t_k, and labels are drawn from it. Beyond T the sticks are the same process again. So the
points of a batch beyond T are seated by its Chinese restaurant process (concentration alpha), each given those before
it. Their tables become components T + 1, T + 2, ... A batch of B points then moves the global parameters by a
stochastic natural gradient of step rho_t = (delay + t)^-forgetting: statistics S become (1 - rho) S + rho N / B times
those of the batch.

Two choices that the paper leaves open: components are in decreasing mass, and sticks follow from the masses (ERRATA
1.13). A component with less than half a point at the end of an epoch is removed, and the next epoch assigns its points
again. The local step is no coordinate ascent, so the bound need not rise. The reported value is a bound on the evidence
of the Dirichlet process, for the responsibilities under the final components (ERRATA 0.1, 0.3: free sticks).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import entr, logsumexp

from shoal.errors import NoPointsError
from shoal.families import AnyFamily, concatenated, log_marginal, take
from shoal.kernels.distances import row_blocks
from shoal.mixture import BatchFit, Progress, ProgressCallback, by_mass, component_stats
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points
from shoal.process import log_label_prior

EPOCHS = 20
"""Default number of passes over the points."""

_LEAST_MASS = 0.5
_BLOCK_ELEMENTS = 1 << 19


@dataclass(frozen=True)
class Steps:
    """The schedule of the stochastic gradient: rho_t = (delay + t)^-forgetting, t = 1, 2, ..."""

    batch: int = 256
    """Points of a batch, >= 1."""
    forgetting: float = 0.6
    """In (1/2, 1], as Robbins and Monro's conditions ask."""
    delay: float = 1.0

    def size(self, t: int) -> float:
        """rho_t, in (0, 1]."""
        return float((self.delay + t) ** -self.forgetting)


class Globals:
    """The global parameters: statistics on the scale of all N points, components in decreasing mass."""

    def __init__(self, family: AnyFamily, concentration: float, stats: Any) -> None:
        self.family, self.concentration = family, concentration
        self.place(stats)

    def place(self, stats: Any) -> None:
        """Set the statistics, in decreasing mass, and the predictive densities under them."""
        self.stats = take(stats, np.argsort(-stats[0], kind="stable"))
        self.log_weight = log_stick_weights(self.stats[0], self.concentration)
        with_prior = concatenated(self.stats, self.family.empty_stats(1))
        self.predictive = self.family.predictive(self.family.posterior(with_prior))

    def log_joint(self, x: Points) -> Array:
        """(N, T + 1): log E pi_k + log t_k(x); the last column is for all components beyond T."""
        return np.asarray(self.family.log_predictive_from(self.predictive, x) + self.log_weight)

    def move(self, batch: Points, labels: IntArray, n_points: int, step: float) -> None:
        """One natural gradient step towards the statistics of a batch, (B,) labels 0..T' - 1, T' >= T."""
        n_labels = max(int(labels.max()) + 1, len(self.stats[0]))
        used, compact = np.unique(labels, return_inverse=True)
        seen = self.family.empty_stats(n_labels)
        for field, rows in zip(seen, component_stats(self.family, batch, compact), strict=True):
            field[used] = rows
        old = concatenated(self.stats, self.family.empty_stats(n_labels - len(self.stats[0])))
        towards = self.family.scale(seen, step * n_points / labels.size)
        self.place(self.family.add(self.family.scale(old, 1.0 - step), towards))


def fit_tfv(
    family: AnyFamily,
    x: Points,
    *,
    concentration: float = 1.0,
    max_iter: int = EPOCHS,
    batch_size: int = Steps.batch,
    resp_init: Array | None = None,
    rng: np.random.Generator,
    progress: ProgressCallback = None,
) -> BatchFit:
    """Fit points x (N, D) in `max_iter` epochs, each in batches of `batch_size` rows in an order drawn again for each.

    `resp_init` (N, T): responsibilities of the first components; without it the fit starts with none. After each epoch
    all points are divided among the components. `elbo_history[s]` is the bound of these responsibilities after s epochs
    and need not rise. Without `resp_init` its first value is for all points in one component. The fit is that after the
    last epoch. `converged` is False. In `extra`: step_size (), the last one. Raises NoPointsError.

    Cost an epoch: two scores of each point under every component.
    """
    n_points = x.shape[0]
    if n_points == 0:
        raise NoPointsError("there are no points to fit; send at least one row")
    steps = Steps(batch=batch_size)
    history, t = [_bound(family, concentration, x, np.ones((n_points, 1)) if resp_init is None else resp_init)], 0
    start = family.empty_stats(0) if resp_init is None else family.suffstats(x, resp_init)
    found = Globals(family, concentration, start)
    resp = np.ones((n_points, 1)) if resp_init is None else np.array(resp_init)
    for epoch in range(1, max_iter + 1):
        order = rng.permutation(n_points)
        for rows in row_blocks(n_points, 1, steps.batch):
            t += 1
            batch = x[order[rows]]
            labels = draw_labels(found, batch, rng)
            first = len(found.stats[0]) == 0
            found.move(batch, labels, n_points, 1.0 if first else steps.size(t))
        found.place(take(found.stats, _kept(found.stats[0])))
        resp = divide(found, x)
        history.append(_bound(family, concentration, x, resp))
        if progress is not None:
            message = f"tfv, epoch {epoch} of {max_iter}"
            progress(Progress(epoch, history[-1], resp.shape[1], message, epoch / max_iter))
    return _as_fit(family, concentration, x, resp, history, steps.size(max(t, 1)))


def draw_labels(found: Globals, batch: Points, rng: np.random.Generator) -> IntArray:
    """(B,) labels drawn from the collapsed local step; labels from T on are of new components."""
    n_old = len(found.stats[0])
    heights = found.log_joint(batch)
    heights -= heights.max(axis=1, keepdims=True)
    np.cumsum(np.exp(heights, out=heights), axis=1, out=heights)
    drawn = (rng.random((len(heights), 1)) * heights[:, -1:] >= heights).sum(axis=1)
    labels: IntArray = np.minimum(drawn, n_old).astype(np.int64)
    beyond = np.flatnonzero(labels == n_old)
    labels[beyond] += seat(found.family, found.concentration, batch[beyond], rng)
    return labels


def seat(family: AnyFamily, concentration: float, x: Points, rng: np.random.Generator) -> IntArray:
    """(M,) tables of points x (M, D), each drawn given those before: by n_k t_k(x), or alpha t_0(x) for a new one."""
    labels = np.zeros(x.shape[0], dtype=np.int64)
    stats = family.empty_stats(1)  # the last row is always empty: the next table
    for i in range(x.shape[0]):
        point = x[i : i + 1]
        weight = np.log(np.append(stats[0][:-1], concentration))
        log_p = weight + family.log_predictive(family.posterior(stats), point)[0]
        heights = np.cumsum(np.exp(log_p - log_p.max()))
        k = min(int(np.searchsorted(heights, rng.random() * heights[-1], side="right")), len(heights) - 1)
        joined = family.add(take(stats, [k]), family.suffstats(point, np.ones((1, 1))))
        if k == len(heights) - 1:
            stats = concatenated(take(stats, slice(0, k)), joined, family.empty_stats(1))
        else:
            for field, row in zip(stats, joined, strict=True):
                field[k] = row[0]
        labels[i] = k
    return labels


def divide(found: Globals, x: Points) -> Array:
    """(N, T): the collapsed local step over the present components; each row sums to one."""
    resp = np.empty((x.shape[0], len(found.stats[0])))
    for rows in row_blocks(x.shape[0], resp.shape[1] + 1, _BLOCK_ELEMENTS):
        joint = found.log_joint(x[rows])[:, :-1]
        resp[rows] = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    return resp


def log_stick_weights(mass: Array, concentration: float) -> Array:
    """(T + 1,): log E pi_k of free sticks given masses (T,), and log of the rest: the weights sum to one.

    E v_k = (1 + n_k) / (1 + alpha + n_{>=k}), and the weight left of each stick multiplies up.
    """
    tails = np.cumsum(mass[::-1])[::-1]
    above = np.append(tails[1:], 0.0)[: mass.size]
    log_both = np.log(1.0 + concentration + tails)
    log_go = np.append(0.0, np.cumsum(np.log(concentration + above) - log_both))
    return np.asarray(np.append(np.log1p(mass) - log_both, 0.0) + log_go)


def _kept(mass: Array) -> IntArray:
    """Components with enough mass to be kept; always the heaviest."""
    kept = np.flatnonzero(mass >= _LEAST_MASS)
    return kept if kept.size else np.array([int(np.argmax(mass))])


def _bound(family: AnyFamily, concentration: float, x: Points, resp: Array) -> float:
    """sum_k log m(S_k) + label term of free sticks + H(q(z)), nats: at most the evidence of the Dirichlet process."""
    stats = family.suffstats(x, resp)
    evidence = float(log_marginal(family, stats).sum())
    return evidence + log_label_prior(stats[0], concentration) + float(entr(resp).sum())


def _as_fit(
    family: AnyFamily, concentration: float, x: Points, resp: Array, history: list[float], step: float
) -> BatchFit:
    """The components of the final responsibilities, and the weights of free sticks."""
    order = np.argsort(-resp.sum(axis=0), kind="stable")
    resp = resp[:, order]
    stats = family.suffstats(x, resp)
    log_weight = log_stick_weights(stats[0], concentration)
    fit = BatchFit(
        stats=stats,
        resp=resp,
        log_weight=log_weight[:-1],
        log_new_weight=float(log_weight[-1]),
        elbo=history[-1],
        elbo_history=np.array(history),
        elbo_is_exact=True,
        n_rounds=len(history) - 1,
        converged=False,
        extra={"step_size": np.array(step)},
    )
    return by_mass(fit)
