"""What the client gives back: small frozen records and NumPy arrays.

Ids are int64. Arrays of one record share their first axis. JSON has no infinity, so the server sends null where a
moment is infinite or undefined: it arrives here as NaN inside an array, or as None for the whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.points.arrays import Array, IntArray

RESPONSIBILITIES_KEPT = 5
"""The server sends at most this many responsibilities for a point."""


@dataclass(frozen=True)
class IngestResult:
    """What became of one `ingest` call, all batches together."""

    stream: str
    incarnation: str | None
    """UUID of the stream's life; None when there was nothing to send."""
    accepted: int
    log_offset: int | None
    """Points in the stream's log up to and including the last batch; None when there was nothing to send."""
    batches: int
    replayed_batches: int
    """Batches that the server had already: a reply was lost, or the idempotency key was used before."""
    components: IntArray | None = field(default=None, repr=False)
    """(N,) id of each point's component as of its own batch; only with `wait="applied"`. -1 for the points of a batch
    whose reply was lost, where the server has since forgotten what it answered."""


@dataclass(frozen=True)
class Ancestor:
    """A component that is no longer live, and lives on in another."""

    id: int
    born_at: int
    retired_at: int


@dataclass(frozen=True)
class Component:
    """One component. Moments are those of the posterior predictive."""

    id: int
    weight: float
    """Share of the next point that is expected here; NaN where it is no longer remembered."""
    mass: float
    mean: Array | None = field(repr=False)  # (D,)
    variance: Array | None = field(repr=False)  # (D,)
    born_at: int
    last_seen_at: int | None
    covariance: Array | None = field(default=None, repr=False)  # (D, D)
    live: bool = True
    retired_at: int | None = None
    successors: tuple[int, ...] = ()
    """For a component that is no longer live: the ids that its points went to."""
    lineage: tuple[Ancestor, ...] = field(default=(), repr=False)
    """The components that live on in this one, earliest retired first; only from `component(id)`."""
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The server's whole answer for it."""

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
            live=bool(body.get("live", True)),
            retired_at=body.get("retired_at"),
            successors=tuple(int(i) for i in body.get("successors") or ()),
            lineage=tuple(Ancestor(**ancestor) for ancestor in body.get("lineage") or ()),
            raw=body,
        )


@dataclass(frozen=True)
class Components:
    """The components of a stream, largest first. A sequence of `Component`, and arrays over them."""

    stream: str
    incarnation: str | None
    log_offset: int
    points_seen: int
    status: str
    """`live`, `warming_up` while the scale of the data is still being learnt, or `empty`."""
    new_weight: float
    """The weight of what has not been seen yet: with the weights of the components it sums to one."""
    components: tuple[Component, ...] = field(repr=False)

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
        """(K,), in points (decayed ones, where the stream forgets)."""
        return np.array([c.mass for c in self.components], dtype=np.float64)

    @cached_property
    def means(self) -> Array:
        """(K, D); NaN where the server knows none."""
        rows = [c.mean for c in self.components]
        width = next((len(row) for row in rows if row is not None), 0)
        return np.array([np.full(width, np.nan) if row is None else row for row in rows]).reshape(len(rows), width)


@dataclass(frozen=True)
class Predictions:
    """Predictions for N points, in the order in which they were given."""

    stream: str
    log_offset: int | None
    """The oldest offset that any of the points was predicted at; None when there were no points."""
    components: IntArray
    """(N,) the best existing component."""
    log_density: Array = field(repr=False)
    """(N,) log posterior predictive density, in nats."""
    novelty: Array = field(repr=False)
    """(N,) posterior probability that the point belongs to no existing component."""
    responsibility_ids: IntArray = field(repr=False)
    """(N, 5) the likeliest components, -1 where there are fewer."""
    responsibilities: Array = field(repr=False)
    """(N, 5) their probabilities, descending, 0 where there are fewer. With the novelty they sum to at most one."""

    def __len__(self) -> int:
        return len(self.components)


@dataclass(frozen=True)
class StreamInfo:
    """One stream, as the server describes it."""

    stream: str
    incarnation: str
    log_offset: int
    points_seen: int
    """Points applied; `log_offset - points_seen` wait."""
    status: str
    """`empty`, `warming_up`, `live`, or `failed`."""
    n_components: int
    settings: dict[str, Any]
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The server's whole answer for it."""

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "StreamInfo":
        """Read one stream of an answer."""
        names = ("stream", "incarnation", "log_offset", "points_seen", "status", "n_components", "settings")
        return cls(**{name: body[name] for name in names}, raw=body)


@dataclass(frozen=True)
class Restored:
    """A stream goes on from a saved state."""

    stream: str
    incarnation: str
    log_offset: int
    """Where the stream's log is: a restore never sets it back."""


@dataclass(frozen=True)
class Health:
    """Whether the server takes work, and what it says about itself."""

    ready: bool
    detail: dict[str, Any]


def predictions_from_json(rows: list[dict[str, Any]], stream: str, log_offset: int | None) -> Predictions:
    """Arrays from the `predictions` of one or more answers."""
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
    )


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _array(value: Any) -> npt.NDArray[np.float64] | None:
    return None if value is None else np.array(value, dtype=np.float64)
