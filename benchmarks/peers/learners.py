"""The learners of the comparison, shoal and others, with one interface.

Each learner has its best settings. It is told the number of clusters if it needs it. Its threshold, if it has one, is
tuned with the labels (`tuned`, by agreement on the first 10,000 rows). Its batch has the documented size.
"""

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from workloads import Stream


class Learner(Protocol):
    """A clustering that learns in chunks."""

    def learn(self, x: np.ndarray) -> None:
        """Learn rows (n, D)."""

    def label(self, x: np.ndarray) -> np.ndarray:
        """Return the cluster (n,) of each row, by lasting ids if the learner has them."""

    def log_density(self, x: np.ndarray) -> float:
        """Return the mean log density of the rows in nats, or nan for a learner without a density."""

    def n_clusters(self) -> int:
        """Return the present number of clusters."""


class Shoal:
    """`StreamingDPMixture` with its defaults, except for the family and, on drifting streams, the half-life."""

    def __init__(self, stream: Stream, family: str, refine: Any) -> None:
        from shoal import StreamingDPMixture

        self.model = StreamingDPMixture(family, half_life=stream.half_life, refinement=refine)
        self.learn = self.model.partial_fit
        self.label = self.model.predict

    def log_density(self, x: np.ndarray) -> float:
        return float(self.model.score(x))

    def n_clusters(self) -> int:
        return len(self.model.component_ids_)


class WithoutDensity:
    def log_density(self, x: np.ndarray) -> float:
        return float("nan")


class KMeans(WithoutDensity):
    """MiniBatchKMeans of scikit-learn, told the number of clusters."""

    def __init__(self, stream: Stream) -> None:
        from sklearn.cluster import MiniBatchKMeans

        self.model = MiniBatchKMeans(stream.n_clusters, batch_size=1_024, n_init=3, random_state=0)
        self.learn = self.model.partial_fit
        self.label = self.model.predict

    def n_clusters(self) -> int:
        return int(self.model.n_clusters)


class BirchTree(WithoutDensity):
    """Birch of scikit-learn, with a threshold tuned with the labels, and told the number of clusters at the end."""

    def __init__(self, stream: Stream, threshold: float) -> None:
        from sklearn.cluster import Birch

        self.model = Birch(threshold=threshold, n_clusters=stream.n_clusters, compute_labels=False)
        self.learn = self.model.partial_fit
        self.label = self.model.predict

    def n_clusters(self) -> int:
        return len(np.unique(self.model.subcluster_labels_))


class WarmMixture:
    """BayesianGaussianMixture of scikit-learn (Dirichlet process), fitted to each chunk from the last fit."""

    def __init__(self, stream: Stream) -> None:
        from sklearn.mixture import BayesianGaussianMixture

        self.model = BayesianGaussianMixture(
            n_components=min(3 * stream.n_clusters, 100),
            weight_concentration_prior_type="dirichlet_process",
            warm_start=True,
            max_iter=10,
            random_state=0,
        )
        self.label = self.model.predict

    def learn(self, x: np.ndarray) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ten rounds per chunk need not converge
            self.model.fit(x)

    def log_density(self, x: np.ndarray) -> float:
        return float(self.model.score(x))

    def n_clusters(self) -> int:
        return int((self.model.weights_ > 1e-3).sum())


class River(WithoutDensity):
    """A stream clusterer of river, which learns one row at a time."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def learn(self, x: np.ndarray) -> None:
        for row in x.tolist():
            self.model.learn_one(dict(enumerate(row)))

    def label(self, x: np.ndarray) -> np.ndarray:
        return np.array([self.model.predict_one(dict(enumerate(row))) for row in x.tolist()], dtype=np.int64)

    def n_clusters(self) -> int:
        return int(getattr(self.model, "n_clusters", 0) or len(getattr(self.model, "centers", ())))


def dbstream(stream: Stream, radius: float) -> River:
    from river.cluster import DBSTREAM

    fading = 0.0 if stream.half_life is None else np.log2(2.0) / stream.half_life
    return River(DBSTREAM(clustering_threshold=radius, fading_factor=max(fading, 1e-5), intersection_factor=0.05))


def denstream(stream: Stream, radius: float) -> River:
    from river.cluster import DenStream

    fading = 1e-4 if stream.half_life is None else 1.0 / stream.half_life
    return River(DenStream(epsilon=radius, decaying_factor=fading, mu=2.0, beta=0.501, n_samples_init=1_000))


def clustream(stream: Stream, radius: float) -> River:
    from river.cluster import CluStream

    micro = max(100, 5 * stream.n_clusters)
    return River(CluStream(n_macro_clusters=stream.n_clusters, max_micro_clusters=micro, time_gap=1_000, seed=0))


def scales(stream: Stream) -> list[float]:
    """Return the thresholds to try: multiples of the distance at which rows have a near neighbour."""
    sample = stream.x[:2_000]
    squares = (sample**2).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * sample @ sample.T, 0.0))
    typical = float(np.median(np.partition(distances, 20, axis=1)[:, 20]))
    return [typical * factor for factor in (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)]


MAKERS: dict[str, Callable[..., Learner]] = {
    **{
        f"shoal {family}{', refined' if refine else ', one pass'}": (
            lambda stream, family=family, refine=refine: Shoal(stream, family, refine)
        )
        for family in ("known_covariance", "diagonal", "gaussian")
        for refine in ("auto", None)
    },
    "MiniBatchKMeans, told K": KMeans,
    "Birch, tuned, told K": BirchTree,
    "BayesianGaussianMixture, warm chunks": WarmMixture,
    "DBSTREAM, tuned": dbstream,
    "DenStream, tuned": denstream,
    "CluStream, told K": clustream,
}
TUNED = ("Birch, tuned, told K", "DBSTREAM, tuned", "DenStream, tuned")
SLOW = ("DBSTREAM, tuned", "DenStream, tuned", "CluStream, told K")
"""A row at a time in Python: these are given the first 10,000 rows of a stationary stream, 20,000 of another."""
