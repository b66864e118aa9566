"""Labelled data sets that nobody drew as a mixture of the family, and some that were drawn to be hard.

Labels are for judging alone. Rows are shuffled with a fixed seed. Sets of other files are read from the folder that
SHOAL_DATA names; without it, those of scikit-learn and the drawn ones remain.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer


class Labelled(NamedTuple):
    x: np.ndarray  # (N, D)
    y: np.ndarray  # (N,) class


def of_sklearn(name: str) -> Callable[[], Labelled]:
    return lambda: Labelled(*getattr(datasets, f"load_{name}")(return_X_y=True))


def populations(n: int = 10_000, seed: int = 0) -> Labelled:
    """Eight populations in six features as a cytometer sees them: weights from .30 to .02, heavy tails, some skewed."""
    rng = np.random.default_rng(seed)
    weights = np.array([0.3, 0.22, 0.16, 0.12, 0.09, 0.06, 0.03, 0.02])
    y = rng.choice(8, size=n, p=weights)
    means = rng.uniform(0.0, 8.0, size=(8, 6))
    x = np.empty((n, 6))
    for k in range(8):
        rows = y == k
        m = int(rows.sum())
        root = np.linalg.qr(rng.normal(size=(6, 6)))[0] * np.sqrt(rng.uniform(0.1, 0.8, 6))
        tails = np.sqrt(4.0 / rng.chisquare(4.0, size=(m, 1)))
        skew = rng.gamma(2.0, 0.35, size=(m, 6)) * (rng.random(6) < 0.4)
        x[rows] = means[k] + 0.8 * tails * (rng.normal(size=(m, 6)) @ root.T) + skew
    return Labelled(x, y)


def stored(name: str, x: str, y: str) -> Callable[[], Labelled]:
    def load() -> Labelled:
        with np.load(folder() / f"{name}.npz") as z:
            return Labelled(z[x].astype(np.float64), z[y])

    return load


def titles() -> Labelled:
    """News titles: frequencies of terms, reduced to 32 features of unit length, as embeddings would be."""
    from scipy.sparse import csr_array

    with np.load(folder() / "news_t_stream.npz") as z:
        parts = z["data"].astype(np.int64), z["indices"].astype(np.int32), z["indptr"].astype(np.int64)
        counts, y = csr_array(parts, shape=tuple(z["shape"])), z["y"]
    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    x = TruncatedSVD(32, n_iter=5, random_state=0).fit_transform(weighted)
    return Labelled(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9), y)


def folder() -> Path:
    return Path(os.environ.get("SHOAL_DATA", ""))


DRAWN: dict[str, Callable[[], Labelled]] = {
    "moons": lambda: Labelled(*datasets.make_moons(2_000, noise=0.08, random_state=0)),
    "rings": lambda: Labelled(*datasets.make_circles(2_000, noise=0.06, factor=0.45, random_state=0)),
    "blobs": lambda: Labelled(
        *datasets.make_blobs(6_000, centers=12, n_features=8, cluster_std=2.2, random_state=0)[:2]
    ),
    "cytometry, drawn": populations,
}
OWN: dict[str, Callable[[], Labelled]] = {
    "iris": of_sklearn("iris"),
    "wine": of_sklearn("wine"),
    "breast cancer": of_sklearn("breast_cancer"),
    "digits": of_sklearn("digits"),
}
FILES: dict[str, Callable[[], Labelled]] = {
    "outdoor": stored("outdoor_stream", "X", "y"),
    "news titles": titles,
    "log lines, systems": stored("loghub_embed", "X", "system"),
    "log lines, templates": stored("loghub_embed", "X", "y"),
    "mnist": stored("mnist_pca50", "X_train", "y_train"),
}
SETS = OWN | DRAWN | FILES


def available() -> list[str]:
    """Names of the sets that can be read here."""
    return list(SETS) if (folder() / "mnist_pca50.npz").is_file() else [name for name in SETS if name not in FILES]


def load(name: str, most_rows: int) -> Labelled:
    """At most so many rows, shuffled, with the classes as whole numbers from 0."""
    x, y = SETS[name]()
    rows = np.random.default_rng(0).permutation(len(y))[:most_rows]
    return Labelled(np.asarray(x, dtype=np.float64)[rows], np.unique(np.asarray(y)[rows], return_inverse=True)[1])
