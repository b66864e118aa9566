"""Records: points under a key of their own."""

from typing import Any, Literal

from pydantic import Field

from shoal_service.wire.models.base import WireModel, example

RECORD: dict[str, Any] = {
    "key": "host-7/2026-01-31",
    "component": 3,
    "label": "idle hosts",
    "assigned": 5,
    "log_offset": 1812,
    "time": "2026-01-31T12:00:00Z",
    "payload": {"level": "warn"},
    "novelty": 0.0003,
    "log_density": -2.4,
    "resolved": "inherited",
}


class RecordOut(WireModel):
    """A record: the newest point under a key."""

    model_config = example(**RECORD)

    key: str
    component: int | None
    """Id of the live component that the record belongs to today. null if it went without a successor."""
    label: str | None
    """The label of that component."""
    assigned: int
    """Id of the component as the point was learnt."""
    log_offset: int
    """Points in the log up to and including this one."""
    time: str | float | None
    """As it was sent: RFC 3339 in UTC, or seconds since 1970."""
    payload: dict[str, Any] | None
    novelty: float = Field(ge=0, le=1)
    """Probability that the point belonged to no component, just before it was learnt."""
    log_density: float | None
    """Log predictive density in nats, just before it was learnt. null for the first point of a stream."""
    resolved: Literal["exact", "refined", "inherited"]
    """`exact`: the assigned component lives. `refined`: a refinement assigned the record again. `inherited`: the
    component is a successor of the one that was assigned."""


class RecordsOut(WireModel):
    """Records, in the order of the log."""

    model_config = example(records=[RECORD], next=None)

    records: list[RecordOut]
    next: str | None
    """Send it as `cursor` for the next page. null: this is the last one."""


class MemberRow(WireModel):
    """A record of a component."""

    key: str
    log_offset: int
    time: str | float | None
    payload: dict[str, Any] | None
    log_density: float | None
    """Log predictive density in nats under the whole mixture, just before the point was learnt."""


class MembersOut(WireModel):
    """Records of a component, in the order asked for."""

    model_config = example(
        records=[{name: RECORD[name] for name in ("key", "log_offset", "time", "payload", "log_density")}], next=None
    )

    records: list[MemberRow]
    next: str | None
    """Send it as `cursor` for the next page. null: this is the last one."""


class LookupIn(WireModel):
    """Keys of records."""

    model_config = example(keys=["host-7/2026-01-31", "host-8/2026-01-31"])

    keys: list[str] = Field(min_length=1)


class LookupOut(WireModel):
    """The record of each key, in the order of the keys."""

    model_config = example(records=[RECORD, None])

    records: list[RecordOut | None]
    """null where no record has the key."""


class ForgottenOut(WireModel):
    """A record that was forgotten."""

    model_config = example(
        key="host-7/2026-01-31",
        forgotten=True,
        detail="key, time and payload are forgotten; what the components learnt from the point stays",
    )

    key: str
    forgotten: bool
    """false: the request is stored durably and takes effect soon."""
    detail: str
