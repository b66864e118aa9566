"""Sources: the body of `PUT /sources/{source}`, and the answers about positions and configured sources."""

from typing import Annotated, Any, Literal

import msgspec
from pydantic import ConfigDict, Field, RootModel

from shoal.errors import did_you_mean
from shoal_service.errors import ParameterError
from shoal_service.wire.models.base import INCARNATION, STREAM, WireModel, example, read_json
from shoal_service.wire.points import Body

_POSITION = {
    "source": "orders",
    "partition": "3",
    "position": "1700000000000-4",
    "before": "1700000000000-0",
    "n_points": 500,
    "seq": 17,
    "log_offset": 2000,
}


class SourcePositionRow(WireModel):
    """Position of a partition of a source in the log of the stream."""

    model_config = example(**_POSITION)

    source: str
    partition: str
    position: str
    """Records up to here are stored."""
    before: str | None
    """The position before the last batch. null: it was the first one."""
    n_points: int = Field(ge=0)
    """Points of the last batch."""
    seq: int = Field(ge=1)
    """Number of its entry in the log."""
    log_offset: int = Field(ge=0)
    """Number of points in the log up to and including that entry."""


_COLUMN = Field(min_length=1, max_length=1000)
Text = Annotated[str, _COLUMN]
Name = Annotated[str, Field(min_length=1, max_length=512)]


class VariableIn(WireModel):
    """Name of an environment variable of the service that holds a secret."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        json_schema_extra={"examples": [{"env": "SHOAL_SOURCE_SECRET_READINGS"}]},
    )

    env: str = Field(pattern="^SHOAL_SOURCE_SECRET_[A-Z0-9_]{1,80}$")
    """It begins with SHOAL_SOURCE_SECRET_."""


class _SourceIn(WireModel):
    """Settings of every source, under the names of the options of `shoal connect`."""

    model_config = ConfigDict(
        extra="forbid", strict=True, use_attribute_docstrings=True, populate_by_name=True, serialize_by_alias=True
    )

    enabled: bool = True
    """Whether it runs. Without it the position stays, and another connector may go on."""
    batch_size: int = Field(2000, ge=1, le=100_000)
    """Most records per batch."""
    on_bad: Literal["stop", "skip"] = "stop"
    """A record that cannot be used: stop there, or skip and count it."""
    key_column: Text | None = None
    """Column or field of the keys."""
    time_column: Text | None = None
    """Column or field of the times: RFC 3339, or seconds since 1970."""
    payload_columns: Text | None = None
    """Columns that make up the payload of each point, with commas."""
    weight_column: Text | None = None
    """Column or field of the weights."""
    columns: Text | None = None
    """Columns or fields to use, with commas. null: all."""


class _MessagesIn(_SourceIn):
    """Settings of sources of messages."""

    format: Literal["json", "msgpack", "float32", "float64"] = "json"
    """Format of a message. float32 and float64: one raw vector, little-endian."""


_BODY: dict[str, Any] = {
    "kind": "redis-stream",
    "redis_url": "rediss://:secret@redis.example.org:6379/0",
    "keys": ["readings"],
}


class RedisSourceIn(_MessagesIn):
    """Redis streams."""

    model_config = example(**_BODY)

    kind: Literal["redis-stream"]
    redis_url: Annotated[str, Field(min_length=1, max_length=2048)] | VariableIn = Field(repr=False)
    """redis:// or rediss:// with user, password, host, port and number of the database. The password is not shown."""
    keys: list[Name] = Field(min_length=1, max_length=100)
    """Keys of the Redis streams."""
    field: Name = "data"
    """Field of an entry that holds the message."""
    key_field: Name | None = None
    """Field of an entry that holds the key of the record."""
    entry_time: bool = False
    """The time of a record is that in the id of its entry."""
    from_: str = Field("0-0", alias="from", pattern=r"^([0-9]{1,20}(-[0-9]{1,20})?|\$)$")
    """Where to begin without a stored position: an id, or $ (the end)."""
    group: Name | None = None
    """Consumer group whose position follows the stored one, for XINFO GROUPS."""


class KafkaSourceIn(_MessagesIn):
    """Topics of Kafka."""

    model_config = example(kind="kafka", brokers="kafka-1:9092,kafka-2:9092", topics=["readings"], message_key=True)

    kind: Literal["kafka"]
    brokers: str = Field(min_length=1, max_length=2048)
    """host:port of one or more brokers, with commas."""
    topics: list[Name] = Field(min_length=1, max_length=100)
    group: Name | None = None
    """Consumer group that shares the partitions among connectors. null: shoal-STREAM."""
    from_end: bool = False
    """Begin at the end of a partition without a stored position."""
    message_key: bool = False
    """The key of a message is that of its record."""
    message_time: bool = False
    """The timestamp of a message is the time of its record."""
    set: dict[str, Annotated[str, Field(max_length=65_536)] | VariableIn] = Field(
        default_factory=dict, max_length=100, repr=False
    )
    """Settings of librdkafka, such as security.protocol. Passwords and keys are not shown."""


class ParquetSourceIn(_SourceIn):
    """Parquet files of a folder, in the order of their names."""

    model_config = example(kind="parquet", folder="readings", key_column="id")

    kind: Literal["parquet"]
    folder: Text
    """Relative to the folder that the server allows (`source_files`)."""


class FileSourceIn(_SourceIn):
    """A file of lines that grows."""

    model_config = example(kind="file", path="readings.ndjson", time_column="at")

    kind: Literal["file"]
    path: Text
    """Relative to the folder that the server allows (`source_files`)."""
    format: Literal["ndjson", "csv"] | None = None
    """null: by the name of the file."""
    header: bool | None = None
    """Whether a csv begins with names. null: if a cell of its first line is not a number."""
    delimiter: Annotated[str, Field(min_length=1, max_length=5)] | None = None
    """Character between the columns of a csv, `tab` or `space`. null: by its first line."""


KINDS: dict[str, type[_SourceIn]] = {
    "redis-stream": RedisSourceIn,
    "kafka": KafkaSourceIn,
    "parquet": ParquetSourceIn,
    "file": FileSourceIn,
}
"""Model of each kind of source."""


class SourceIn(
    RootModel[Annotated[RedisSourceIn | KafkaSourceIn | ParquetSourceIn | FileSourceIn, Field(discriminator="kind")]]
):
    """The source to create, or its new settings. What is left out has its default."""

    model_config = ConfigDict(json_schema_extra={"examples": [_BODY]})


class SourceChangeIn(WireModel):
    """What to change of a source. Its settings, with their secrets, stay."""

    model_config = ConfigDict(
        extra="forbid", strict=True, use_attribute_docstrings=True, json_schema_extra={"examples": [{"enabled": False}]}
    )

    enabled: bool
    """Whether it runs."""


_STATE: dict[str, Any] = {
    "state": "running",
    "error": None,
    "failed_at": None,
    "failures": 0,
    "next_attempt_at": None,
    "records": 120000,
    "skipped": 3,
    "points": 119997,
    "lag_records": 12,
    "lag_s": None,
    "last_stored_at": "2026-11-20T09:31:00.000Z",
    "reported_at": "2026-11-20T09:31:02.000Z",
}
_SOURCE: dict[str, Any] = {
    "name": "readings",
    "kind": "redis-stream",
    "enabled": True,
    "settings": {"redis_url": "rediss://:***@redis.example.org:6379/0", "keys": ["readings"]},
    "created_at": "2026-11-20T09:30:00.000Z",
    "state": _STATE,
    "positions": [{**_POSITION, "source": "readings"}],
}


class SourceStateOut(WireModel):
    """What became of a source. While it works, its numbers are written every two seconds."""

    model_config = example(**_STATE)

    state: Literal["stopped", "starting", "running", "failed"]
    """`stopped`: it is not enabled. `failed`: it cannot work now, `error` says why, and another attempt follows."""
    error: str | None
    failed_at: str | None
    """RFC 3339."""
    failures: int = Field(ge=0)
    """Ends of its process since it last stored points."""
    next_attempt_at: str | None
    """RFC 3339. null unless its process has ended."""
    records: int = Field(ge=0)
    """Records that were read. Those that were read again count again."""
    skipped: int = Field(ge=0)
    """Records that were refused and skipped."""
    points: int = Field(ge=0)
    """Points that were stored."""
    lag_records: int | None
    """Records that wait in the source. null where it does not say."""
    lag_s: float | None
    """Seconds between the last record that was read and the newest one. null where the source does not say."""
    last_stored_at: str | None
    """RFC 3339."""
    reported_at: str | None
    """Time of these values, RFC 3339. null: no process has reported yet."""


class SourceOut(WireModel):
    """A configured source, without its secrets."""

    model_config = example(stream="default", incarnation=INCARNATION, **_SOURCE)

    stream: str
    incarnation: str
    name: str
    kind: str
    enabled: bool
    settings: dict[str, Any]
    """As in `PUT`, with *** in the place of secrets."""
    created_at: str
    state: SourceStateOut
    positions: list[SourcePositionRow]


class SourcesOut(WireModel):
    """The positions of all sources of a stream, and its configured sources."""

    model_config = example(
        **{name: STREAM[name] for name in ("stream", "incarnation")},
        sources=[_POSITION],
        configured=[{"stream": "default", "incarnation": INCARNATION, **_SOURCE}],
    )

    stream: str
    incarnation: str
    sources: list[SourcePositionRow]
    """By source and partition."""
    configured: list[SourceOut]
    """By name."""


def decode_source(text: Body) -> tuple[str, bool, dict[str, Any]]:
    """Read a source: its kind, whether it is enabled, and its other settings. Raises as `read_json`.

    The errors never show an address with its password, nor settings of librdkafka.
    """
    kind = _kind_of(text)
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        given = read_json(_OnlyKind, text).kind  # raises for a body that is no such object
        raise ParameterError(f"kind is {given[:80]!r}; {did_you_mean(given, KINDS)}use one of {', '.join(KINDS)}")
    values = read_json(model, text, secret=("redis_url", "set")).model_dump()
    return values.pop("kind"), values.pop("enabled"), values


def decode_source_change(text: Body) -> bool:
    """Read whether a source runs. Raises as `read_json`."""
    return read_json(SourceChangeIn, text).enabled


def _kind_of(text: Body) -> object:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # `read_json` says what is wrong
        return None
    return found.get("kind") if isinstance(found, dict) else None


class _OnlyKind(WireModel):
    """A source of which only the kind is read."""

    model_config = ConfigDict(extra="ignore", strict=True)

    kind: str
