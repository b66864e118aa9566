"""Documented shapes of refinements and events, and the body of `POST /refine`."""

from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from shoal_service.errors import MalformedBodyError, ParameterError, UnsupportedMediaTypeError
from shoal_service.wire.media import Format, parse_content_type
from shoal_service.wire.points import Body
from shoal_service.wire.stream_models import STREAM, WireModel, example

Method = Literal["vdp", "fast-vdp", "tsb", "o-tsb", "ctsb", "o-ctsb", "fsd", "cfsd"]
State = Literal["queued", "running", "adopted", "not-adopted", "failed"]

_OF = {"stream": STREAM["stream"], "incarnation": STREAM["incarnation"]}
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
    """What kind of refinement is asked for; an empty body asks for the default."""

    model_config = ConfigDict(
        extra="forbid", strict=True, use_attribute_docstrings=True, json_schema_extra={"examples": [{"method": "vdp"}]}
    )

    method: Method = "vdp"
    """How the window is divided anew."""
    window: int | None = Field(None, ge=1)
    """Newest points to divide anew, at most; half the stream's own window at least. The whole window when left out."""


class RefinementRow(WireModel):
    """A refinement, from the wish to the outcome."""

    model_config = example(**_REFINEMENT)

    id: str
    state: State
    """`adopted`, `not-adopted` and `failed` are final."""
    method: str
    why: Literal["asked", "warm-up", "doubled", "period", "misfit"]
    """What made it due."""
    created_at: str
    """RFC 3339."""
    window: int | None
    """As asked for."""
    attempts: int
    """Times that it was begun: a worker that ends or takes too long is replaced."""
    progress: dict[str, Any] | None
    """While it runs: round, bound, components, and what it is doing."""
    points_seen: int | None
    """Points seen by the state that it was made of."""
    window_rows: int | None
    """Points that were divided anew."""
    bound_before: float | None
    """Lower bound on the evidence in nats, of the mixture as it was; the same functional as `bound_after`."""
    bound_after: float | None
    components_before: int | None
    components_after: int | None
    tail_mass: float | None
    """Points whose responsibility was moved between components when small shares were dropped."""
    rounds: int | None
    """Passes over the window."""
    seconds: float | None
    """Of the attempt that came to an end."""
    adopted: bool | None
    """null until that is known."""
    reason: str | None
    """Why it was not adopted, or why an attempt failed."""


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


class EventOut(WireModel):
    """The data of one server-sent event; its `id` and `event` are those of the event stream."""

    model_config = example(
        **_OF,
        kind="merged",
        log_offset=4200,
        points_seen=4096,
        parents=[3, 9],
        children=[3],
        refinement=None,
        reason=None,
    )

    stream: str
    incarnation: str
    kind: Literal["born", "merged", "pruned", "split", "refined", "restored", "refused", "capacity", "gap"]
    log_offset: int | None
    """The end of the log's entry that caused it."""
    points_seen: int | None
    """Points that the state had seen when it happened."""
    parents: list[int]
    """Ids of the components that it happened to: all that were joined, the one that was split, the one that died."""
    children: list[int]
    """Ids of those that came of it."""
    refinement: str | None
    """The refinement that it is part of."""
    reason: str | None
    """Why a refinement was refused, or why events are missing."""


def decode_refine(body: Body, content_type: str | None) -> RefineIn:
    """What is asked for; an empty body asks for the default. UnsupportedMediaTypeError, MalformedBodyError,
    ParameterError (an unknown name, or a value out of its range).
    """
    if not body:
        return RefineIn(window=None)
    if parse_content_type(content_type) is not Format.JSON:
        raise UnsupportedMediaTypeError(f"a refinement is asked for in {Format.JSON} only, or without a body")
    try:
        return RefineIn.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "json_invalid" or not name:
            raise MalformedBodyError(f"the body is no object in JSON: {first['msg']}") from None
        raise ParameterError(f"{name} is {str(first['input'])[:80]!r}: {first['msg']}") from None
