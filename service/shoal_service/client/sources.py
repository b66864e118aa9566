"""Sources: batches that carry their position, the positions that are stored, and the sources that the server runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shoal_service.client.bodies import Format, body_of, checked_format
from shoal_service.client.errors import BadPointsError
from shoal_service.client.flow import Flow, Request, Session, exchange
from shoal_service.client.http import data_path, given, json_of, name_segment
from shoal_service.client.points import Batcher, open_source


@dataclass(frozen=True)
class SourcePosition:
    """Position of a partition of a source in the log of the stream."""

    source: str
    partition: str
    position: str
    """Records up to here are stored."""
    before: str | None
    """Position before the last batch. None: it was the first one."""
    n_points: int
    """Points of the last batch."""
    seq: int
    """Number of its entry in the log."""
    log_offset: int
    """Points in the log up to and including that entry."""


@dataclass(frozen=True)
class StepResult:
    """Answer to `ingest_step`."""

    stream: str
    incarnation: str
    accepted: int
    log_offset: int
    replayed: bool
    """Whether the step was stored before. Then nothing was added."""


def ingest_step(
    session: Session,
    points: Any,
    *,
    source: str,
    partition: str = "0",
    before: str | None,
    after: str,
    format: Format = "msgpack",  # noqa: A002  as in `ingest`
    create: bool = False,
    holes: bool = False,
    incarnation: str | None = None,
    definition: str | None = None,
) -> Flow[StepResult]:
    """Send the records of a source between two positions as one batch, and store the position with them.

    `points`: a table (N, D), or `Records`. `before`: the position that must be stored, None for none. `after`: the
    position that is stored in the same transaction. `format`, `create` and `holes` as in `ingest`. `incarnation`: of
    the stream; NotFoundError where another one has its name. `definition`: for the connectors that the server runs
    itself; ConflictError of the type `source-changed` where the source was changed, paused or deleted.

    Raises ConflictError of the type `source-position` unless the stored position, its `position`, is `before`. A step
    that was stored last may be sent again; it is answered and not stored twice.
    """
    kind = checked_format(format)
    opened = open_source(points)
    if not opened.n_points:
        raise BadPointsError("a step of a source needs one table with at least one row; send its points as a table")
    batcher = Batcher(opened.n_points, holes=holes)
    ((batch,),) = [list(batcher.push(item)) for item in opened.items]  # type: ignore[union-attr]  # a table is one item
    content, content_type = body_of(batch, kind)
    wanted = given(
        source=source,
        partition=partition,
        position_before=before,
        position=after,
        create="true" if create else None,
        incarnation=incarnation,
        definition=definition,
    )
    headers = {"Content-Type": content_type}
    request = Request("POST", data_path(session, "ingest"), wanted, headers, content)
    response = yield from exchange(session, request)
    body = json_of(response, "stream", "incarnation", "accepted", "log_offset")
    replayed = response.headers.get("Idempotency-Replayed") == "true"
    return StepResult(body["stream"], body["incarnation"], body["accepted"], body["log_offset"], replayed)


def sources(session: Session) -> Flow[list[SourcePosition]]:
    """Read the stored positions of the sources of the stream, by source and partition."""
    body = json_of((yield from exchange(session, Request("GET", data_path(session, "sources")))), "sources")
    return [SourcePosition(**{name: one[name] for name in SourcePosition.__annotations__}) for one in body["sources"]]


def forget_source(session: Session, /, source: str, *, partition: str | None = None) -> Flow[None]:
    """Forget the positions of a source, or of one of its partitions. The points stay. Raises NotFoundError if there
    are none. A configured source begins again. Needs an admin key where keys are needed.
    """
    keep = "definition" if partition is None else None
    wanted = given(partition=partition, keep=keep)
    yield from exchange(session, Request("DELETE", _path(session, source), wanted, repeatable=False))


@dataclass(frozen=True)
class ConfiguredSource:
    """A source that the server runs itself. The server never shows its secrets."""

    stream: str
    name: str
    kind: str
    """`redis-stream`, `kafka`, `parquet` or `file`."""
    enabled: bool
    settings: dict[str, Any]
    """With *** in the place of secrets."""
    created_at: str
    """RFC 3339."""
    state: dict[str, Any]
    """`state` (stopped, starting, running, failed), `error`, `records`, `skipped`, `points`, `lag_records`, `lag_s` and
    others."""
    positions: tuple[dict[str, Any], ...]
    """Stored position of each partition."""
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "ConfiguredSource":
        """Read one source from an answer."""
        shown = {name: body[name] for name in ("stream", "name", "kind", "enabled", "settings", "created_at", "state")}
        return cls(**shown, positions=tuple(body["positions"]), raw=body)


def put_source(
    session: Session, /, name: str, kind: str, settings: Mapping[str, Any], *, enabled: bool = True
) -> Flow[ConfiguredSource]:
    """Have the server read a source for the stream, or change the source of this name. Needs an admin key where keys
    are needed.

    `kind`: `redis-stream`, `kafka`, `parquet` or `file`. `settings`: under the names of the options of `shoal connect`.
    A secret may be {"env": NAME}, a variable of the server whose name begins with SHOAL_SOURCE_SECRET_.
    """
    body = {"kind": kind, "enabled": enabled, **settings}
    return ConfiguredSource.from_json((yield from _send(session, "PUT", name, body)))


def enable_source(session: Session, /, name: str, enabled: bool = True) -> Flow[ConfiguredSource]:
    """Let a configured source go on, or pause it. Raises NotFoundError. Needs an admin key where keys are needed."""
    return ConfiguredSource.from_json((yield from _send(session, "PATCH", name, {"enabled": enabled})))


def configured_sources(session: Session) -> Flow[list[ConfiguredSource]]:
    """List the sources that the server runs for the stream, by name."""
    body = json_of((yield from exchange(session, Request("GET", data_path(session, "sources")))), "configured")
    return [ConfiguredSource.from_json(one) for one in body["configured"]]


def configured_source(session: Session, /, name: str) -> Flow[ConfiguredSource]:
    """Read one source that the server runs. Raises NotFoundError if there is none."""
    response = yield from exchange(session, Request("GET", _path(session, name)))
    return ConfiguredSource.from_json(json_of(response, "name", "state"))


def delete_source(session: Session, /, name: str, *, keep_positions: bool = False) -> Flow[None]:
    """Delete a configured source, and its positions unless they are kept. The points stay. Raises NotFoundError if
    there is none. Needs an admin key where keys are needed.
    """
    wanted = given(keep="positions" if keep_positions else None)
    yield from exchange(session, Request("DELETE", _path(session, name), wanted, repeatable=False))


def _send(session: Session, method: str, name: str, body: Mapping[str, Any]) -> Flow[dict[str, Any]]:
    headers = {"Content-Type": "application/json"}
    request = Request(method, _path(session, name), headers=headers, content=msgspec.json.encode(body))
    return json_of((yield from exchange(session, request)), "name", "state")


def _path(session: Session, name: str) -> str:
    rule = "1 to 100 letters, digits, dots, colons, hyphens and underscores, first a letter or digit"
    return data_path(session, f"sources/{name_segment('source', name, rule)}")
