"""Documented shapes of what the service says about streams and about itself, and of the settings that it takes."""

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

_INCARNATION = "7f1b8c6e-3f0e-4d7a-9c55-2b8f6f0f6a11"
STREAM = {"stream": "default", "incarnation": _INCARNATION, "log_offset": 2000}
_SETTINGS: dict[str, JsonValue] = {
    "family": "gaussian",
    "n_features": 2,
    "prior": "auto",
    "concentration": 1.0,
    "window": 100000,
}


class WireModel(BaseModel):
    """Base of all: nothing but the fields, each documented by the text below it."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


def example(**fields: Any) -> ConfigDict:
    """Model configuration with one example for the documentation."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class StreamAnswer(WireModel):
    """What every answer about a stream begins with."""

    stream: str
    incarnation: str
    """UUID of this life of the stream: one that is deleted and made again has another."""
    log_offset: int = Field(ge=0)
    """Points of the log that this answer takes account of."""


class StreamIn(WireModel):
    """Settings of a stream. A new stream needs `n_features`; of a live one, those of its shape cannot change (409)."""

    model_config = ConfigDict(
        strict=True,
        allow_inf_nan=False,
        json_schema_extra={"examples": [{**_SETTINGS, "half_life": 50000.0}]},
    )

    family: (
        Literal[
            "gaussian",
            "diagonal",
            "known_covariance",
            "multinomial",
            "bernoulli",
            "poisson",
            "dirichlet",
            "von_mises_fisher",
        ]
        | None
    ) = None
    """What a component is; `gaussian` by default. `multinomial` and `poisson` take counts, `bernoulli` zeros and ones;
    these three take sparse rows too. `dirichlet` takes proportions, `von_mises_fisher` unit vectors; these two
    are not refined. Part of the shape."""
    n_features: int | None = None
    """Numbers in a point. Part of the shape."""
    prior: Literal["auto"] | dict[str, float | list[float] | list[list[float]]] | None = None
    """`auto` learns it from the first points; else the family's parameters (gaussian: mean,
    mean_strength, dof, scale; diagonal: mean, mean_strength, shape, rate; known_covariance: mean, prior_covariance,
    covariance; multinomial: pseudo_counts; bernoulli: a, b; poisson: shape, rate; dirichlet:
    precision, pseudo_counts; von_mises_fisher: mean, mean_concentration, concentration). Part of the shape."""
    method: Literal["default", "sva", "sva-pm"] | None = None
    """How the one pass merges and prunes. Part of the shape."""
    concentration: float | None = None
    """Above 0: how readily new components appear."""
    birth_threshold: float | None = None
    """Between 0 and 1: a point whose posterior probability of being new is above it makes a component."""
    half_life: float | None = None
    """Points after which what was learnt counts half; null never forgets."""
    prune_threshold: float | None = None
    """`sva-pm` alone: share of the mass below which a component is pruned."""
    merge_threshold: float | None = None
    """`sva-pm` alone: distance below which two components are merged."""
    responsibility_floor: float | None = None
    """Responsibilities below it are dropped; null takes the method's own."""
    check_schedule: Literal["doubling", "paper"] | None = None
    """When components are merged and pruned."""
    warmup_points: int | None = None
    """Points from which `prior: auto` takes location and scale. Part of the shape."""
    window: int | None = None
    """Points kept for refinement; 0 keeps none."""
    window_bytes: int | None = None
    """Most bytes of those points."""
    refinement: Literal["auto"] | None = None
    """`auto`, the default, refines as the stream goes on; null only when it is asked to."""
    seed: int | None = None
    """Of what refinements draw at random."""
    max_components: int | None = None
    """Past it no component is made any more, which an event says."""
    max_state_bytes: int | None = None
    """Past it neither."""


class StreamOut(StreamAnswer):
    """A stream and its settings."""

    model_config = example(
        **STREAM,
        points_seen=2000,
        status="live",
        n_components=7,
        created_at="2026-11-20T09:30:00Z",
        settings=_SETTINGS,
    )

    points_seen: int
    """Points that the stream's state has taken in, as readers see it. After a restore those of the restored state."""
    status: Literal["empty", "loading", "warming_up", "live", "failed"]
    """`loading`: shortly after a start. `failed`: the learner has stopped, and the service's log says why."""
    n_components: int
    created_at: str
    """RFC 3339."""
    settings: dict[str, Any]


class StreamsOut(WireModel):
    """All streams, by name."""

    streams: list[StreamOut]


class RestoreOut(StreamAnswer):
    """The snapshot is in the log: the stream goes on from it, at an offset that never goes back."""

    model_config = example(**STREAM, restored=True)

    restored: Literal[True]


class HealthOut(WireModel):
    """The process answers."""

    model_config = example(status="ok", version="0.1.0")

    status: Literal["ok"]
    version: str


class ReadyOut(WireModel):
    """200: points can be taken. 503 says what is missing, as a problem."""

    model_config = example(status="ready", store="sqlite in shoal-data", streams=1)

    status: Literal["ready"]
    store: str
    streams: int


class ProblemOut(WireModel):
    """RFC 9457 problem details: every error has this body, as application/problem+json."""

    model_config = example(
        type="/problems/not-finite",
        title="A number is not finite",
        status=400,
        detail="row 3 holds nan in column 1; send finite numbers of magnitude at most 1e150",
        retryable=False,
        row=3,
    )
    MEDIA_TYPE: ClassVar[str] = "application/problem+json"

    type: str
    """Stable: programs may compare it."""
    title: str
    status: int
    detail: str
    retryable: bool
    """Whether the same request can succeed later."""
    row: int | None = None
    """The first bad row, where the fault lies in one."""
    retry_after: float | None = None
    """Seconds after which to try again, where waiting helps."""
