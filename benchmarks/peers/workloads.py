"""Streams to learn, drawn from a seed, each with its true model.

Stationary streams have a test set from the same model, the ceiling of the agreement, and the true log density. Drifting
streams are scored while they run. Every draw uses a `numpy.random.Generator`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp


class Stream(NamedTuple):
    """Rows in order of arrival."""

    x: np.ndarray  # (N, D)
    labels: np.ndarray  # (N,) the true cluster, -1 where unknown
    test: np.ndarray | None  # (M, D) fresh rows; None for a stream that drifts
    test_labels: np.ndarray | None  # (M,)
    n_clusters: int
    """The true number, of those alive at a time where they drift; labels' number for real data."""
    half_life: float | None
    """Points after which a learner that forgets should have forgotten half; None for one that stays."""
    ceiling: float
    """Adjusted Rand index on the test set of the true model's own labels; nan where there is no truth."""
    log_density: float
    """Mean log density of the test set under the truth, nats; nan where there is none."""


class Mixture(NamedTuple):
    """Gaussians with covariances root root'."""

    means: np.ndarray  # (K, D)
    roots: np.ndarray  # (K, D, D) lower triangular
    weights: np.ndarray  # (K,)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        z = rng.choice(len(self.weights), size=n, p=self.weights)
        x = rng.normal(size=(n, self.means.shape[1]))
        for k in range(len(self.weights)):
            rows = z == k
            x[rows] = self.means[k] + x[rows] @ self.roots[k].T
        return x, z

    def log_joint(self, x: np.ndarray) -> np.ndarray:
        d = x.shape[1]
        result = np.empty((len(x), len(self.weights)))
        for k, (mean, root) in enumerate(zip(self.means, self.roots, strict=True)):
            z = np.linalg.inv(root) @ (x - mean).T
            log_det = np.log(np.diag(root)).sum()
            result[:, k] = np.log(self.weights[k]) - 0.5 * (z * z).sum(axis=0) - log_det - 0.5 * d * np.log(2 * np.pi)
        return result


def grid(rng: np.random.Generator) -> Mixture:
    """Nine unit Gaussians in two dimensions, four deviations apart."""
    means = 4.0 * np.array([(i, j) for i in range(3) for j in range(3)], dtype=float)
    return Mixture(means, np.tile(np.eye(2), (9, 1, 1)), np.full(9, 1 / 9))


def separated(d: int, c: float) -> Callable[[np.random.Generator], Mixture]:
    """Ten Gaussians with full covariances, |m_i - m_j| >= c sqrt(D max eigenvalue) (Dasgupta 1999)."""

    def make(rng: np.random.Generator) -> Mixture:
        turns = np.linalg.qr(rng.normal(size=(10, d, d)))[0]
        covariances = turns @ (rng.uniform(0.1, 1.0, size=(10, d, 1)) * turns.transpose(0, 2, 1))
        means: list[np.ndarray] = []
        spread = c
        while len(means) < 10:
            mean = spread * rng.normal(size=d)
            if all(np.linalg.norm(mean - other) >= c * np.sqrt(d) for other in means):
                means.append(mean)
            spread *= 1.0005
        return Mixture(np.array(means), np.linalg.cholesky(covariances), rng.dirichlet(np.full(10, 5.0)))

    return make


def zipf(rng: np.random.Generator) -> Mixture:
    """200 spherical Gaussians in 128 dimensions with weights 1/k."""
    weights = 1.0 / np.arange(1, 201)
    means = 1.5 / np.sqrt(2.0) * rng.normal(size=(200, 128))
    return Mixture(means, np.tile(np.eye(128), (200, 1, 1)), weights / weights.sum())


def stationary(make: Callable[[np.random.Generator], Mixture]) -> Callable[[int, np.random.Generator], Stream]:
    from sklearn.metrics import adjusted_rand_score

    def draw(n: int, rng: np.random.Generator) -> Stream:
        truth = make(rng)
        x, labels = truth.draw(n, rng)
        test, test_labels = truth.draw(10_000, rng)
        joint = truth.log_joint(test)
        ceiling = adjusted_rand_score(test_labels, joint.argmax(axis=1))
        density = float(logsumexp(joint, axis=1).mean())
        return Stream(x, labels, test, test_labels, len(truth.weights), None, ceiling, density)

    return draw


def drifting(d: int) -> Callable[[int, np.random.Generator], Stream]:
    """Eight unit Gaussians at a time, each on a straight course. Every 10,000 points one ends and another begins."""

    def draw(n: int, rng: np.random.Generator) -> Stream:
        room = 9.0 if d == 2 else 3.0
        apart = 5.0 if d == 2 else 1.8 * np.sqrt(d)
        x, labels = np.empty((n, d)), np.empty(n, dtype=np.int64)
        place, course, names, born = np.empty((0, d)), np.empty((0, d)), np.empty(0, dtype=np.int64), 0

        def founded() -> np.ndarray:
            while True:
                new = rng.normal(size=d) * room
                if len(place) == 0 or np.linalg.norm(place - new, axis=1).min() > apart:
                    return new

        for start in range(0, n, 500):
            if start % 10_000 == 0 and len(place) == 8:
                keep = np.delete(np.arange(8), rng.integers(8))
                place, course, names = place[keep], course[keep], names[keep]
            while len(place) < 8:
                place = np.vstack([place, founded()])
                step = rng.normal(size=d)
                course = np.vstack([course, 0.02 * step / np.linalg.norm(step)])
                names = np.append(names, born)
                born += 1
            moved = place + course * np.sqrt(d)
            gaps = np.linalg.norm(moved[:, None] - moved[None], axis=2) + 1e9 * np.eye(8)
            turn = (gaps.min(axis=1) < apart) | (np.abs(moved).max(axis=1) > 2.5 * room)
            course[turn] *= -1.0  # a cluster that would come too near another, or leave the area, turns back
            place = np.where(turn[:, None], place, moved)
            rows = slice(start, min(start + 500, n))
            z = rng.integers(8, size=rows.stop - start)
            x[rows] = place[z] + rng.normal(size=(z.size, d))
            labels[rows] = names[z]
        return Stream(x, labels, None, None, 8, 2_000.0, float("nan"), float("nan"))

    return draw


def mnist(n: int, rng: np.random.Generator) -> Stream:
    """MNIST digits, 50 principal components (needs SHOAL_DATA)."""
    z = np.load(Path(os.environ["SHOAL_DATA"]) / "mnist_pca50.npz")
    order = rng.permutation(len(z["X_train"]))[:n]
    test, labels = z["X_test"].astype(float), z["y_test"].astype(np.int64)
    x, y = z["X_train"][order].astype(float), z["y_train"][order].astype(np.int64)
    return Stream(x, y, test, labels, 10, None, float("nan"), float("nan"))


def logs(n: int, rng: np.random.Generator) -> Stream:
    """Embeddings of log lines, labelled by template (needs SHOAL_DATA)."""
    z = np.load(Path(os.environ["SHOAL_DATA"]) / "loghub_embed.npz")
    x, y = z["X"].astype(float), np.unique(z["y"], return_inverse=True)[1]
    order = rng.permutation(len(x))
    held = order[-min(2_000, len(x) // 5) :]
    order = order[: -len(held)][:n]
    return Stream(x[order], y[order], x[held], y[held], int(y.max()) + 1, None, float("nan"), float("nan"))


def sized(draw: Callable[[int, np.random.Generator], Stream], factor: float) -> Callable[..., Stream]:
    """Return the same stream, this many times as long."""
    return lambda n, rng: draw(round(n * factor), rng)


WORKLOADS: dict[str, Callable[[int, np.random.Generator], Stream]] = {
    "grid-2d": stationary(grid),
    "ten-16d": stationary(separated(16, 2.0)),
    "ten-16d, a tenth": sized(stationary(separated(16, 2.0)), 0.1),
    "ten-16d, ten times": sized(stationary(separated(16, 2.0)), 10.0),
    "ten-64d": stationary(separated(64, 2.0)),
    "ten-64d, ten times": sized(stationary(separated(64, 2.0)), 10.0),
    "zipf-128d": stationary(zipf),
    "drift-2d": drifting(2),
    "drift-16d": drifting(16),
    "mnist-50d": mnist,
    "logs": logs,
}
REAL = ("mnist-50d", "logs")
