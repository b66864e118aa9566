"""Requests without points, as flows for both clients. Those with points are in `batch_requests.py`."""

import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from shoal_service.client.errors import UnavailableError
from shoal_service.client.flow import Flow, Request, Session, exchange
from shoal_service.client.http import data_path, given, json_body, json_of, stream_path
from shoal_service.client.results import (
    Component,
    Components,
    Health,
    Restored,
    Sample,
    StreamInfo,
)

SNAPSHOT_TYPE = "application/octet-stream"
_HEAD = ("stream", "log_offset", "points_seen", "status", "new_weight")
PAGE = 10_000
"""Components per page. The server sends fewer if they are large."""

STREAMS_PAGE = 1_000
"""Streams per page: about a megabyte."""

UNCHANGED: Final = "\0"
"""Stands for a text that stays as it is. No label holds it."""


def components(session: Session, /, *, min_offset: int | None = None, covariance: bool = False) -> Flow[Components]:
    """Read all components of the stream, largest first.

    `min_offset`: wait until the first `min_offset` points of the log are learnt, to read your own writes
    (`client.ingest(x).log_offset`). `covariance`: also read the covariances, (D, D) arrays.
    Raises UnavailableError if they are not learnt before the deadline, InvalidRequestError beyond the end of the log.
    """
    params = {"limit": str(PAGE)} | given(min_offset=min_offset, fields="covariance" if covariance else None)
    found: dict[int, Component] = {}  # by id: a component that grows between two pages may come twice
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
        feature_names=None if head.get("feature_names") is None else tuple(head["feature_names"]),
    )


def component(session: Session, /, component_id: int, *, min_offset: int | None = None) -> Flow[Component]:
    """Read one component, live or retired, with its covariance and lineage. Raises NotFoundError for an unknown id."""
    path = data_path(session, f"components/{int(component_id)}")
    response = yield from exchange(session, Request("GET", path, given(min_offset=min_offset)))
    return Component.from_json(json_of(response, "id", "born_at"))


def sample(session: Session, /, n: int = 1_000, *, after: int = 0) -> Flow[Sample]:
    """Read the newest points, at most `n` of them, with their components, novelty and log density of today.

    `after`: only points that come after this log offset. There are fewer where the log holds no more.
    """
    params = {"n": str(n), "after": str(after)}
    response = yield from exchange(session, Request("GET", data_path(session, "sample"), params))
    return Sample.from_json(json_of(response, "points", "novelty"))


def wait(session: Session, /, log_offset: int, *, timeout_s: float | None = 60.0) -> Flow[int]:
    """Wait until the first `log_offset` points of the log are learnt. Returns the offset that the stream has reached.

    Raises UnavailableError after `timeout_s` (None: no limit), InvalidRequestError beyond the end of the log.
    """
    patient = replace(session, deadline_s=timeout_s, retries=2**31)
    request = Request("GET", data_path(session, "components"), {"limit": "1", "min_offset": str(log_offset)})
    return int(json_of((yield from exchange(patient, request)), "log_offset")["log_offset"])


def streams(session: Session, /, name: str | None = None) -> Flow[list[StreamInfo]]:
    """Read the streams of the server, in order of their names, page by page.

    `name`: only streams of this name, or of names that match a pattern such as `sensors-*`. None: all.
    """
    found: list[StreamInfo] = []
    cursor: str | None = None
    while True:
        params = {"limit": str(STREAMS_PAGE)} | given(name=name, cursor=cursor)
        body = json_of((yield from exchange(session, Request("GET", "/streams", params))), "streams")
        found += map(StreamInfo.from_json, body["streams"])
        cursor = body.get("next")
        if cursor is None:
            return found


def stream_info(session: Session, /, name: str) -> Flow[StreamInfo]:
    """Read one stream and its settings. Raises NotFoundError if there is none of that name."""
    return StreamInfo.from_json(json_of((yield from exchange(session, Request("GET", stream_path(name)))), "settings"))


def create_stream(session: Session, /, name: str, **settings: Any) -> Flow[StreamInfo]:
    """Create a stream, or change settings of an existing one: family, n_features, concentration, half_life, ...

    Raises ConflictError for a change of the shape (family, number of features, prior) of an existing stream.
    """
    response = yield from exchange(session, Request("PUT", stream_path(name), **json_body(settings)))
    return StreamInfo.from_json(json_of(response))


def change_stream(session: Session, /, name: str, **settings: Any) -> Flow[StreamInfo]:
    """Change settings of a stream. Raises NotFoundError if there is none, ConflictError as `create_stream`."""
    yield from stream_info(session, name)
    body = json_body(settings)
    headers = {**body["headers"], "If-Match": "*"}
    response = yield from exchange(session, Request("PUT", stream_path(name), **{**body, "headers": headers}))
    return StreamInfo.from_json(json_of(response))


def delete_stream(session: Session, /, name: str) -> Flow[None]:
    """Delete a stream and all its data. There is no retry: a new stream of the same name may exist by then."""
    yield from exchange(session, Request("DELETE", stream_path(name), repeatable=False))


def snapshot_save(
    session: Session, /, path: str | os.PathLike[str], *, min_offset: int | None = None, window: bool = True
) -> Flow[int]:
    """Write the state of the stream to a file, completely or not at all. Returns the size in bytes.

    `window`: also the points of the window, so that a restored stream can be refined at once.
    """
    params = given(min_offset=min_offset, window="true" if window else None)
    response = yield from exchange(session, Request("GET", data_path(session, "snapshot"), params))
    target = Path(path)
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        partial.write_bytes(response.content)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return len(response.content)


def snapshot_restore(session: Session, /, path: str | os.PathLike[str]) -> Flow[Restored]:
    """Restore the stream to a saved state. A stream that does not exist is created with the settings of the snapshot.

    A restore is an entry of the log, so offsets never decrease. It has a key, so a retry after a lost answer does not
    undo later batches. Raises InvalidRequestError for a damaged file, ConflictError for a stream of another shape.
    """
    headers = {"Content-Type": SNAPSHOT_TYPE, "Idempotency-Key": uuid.uuid4().hex}
    request = Request("PUT", data_path(session, "snapshot"), headers=headers, content=Path(path).read_bytes())
    body = json_of((yield from exchange(session, request)), "stream", "incarnation", "log_offset")
    return Restored(body["stream"], body["incarnation"], body["log_offset"])


def health(session: Session) -> Flow[Health]:
    """Ask once whether the server is ready. Raises UnreachableError if there is no server."""
    try:
        response = yield from exchange(replace(session, retries=0), Request("GET", "/readyz"))
    except UnavailableError as error:
        return Health(ready=False, detail={"status": error.status, "detail": error.detail})
    return Health(ready=True, detail=json_of(response))


def label(
    session: Session, /, component_id: int, label: str | None = UNCHANGED, *, note: str | None = UNCHANGED
) -> Flow[Component]:
    """Give a component a label (up to 200 characters) and a note (up to 4 KiB). None removes one.

    The successors of the component get them. Raises NotFoundError for an unknown id.
    """
    changes: dict[str, Any] = {name: text for name, text in (("label", label), ("note", note)) if text != UNCHANGED}
    request = Request("PATCH", data_path(session, f"components/{int(component_id)}"), **json_body(changes))
    return Component.from_json(json_of((yield from exchange(session, request)), "id", "label"))
