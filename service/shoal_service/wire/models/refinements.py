"""Refinements: the body of `POST /refine`, and the answers about them."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from shoal_service.wire.models.base import STREAM, WireModel, example, read_json
from shoal_service.wire.points import Body

Method = Literal["vdp", "fast-vdp", "tsb", "o-tsb", "ctsb", "o-ctsb", "fsd", "cfsd"]
State = Literal["queued", "running", "adopted", "not-adopted", "failed"]

_OF = {name: STREAM[name] for name in ("stream", "incarnation")}
_REFINEMENT = {
    "id": "6b1f0a52-53f6-4c06-9ee1-0f1d3c1c8d3a",
    "state": "adopted",
    "method": "vdp",
    "why": "doubled",
    "created_at": "2026-11-20T09:30:00Z",
    "window": None,
    "attempts": 1,
    "progress": None,
    "points_seen": 20000,
    "window_rows": 20000,
    "copies": 1,
    "bound_before": -65210.4,
    "bound_after": -64890.1,
    "components_before": 7,
    "components_after": 9,
    "tail_mass": 3.2,
    "rounds": 14,
    "seconds": 1.9,
    "adopted": True,
    "reason": None,
}


class RefineIn(WireModel):
    """The requested refinement. An empty body requests the default one."""

    model_config = ConfigDict(
        extra="forbid", strict=True, use_attribute_docstrings=True, json_schema_extra={"examples": [{"method": "vdp"}]}
    )

    method: Method = "vdp"
    """Inference method that is run on the window."""
    window: int | None = Field(None, ge=1)
    """Number of newest points to use, at least half of the window of the stream. The whole window by default."""


class RefinementRow(WireModel):
    """A refinement, from the request to the result."""

    model_config = example(**_REFINEMENT)

    id: str
    state: State
    """`adopted`, `not-adopted` and `failed` are final."""
    method: str
    why: Literal["asked", "warm-up", "doubled", "period", "misfit"]
    """Why the refinement was started."""
    created_at: str
    """RFC 3339."""
    window: int | None
    """Window that was requested."""
    attempts: int
    """Number of attempts so far. An attempt is repeated if its worker ends early or takes too long."""
    progress: dict[str, Any] | None
    """While the refinement runs: round, bound, number of components, and current step."""
    points_seen: int | None
    """Number of points seen by the state that is refined."""
    window_rows: int | None
    """Number of points that were used."""
    copies: int | None = None
    """How often a typical point of the window occurs in it. Above 1, the bound counts each point once."""
    bound_before: float | None
    """Lower bound on the log evidence in nats, before the refinement. Comparable with `bound_after`."""
    bound_after: float | None
    components_before: int | None
    components_after: int | None
    tail_mass: float | None
    """Mass in points that moved between components because small responsibilities were dropped."""
    rounds: int | None
    """Number of passes over the window."""
    seconds: float | None
    """Duration of the attempt that ended."""
    adopted: bool | None
    """null until the result is known."""
    reason: str | None
    """Why the refinement was not adopted, or why an attempt failed."""


class RefinementOut(RefinementRow):
    """A refinement of a stream."""

    model_config = example(**_OF, **_REFINEMENT)

    stream: str
    incarnation: str


class RefinementsOut(WireModel):
    """The newest hundred refinements of a stream, newest first."""

    model_config = example(**_OF, refinements=[_REFINEMENT])

    stream: str
    incarnation: str
    refinements: list[RefinementRow]


def decode_refine(text: Body) -> RefineIn:
    """Read the requested refinement. Raises as `read_json`."""
    return read_json(RefineIn, text) if text else RefineIn(window=None)
