"""Simulated streams for benchmarks of quality: mixtures to draw from, and their changes over the stream."""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp


class Truth:
    """A mixture of Gaussians that draws and scores points."""

    def __init__(self, means: np.ndarray, covariances: np.ndarray, weights: np.ndarray) -> None:
        self.means, self.weights = means, weights
        self.roots = np.linalg.cholesky(covariances)
        self._inverse = np.linalg.inv(self.roots)
        log_det = 2.0 * np.log(np.einsum("kdd->kd", self.roots)).sum(axis=1)
        self._log_norm = np.log(weights) - 0.5 * (log_det + means.shape[1] * np.log(2.0 * np.pi))

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Points (n, D) and the component of each."""
        z = rng.choice(len(self.weights), size=n, p=self.weights)
        x = rng.normal(size=(n, self.means.shape[1]))
        for k in range(len(self.weights)):
            x[z == k] = self.means[k] + x[z == k] @ self.roots[k].T
        return x, z

    def log_joint(self, x: np.ndarray) -> np.ndarray:
        """log weight + log density (N, K)."""
        whitened = [((x - m) @ w.T) for m, w in zip(self.means, self._inverse, strict=True)]
        return np.stack([-0.5 * (u**2).sum(axis=1) for u in whitened], axis=1) + self._log_norm

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """(N,)."""
        return np.asarray(logsumexp(self.log_joint(x), axis=1))


class Stream(NamedTuple):
    """Points in order, with the cluster of each: -1 for an outlier."""

    x: np.ndarray
    z: np.ndarray


def grid(spacing: float) -> Truth:
    """Nine unit Gaussians on a 3 x 3 grid, equal weights."""
    means = spacing * np.array([(i, j) for i in range(3) for j in range(3)], dtype=float)
    return Truth(means, np.tile(np.eye(2), (9, 1, 1)), np.full(9, 1 / 9))


def separated(rng: np.random.Generator, d: int, c: float, k: int = 10) -> Truth:
    """k Gaussians of random covariance (eigenvalues in .1 to 1), c-separated as by Dasgupta (1999): any two means at
    least c sqrt(D max eigenvalue) apart; weights Dirichlet(5)."""
    turns = np.linalg.qr(rng.normal(size=(k, d, d)))[0]
    covariances = turns @ (rng.uniform(0.1, 1.0, size=(k, d, 1)) * turns.transpose(0, 2, 1))
    means: list[np.ndarray] = []
    while len(means) < k:
        mean = c * rng.normal(size=d)
        if all(np.linalg.norm(mean - other) >= c * np.sqrt(d) for other in means):
            means.append(mean)
    return Truth(np.array(means), covariances, rng.dirichlet(np.full(k, 5.0)))


def zipf(rng: np.random.Generator, k: int = 200, d: int = 128, spread: float = 0.5) -> Truth:
    """k unit spherical Gaussians around means with this spread, with weights proportional to 1, 1/2, 1/3, ..."""
    weights = 1.0 / np.arange(1, k + 1)
    return Truth(spread * rng.normal(size=(k, d)), np.tile(np.eye(d), (k, 1, 1)), weights / weights.sum())


def drift(rng: np.random.Generator, d: int, n: int, k: int = 8, life: int = 40_000, gap: float = 7.0) -> Stream:
    """k unit Gaussians at any time that move 5 deviations in 20,000 points, live about `life` points, and are then
    replaced by others elsewhere. Means are never closer than `gap`, nor born that close to where one has died within
    the last 12,000 points."""
    half = 16.0 if d == 2 else 6.0
    step, speed = 100, 5.0 / 20_000

    def place(taken: list[np.ndarray]) -> np.ndarray:
        while True:
            point = rng.uniform(-half, half, size=d)
            if all(np.linalg.norm(point - other) > gap for other in taken):
                return point

    means: list[np.ndarray] = []
    for _ in range(k):
        means.append(place(means))
    ids, ends = list(range(k)), [int(rng.uniform(0.3, 1.3) * life) for _ in range(k)]
    heading, graves = rng.normal(size=(k, d)), []
    x, z = np.empty((n, d)), np.empty(n, dtype=np.int64)
    for start in range(0, n, step):
        for i in range(k):
            others = [means[j] for j in range(k) if j != i]
            if start >= ends[i]:
                graves = [(at, grave) for at, grave in graves if start - at < 12_000] + [(start, means[i])]
                means[i] = place(others + [grave for _, grave in graves])
                ids[i], ends[i] = max(ids) + 1, start + int(rng.uniform(0.5, 1.5) * life)
            moved = means[i] + heading[i] / np.linalg.norm(heading[i]) * speed * step
            if np.abs(moved).max() > half or any(np.linalg.norm(moved - other) < gap for other in others):
                heading[i] = rng.normal(size=d)
            else:
                means[i] = moved
        rows = rng.integers(k, size=min(step, n - start))
        x[start : start + step] = np.array(means)[rows] + rng.normal(size=(len(rows), d))
        z[start : start + step] = np.array(ids)[rows]
    return Stream(x, z)


def newcomer(rng: np.random.Generator, d: int, n: int, comes: int, share: float = 0.1, away: float = 5.0) -> Stream:
    """Five unit Gaussians 12 apart. From point `comes` on, a sixth at distance `away` from the first has this share."""
    means = np.zeros((6, d))
    means[:5, 0] = 12.0 * np.arange(5)
    means[5, 1] = away
    z = rng.integers(5, size=n)
    late = (np.arange(n) >= comes) & (rng.random(n) < share)
    z[late] = 5
    return Stream(means[z] + rng.normal(size=(n, d)), z)


def with_outliers(rng: np.random.Generator, stream: Stream, share: float = 0.01) -> Stream:
    """Replace this share of the points by points uniform over a box three times as wide as the stream."""
    low, high = stream.x.min(axis=0), stream.x.max(axis=0)
    out = rng.random(len(stream.x)) < share
    x, z = stream.x.copy(), stream.z.copy()
    x[out] = rng.uniform(low - (high - low), high + (high - low), size=(int(out.sum()), x.shape[1]))
    z[out] = -1
    return Stream(x, z)


def squares(rng: np.random.Generator, n: int) -> Stream:
    """Four uniform squares."""
    z = rng.integers(4, size=n)
    return Stream(np.stack([z % 2, z // 2], axis=1) * 3.0 + rng.uniform(-1.0, 1.0, size=(n, 2)), z)


def heavy(rng: np.random.Generator, n: int, dof: float = 3.0) -> Stream:
    """Five Student t clusters in the plane."""
    z = rng.integers(5, size=n)
    noise = rng.normal(size=(n, 2)) / np.sqrt(rng.chisquare(dof, size=(n, 1)) / dof)
    return Stream(12.0 * np.stack([z, z % 2], axis=1) + noise, z)


def rings(rng: np.random.Generator, n: int) -> Stream:
    """Two rings, one inside the other."""
    z = rng.integers(2, size=n)
    angle = rng.uniform(0.0, 2.0 * np.pi, size=n)
    radius = np.where(z == 0, 2.0, 6.0) + 0.2 * rng.normal(size=n)
    return Stream(radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1), z)


def duplicates(rng: np.random.Generator, n: int, d: int = 8) -> Stream:
    """Twenty places. At each of them, all points are equal up to 1e-9."""
    z = rng.integers(20, size=n)
    return Stream(rng.normal(size=(20, d))[z] + 1e-9 * rng.normal(size=(n, d)), z)
