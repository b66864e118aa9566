"""Settings of a stream: the body of `PUT /streams/{stream}`. Types are checked here, ranges by the library."""

from typing import Any, Literal

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from shoal.errors import SettingError, did_you_mean
from shoal_service.errors import MalformedBodyError, spelling_advice
from shoal_service.wire.formats.json_text import json_text
from shoal_service.wire.models.base import WireModel
from shoal_service.wire.points import Body, WireLimits

EXAMPLE: dict[str, JsonValue] = {
    "family": "gaussian",
    "n_features": 2,
    "prior": "auto",
    "concentration": 1.0,
    "window": 100000,
}


def _setting(*, nullable: bool = False, **schema: JsonValue) -> Any:
    """A field whose range is documented here and checked by the library, which says it better. The library also refuses
    null, unless the setting is nullable.
    """

    def complete(described: dict[str, Any]) -> None:
        described |= schema
        described.pop("default", None)  # a setting that is left out has the default of the library
        if not nullable:
            kinds = [kind for kind in described.pop("anyOf") if kind != {"type": "null"}]
            described |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds}

    return Field(None, json_schema_extra=complete)


class StreamIn(WireModel):
    """Settings of a stream. A new stream needs `n_features`. The settings that make its shape cannot change later."""

    model_config = ConfigDict(
        strict=True,
        allow_inf_nan=False,
        json_schema_extra={"examples": [{**EXAMPLE, "half_life": 50000.0}]},
    )

    family: str | dict[str, str] | None = None
    """Family of distributions of the components. `auto`, the default, chooses a family at the end of the warm-up; the
    settings then show it with its `family_reason`. With a prior of your own or `missing: marginal` the default is
    `gaussian`. For mixed data an object: from the names of features, or columns such as `0-3,7` counted from 0, to
    families. All columns of one family are one block. Part of the shape."""
    family_requested: Literal["auto"] | None = _setting(nullable=True, readOnly=True)
    """`auto` where the family is automatic."""
    family_reason: str | None = _setting(nullable=True, readOnly=True)
    """Why an automatic family was chosen. Shown, not meant to be set."""
    n_features: int | None = _setting(minimum=1)
    """Number of features of a point. Part of the shape. A new stream may give `feature_names` instead, or name
    each feature in `family`."""
    feature_names: list[str] | None = None
    """A distinct name for each feature, in the order of the columns. They are learnt from the first points that have
    names, can be changed, and cannot be removed."""
    level_names: dict[str, list[str]] | None = None
    """Names of the levels of categories, by the name or the number of their column: that of level l at place l. They
    are learnt from points that hold texts. More can be added."""
    embedder: str | None = None
    """Name and version of what made vectors of texts, as `shoal ingest --text` records it. It can be given once."""
    prior: Literal["auto", "hierarchical"] | dict[str, float | list[float] | list[list[float]]] | None = _setting()
    """`auto`: the prior is learnt from the first points. `hierarchical`: the same, and refinements learn all of the
    covariance prior. Otherwise the hyperparameters of the family. Part of the shape."""
    method: Literal["default", "sva", "sva-pm"] | None = _setting()
    """One-pass method, which also says how components are merged and pruned. Part of the shape."""
    concentration: float | None = _setting(exclusiveMinimum=0)
    """Concentration of the Dirichlet process. A larger value expects more components."""
    birth_threshold: float | None = _setting(exclusiveMinimum=0, exclusiveMaximum=1)
    """A point makes a new component if its posterior probability of being new is above this threshold."""
    half_life: float | str | None = _setting(nullable=True, minimum=1)
    """After so many points, or after a time such as `30m` or `1h`, a point counts half. Where it is a time, the times
    of the records decide. null: nothing is forgotten."""
    lateness: str | None = None
    """With a half-life that is a time: a record that is older than the newest one by more than this time, such as
    `10m`, is refused. null: every record is accepted, with the weight that its age deserves."""
    missing: Literal["refuse", "marginal"] | None = _setting()
    """A missing value: an error (the default), or the point is scored by its other features and learnt by its
    expected statistics. Part of the shape."""
    prune_threshold: float | None = _setting(minimum=0, exclusiveMaximum=1)
    """Only for `sva-pm`: components with a smaller share of the mass are pruned."""
    merge_threshold: float | None = _setting(minimum=0, exclusiveMaximum=1)
    """Only for `sva-pm`: components at a smaller distance are merged."""
    responsibility_floor: float | None = _setting(nullable=True, minimum=0, maximum=0.1)
    """Smaller responsibilities are dropped. null: the value of the method."""
    check_schedule: Literal["doubling", "paper"] | None = _setting()
    """When components are checked for merging and pruning."""
    warmup_points: int | None = _setting(minimum=1, maximum=1_000_000)
    """Number of first points from which `prior: auto` learns location and scale. Part of the shape."""
    window: int | None = _setting(minimum=0)
    """Number of newest points that are kept for refinement. 0 keeps none."""
    window_age: str | None = None
    """Largest age of these points, by the times of the records: a time such as `6h`. null: any age; with a half-life
    that is a time, 2.5 half-lives."""
    window_bytes: int | None = _setting(minimum=0)
    """Largest size of these points, in bytes."""
    refinement: Literal["auto"] | None = None
    """`auto`, the default: refinements run from time to time. null: only on request."""
    seed: int | None = _setting(minimum=0, maximum=2**53)
    """Seed of the random choices in refinements."""
    max_components: int | None = _setting(minimum=1, maximum=1_000_000)
    """Largest number of components. Beyond it no component is born, and an event says so."""
    max_state_bytes: int | None = _setting(minimum=4096)
    """Largest size of the state in bytes, with the same effect."""
    max_archived: int | None = _setting(minimum=0, maximum=1_000_000)
    """With a half-life: largest number of retired components that get their id back when their cluster returns. 0: none
    does."""
    partitions: int | None = _setting(minimum=1, maximum=64)
    """Parts of each round of 16,384 points that are learnt side by side and then summed. It is part of the model: the
    result is the same on any number of cores. 1: none."""
    max_records: int | None = _setting(minimum=0)
    """Largest number of records that are kept by their keys, the newest ones. 0 keeps none."""
    record_bytes: int | None = _setting(minimum=0)
    """Largest size of these records in the store, in bytes."""
    record_ttl_s: float | None = _setting(nullable=True, exclusiveMinimum=0)
    """Seconds that a record is kept after it came. null: as long as there is room."""
    novelty_threshold: float | None = _setting(exclusiveMinimum=0, exclusiveMaximum=1)
    """A point counts as novel if its novelty before it was learnt is above this threshold."""
    novelty_rate: float | None = _setting(exclusiveMinimum=0, maximum=1)
    """The event `novelty-rate` is given when so large a share of the last 1,000 points was novel."""


def decode_stream_settings(
    body: Body, content_type: str | None, limits: WireLimits, *, content_encoding: str | None = None
) -> dict[str, Any]:
    """Read the settings that a body names, and no others, as plain values.

    Raises UnsupportedMediaTypeError, BodyTooLargeError, MalformedBodyError (not a JSON object), and SettingError (an
    unknown name, or a value of the wrong type).
    """
    text = json_text(body, content_type, content_encoding, limits.max_body_bytes)
    try:
        return StreamIn.model_validate_json(text).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> MalformedBodyError | SettingError:
    """Describe the first fault. The others would repeat it, because each member of a union reports its own."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "json_invalid" or not name:
        return MalformedBodyError(f"the body is not a JSON object of settings: {first['msg']}")
    if first["type"] == "extra_forbidden":
        known = StreamIn.model_fields
        advice = did_you_mean(name, known) or "the settings are " + ", ".join(known)
        return SettingError(f"{name[:80]!r} is not a setting; {advice}")
    return SettingError(f"{name} is {str(first['input'])[:80]!r}: {first['msg']}{spelling_advice(first)}")
