"""What can be asked of a server, points aside (`posting.py`): each verb is a flow, the same for both clients."""

import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from shoal_service.client.errors import UnavailableError
from shoal_service.client.flow import Flow, Request, Session, exchange
from shoal_service.client.http import data_path, given, json_of, stream_path
from shoal_service.client.results import (
    Component,
    Components,
    Health,
    Restored,
    StreamInfo,
)

SNAPSHOT_TYPE = "application/octet-stream"
_HEAD = ("stream", "log_offset", "points_seen", "status", "new_weight")
PAGE = 10_000
"""Components asked for at a time; the server gives fewer where they are large."""


def components(session: Session, /, *, min_offset: int | None = None, covariance: bool = False) -> Flow[Components]:
    """All components of the stream, largest first; page after page where they are many.

    `min_offset`: wait until the stream has applied its first `min_offset` points, so as to read your own writes
    (`client.ingest(x).log_offset`). `covariance`: also the covariance of each, a (D, D) array.
    UnavailableError when the offset is not applied by the deadline, InvalidRequestError beyond the log's end.
    """
    params = {"limit": str(PAGE)} | given(min_offset=min_offset, fields="covariance" if covariance else None)
    found: dict[int, Component] = {}  # by id: one that grows while the pages turn may come twice
    cursor: str | None = None
    head: dict[str, Any] | None = None
    while head is None or cursor:
        response = yield from exchange(
            session, Request("GET", data_path(session, "components"), params | given(cursor=cursor))
        )
        body = json_of(response, "components", *_HEAD)
        head = head or body
        for entry in body["components"]:
            found.setdefault(int(entry["id"]), Component.from_json(entry))
        cursor = body.get("next")
    return Components(
        stream=head["stream"],
        incarnation=head.get("incarnation"),
        log_offset=head["log_offset"],
        points_seen=head["points_seen"],
        status=head["status"],
        new_weight=head["new_weight"],
        components=tuple(found.values()),
    )


def component(session: Session, /, component_id: int, *, min_offset: int | None = None) -> Flow[Component]:
    """One component, live or not, with its covariance and lineage. NotFoundError for an id never given out."""
    path = data_path(session, f"components/{int(component_id)}")
    response = yield from exchange(session, Request("GET", path, given(min_offset=min_offset)))
    return Component.from_json(json_of(response, "id", "born_at"))


def wait(session: Session, /, log_offset: int, *, timeout_s: float | None = 60.0) -> Flow[int]:
    """Wait until the stream has applied its first `log_offset` points; give the offset that it has reached.

    UnavailableError when it has not by `timeout_s` (None: for ever), InvalidRequestError beyond the log's end.
    """
    patient = replace(session, deadline_s=timeout_s, retries=2**31)
    request = Request("GET", data_path(session, "components"), {"limit": "1", "min_offset": str(log_offset)})
    return int(json_of((yield from exchange(patient, request)), "log_offset")["log_offset"])


def streams(session: Session) -> Flow[list[StreamInfo]]:
    """All streams of the server, by name."""
    body = json_of((yield from exchange(session, Request("GET", "/streams"))), "streams")
    return [StreamInfo.from_json(entry) for entry in body["streams"]]


def create_stream(session: Session, /, name: str, **settings: Any) -> Flow[StreamInfo]:
    """Create a stream, or change the settings of one that exists: family, n_features, concentration, half_life, ...

    ConflictError for a change of shape (family, number of features, prior) on a stream that exists.
    """
    response = yield from exchange(session, Request("PUT", stream_path(name), **_json_body(settings)))
    return StreamInfo.from_json(json_of(response))


def delete_stream(session: Session, /, name: str) -> Flow[None]:
    """End a stream and all that it holds. Not repeated by itself: a namesake may have been made in between."""
    yield from exchange(session, Request("DELETE", stream_path(name), repeatable=False))


def snapshot_save(session: Session, /, path: str | os.PathLike[str], *, min_offset: int | None = None) -> Flow[int]:
    """Write the stream's state to a file, whole or not at all; give its size in bytes."""
    response = yield from exchange(
        session, Request("GET", data_path(session, "snapshot"), given(min_offset=min_offset))
    )
    target = Path(path)
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        partial.write_bytes(response.content)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return len(response.content)


def snapshot_restore(session: Session, /, path: str | os.PathLike[str]) -> Flow[Restored]:
    """Set the stream to a saved state; one that is not there is made, with the settings of the snapshot.

    It is an entry of the log: offsets never go back. Like a batch it carries a key, so a repetition after a lost reply
    does not undo what others sent in between. InvalidRequestError for a damaged file, ConflictError for another shape.
    """
    headers = {"Content-Type": SNAPSHOT_TYPE, "Idempotency-Key": uuid.uuid4().hex}
    request = Request("PUT", data_path(session, "snapshot"), headers=headers, content=Path(path).read_bytes())
    body = json_of((yield from exchange(session, request)), "stream", "incarnation", "log_offset")
    return Restored(body["stream"], body["incarnation"], body["log_offset"])


def health(session: Session) -> Flow[Health]:
    """Whether the server is ready, asked once, without retries. UnreachableError when there is none."""
    try:
        response = yield from exchange(replace(session, retries=0), Request("GET", "/readyz"))
    except UnavailableError as error:
        return Health(ready=False, detail={"status": error.status, "detail": error.detail})
    return Health(ready=True, detail=json_of(response))


def _json_body(value: Any) -> dict[str, Any]:
    return {"headers": {"Content-Type": "application/json"}, "content": msgspec.json.encode(value)}
