"""Results of the client: small frozen records and NumPy arrays.

Ids are int64. Arrays of one record share their first axis. JSON has no infinity, so the server sends null for a moment
that is infinite or undefined. It becomes NaN inside an array, or None for a whole array.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.points.arrays import Array, IntArray

RESPONSIBILITIES_KEPT = 5
"""Largest number of responsibilities that the server sends for a point."""


@dataclass(frozen=True)
class IngestResult:
    """Result of one `ingest`, for all batches together."""

    stream: str
    incarnation: str | None
    """UUID of this life of the stream; None if there were no points."""
    accepted: int
    log_offset: int | None
    """Number of points in the log at the end of the last batch; None if there were no points."""
    batches: int
    replayed_batches: int
    """Number of batches that the server had already: an answer was lost, or the key was used before."""
    components: IntArray | None = field(default=None, repr=False)
    """(N,) component id of each point right after its batch; only with `wait="applied"`. -1 if the answer for a batch
    was lost and the server has forgotten it."""
    clusters: IntArray | None = field(default=None, repr=False)
    """(N,) cluster id of each point right after its batch; only with `level="cluster"`. -1 as for components, and where
    the component went without a successor."""


@dataclass(frozen=True)
class Ancestor:
    """A retired component that is part of another one."""

    id: int
    born_at: int
    retired_at: int


@dataclass(frozen=True)
class Component:
    """One component. Moments are those of the posterior predictive."""

    id: int
    weight: float
    """Probability that the next point belongs here; NaN if it is forgotten."""
    mass: float
    mean: Array | None = field(repr=False)  # (D,)
    variance: Array | None = field(repr=False)  # (D,)
    born_at: int
    last_seen_at: int | None
    covariance: Array | None = field(default=None, repr=False)  # (D, D)
    telling: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    """Features in which it differs most from the rest: `feature`, `value` and `rest`, most telling first."""
    levels: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)
    """The shares of the most frequent levels, by their name, of each feature of categories."""
    label: str | None = None
    """What people call it."""
    note: str | None = None
    live: bool = True
    retired_at: int | None = None
    successors: tuple[int, ...] = ()
    """For a retired component: ids of the components that have its points now."""
    lineage: tuple[Ancestor, ...] = field(default=(), repr=False)
    """Retired components that are part of this one, earliest first; only from `component(id)`."""
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The whole answer of the server."""

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Component":
        """Read one component of an answer."""
        return cls(
            id=int(body["id"]),
            weight=_number(body.get("weight")),
            mass=_number(body.get("mass")),
            mean=_array(body.get("mean")),
            variance=_array(body.get("variance")),
            born_at=int(body["born_at"]),
            last_seen_at=body.get("last_seen_at"),
            covariance=_array(body.get("covariance")),
            telling=tuple(body.get("telling") or ()),
            levels=body.get("levels") or {},
            label=body.get("label"),
            note=body.get("note"),
            live=bool(body.get("live", True)),
            retired_at=body.get("retired_at"),
            successors=tuple(int(i) for i in body.get("successors") or ()),
            lineage=tuple(Ancestor(**ancestor) for ancestor in body.get("lineage") or ()),
            raw=body,
        )


@dataclass(frozen=True)
class Components:
    """Components of a stream, largest first: a sequence of `Component`, with arrays over them."""

    stream: str
    incarnation: str | None
    log_offset: int
    points_seen: int
    status: str
    """`live`, `warming_up` while the stream learns the scale of the data, or `empty`."""
    new_weight: float
    """Probability that the next point belongs to no component yet. All weights and it sum to one."""
    components: tuple[Component, ...] = field(repr=False)
    feature_names: tuple[str, ...] | None = None
    """Names of the features, in the order of the numbers of a mean."""

    def __len__(self) -> int:
        return len(self.components)

    def __iter__(self) -> Iterator[Component]:
        return iter(self.components)

    def __getitem__(self, index: int) -> Component:
        return self.components[index]

    @cached_property
    def ids(self) -> IntArray:
        """(K,)."""
        return np.array([c.id for c in self.components], dtype=np.int64)

    @cached_property
    def weights(self) -> Array:
        """(K,), in (0, 1)."""
        return np.array([c.weight for c in self.components], dtype=np.float64)

    @cached_property
    def masses(self) -> Array:
        """(K,), in points, after forgetting."""
        return np.array([c.mass for c in self.components], dtype=np.float64)

    @cached_property
    def means(self) -> Array:
        """(K, D); NaN for a mean that is infinite or undefined."""
        rows = [c.mean for c in self.components]
        width = next((len(row) for row in rows if row is not None), 0)
        return np.array([np.full(width, np.nan) if row is None else row for row in rows]).reshape(len(rows), width)


@dataclass(frozen=True)
class Predictions:
    """Predictions for N points, in the order in which they were given."""

    stream: str
    log_offset: int | None
    """Smallest log offset at which the points were predicted; None if there were no points."""
    components: IntArray
    """(N,) id of the best existing component."""
    log_density: Array = field(repr=False)
    """(N,) log posterior predictive density, in nats."""
    novelty: Array = field(repr=False)
    """(N,) posterior probability that the point belongs to no existing component."""
    responsibility_ids: IntArray = field(repr=False)
    """(N, 5) ids of the most probable components; -1 if there are fewer."""
    responsibilities: Array = field(repr=False)
    """(N, 5) their probabilities in descending order; 0 if there are fewer. With novelty they sum to at most one."""
    clusters: IntArray | None = field(default=None, repr=False)
    """(N,) id of the cluster that holds the component; only with `level="cluster"`."""

    def __len__(self) -> int:
        return len(self.components)


@dataclass(frozen=True)
class Sample:
    """The newest points of a stream, in the order of the log, and what the mixture of today says of them."""

    stream: str
    log_offset: int
    """Number of points in the log up to which the answer is valid."""
    points: list[Any] = field(repr=False)
    """Lists of numbers, or sparse rows, as they were sent."""
    components: IntArray = field(repr=False)
    """(N,) id of the component that each point belongs to today."""
    novelty: Array = field(repr=False)
    """(N,) probability today that each point belongs to no component."""
    log_density: Array = field(repr=False)
    """(N,) in nats."""
    log_offsets: IntArray = field(repr=False)
    """(N,) points in the log up to and including each."""
    keys: tuple[str | None, ...] = field(repr=False)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Sample":
        """Read an answer of the server."""
        return cls(
            stream=body["stream"],
            log_offset=body["log_offset"],
            points=body["points"],
            components=np.array(body["components"], dtype=np.int64),
            novelty=np.array(body["novelty"], dtype=np.float64),
            log_density=np.array(body["log_density"], dtype=np.float64),
            log_offsets=np.array(body["log_offsets"], dtype=np.int64),
            keys=tuple(body["keys"]),
        )


@dataclass(frozen=True)
class StreamInfo:
    """One stream, as the server describes it."""

    stream: str
    incarnation: str
    log_offset: int
    points_seen: int
    """Number of points learnt. `log_offset - points_seen` points wait."""
    status: str
    """`empty`, `warming_up`, `live`, or `failed`."""
    n_components: int
    settings: dict[str, Any]
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The whole answer of the server."""

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "StreamInfo":
        """Read one stream of an answer."""
        names = ("stream", "incarnation", "log_offset", "points_seen", "status", "n_components", "settings")
        return cls(**{name: body[name] for name in names}, raw=body)


@dataclass(frozen=True)
class Restored:
    """Result of a restore."""

    stream: str
    incarnation: str
    log_offset: int
    """Number of points in the log. A restore does not change it."""


@dataclass(frozen=True)
class Health:
    """Whether the server is ready, and what it says about itself."""

    ready: bool
    detail: dict[str, Any]


def predictions_from_json(rows: list[dict[str, Any]], stream: str, log_offset: int | None) -> Predictions:
    """Make arrays from the `predictions` of answers."""
    n = len(rows)
    ids = np.full((n, RESPONSIBILITIES_KEPT), -1, dtype=np.int64)
    probabilities = np.zeros((n, RESPONSIBILITIES_KEPT))
    for i, row in enumerate(rows):
        for j, entry in enumerate(row["responsibilities"][:RESPONSIBILITIES_KEPT]):
            ids[i, j] = entry["id"]
            probabilities[i, j] = entry["p"]
    return Predictions(
        stream=stream,
        log_offset=log_offset,
        components=np.array([row["component"] for row in rows], dtype=np.int64),
        log_density=np.array([_number(row["log_density"]) for row in rows], dtype=np.float64),
        novelty=np.array([_number(row["novelty"]) for row in rows], dtype=np.float64),
        responsibility_ids=ids,
        responsibilities=probabilities,
        clusters=np.array([row["cluster"] for row in rows], dtype=np.int64) if n and "cluster" in rows[0] else None,
    )


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _array(value: Any) -> npt.NDArray[np.float64] | None:
    return None if value is None else np.array(value, dtype=np.float64)
