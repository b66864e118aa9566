"""The verbs that send points, batch after batch: ingest and predict."""

import uuid
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, Literal

import httpx
import numpy as np

from shoal.points.arrays import IntArray
from shoal_service.client import verbs
from shoal_service.client.bodies import Format, body_of, checked_format
from shoal_service.client.errors import BadPointsError, ShoalClientError
from shoal_service.client.flow import DONE, Flow, Pull, Request, Session, Step, exchange
from shoal_service.client.http import data_path, given, json_of
from shoal_service.client.points import Batch, Batcher, open_source
from shoal_service.client.results import IngestResult, Predictions, predictions_from_json


def ingest(
    session: Session,
    points: Any,
    *,
    batch_size: int = 1000,
    wait: Literal["applied"] | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    idempotency_key: str | None = None,
    format: Format = "msgpack",  # noqa: A002  the word that every reader of points has for it
) -> Flow[IngestResult]:
    """Send points in batches; return once the last is durable (`wait="applied"`: learnt, with each point's component).

    `points`: an array (N, D), a sparse matrix of SciPy, or any iterable of rows, of arrays or matrices, or of both; the
    asynchronous client takes asynchronous iterables too. float32 is sent as it is, every other real number as float64.
    `format`: how a batch is written, msgpack being the fastest; arrow needs the extra `shoal[arrow]`. Bounded memory:
    one batch and one item. `progress(done, total)` is called after each batch; total is None where it cannot be known
    beforehand.

    Every batch carries a key of its own, so a batch sent again after a lost reply is stored once. With a fixed
    `idempotency_key` the same holds between processes: the same points, key and `batch_size` can be sent again.

    On failure the error's `accepted` says how many points are stored (the first ones); `row` counts over all points.
    """
    key = _batch_key(idempotency_key)
    kind = checked_format(format)
    source = open_source(points)
    batcher = Batcher(batch_size)
    tally = _Tally()
    try:
        while (item := (yield Pull(source.items))) is not DONE:
            for batch in batcher.push(item):
                yield from _send(session, batch, kind, key, wait, tally)
                _tell(progress, tally.accepted, source.n_points)
        for batch in batcher.flush():
            yield from _send(session, batch, kind, key, wait, tally)
            _tell(progress, tally.accepted, source.n_points)
    except ShoalClientError as error:
        error.accepted = tally.accepted
        raise
    except BaseException as error:  # the iterable's own, or an interrupt
        error.add_note(f"ingest: the first {tally.accepted} points are stored")
        raise
    return tally.result(session.stream or "default", wait)


def predict(
    session: Session,
    points: Any,
    *,
    batch_size: int = 1000,
    min_offset: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    format: Format = "msgpack",  # noqa: A002
) -> Flow[Predictions]:
    """Component, log density, novelty and responsibilities of each point; the other arguments are as in `ingest`.

    Nothing is learnt from them. ConflictError (`no-points`) while the stream is empty.
    """
    kind = checked_format(format)
    source = open_source(points)
    batcher = Batcher(batch_size)
    rows: list[dict[str, Any]] = []
    head: dict[str, Any] = {"stream": session.stream or "default", "log_offset": None}

    def ask(batch: Batch) -> Flow[None]:
        nonlocal head
        request = _points_request(session, "predict", batch, kind, given(min_offset=min_offset))
        body = json_of((yield from _translated(session, request, batch)), "predictions", "stream", "log_offset")
        head = body if head["log_offset"] is None or body["log_offset"] < head["log_offset"] else head
        rows.extend(body["predictions"])
        _tell(progress, len(rows), source.n_points)

    while (item := (yield Pull(source.items))) is not DONE:
        for batch in batcher.push(item):
            yield from ask(batch)
    for batch in batcher.flush():
        yield from ask(batch)
    return predictions_from_json(rows, head["stream"], head["log_offset"])


class _Tally:
    """What an ingest has come to so far."""

    def __init__(self) -> None:
        self.accepted = 0
        self.batches = 0
        self.replayed = 0
        self.last: dict[str, Any] = {}
        self.components: list[IntArray] = []

    def result(self, stream: str, wait: str | None) -> IngestResult:
        empty = [np.empty(0, dtype=np.int64)]
        return IngestResult(
            stream=self.last.get("stream", stream),
            incarnation=self.last.get("incarnation"),
            accepted=self.accepted,
            log_offset=self.last.get("log_offset"),
            batches=self.batches,
            replayed_batches=self.replayed,
            components=np.concatenate(self.components or empty) if wait else None,
        )


def _send(session: Session, batch: Batch, kind: Format, key: str, wait: str | None, tally: _Tally) -> Flow[None]:
    request = _points_request(session, "ingest", batch, kind, given(wait=wait))
    request = replace(request, headers={**request.headers, "Idempotency-Key": f"{key}-{batch.first_row}"})
    response = yield from _translated(session, request, batch)
    tally.last = json_of(response, "stream", "log_offset")
    tally.accepted += batch.n_points
    tally.batches += 1
    tally.replayed += response.headers.get("Idempotency-Replayed") == "true"
    if wait:
        if response.status_code == httpx.codes.ACCEPTED:  # durable, but not learnt in the time that a request has
            yield from verbs.wait(session, tally.last["log_offset"], timeout_s=session.deadline_s)
            response = yield from _translated(session, request, batch)
        ids = json_of(response).get("components")
        tally.components.append(np.full(batch.n_points, -1) if ids is None else np.array(ids, dtype=np.int64))


def _translated(session: Session, request: Request, batch: Batch) -> Generator[Step, Any, httpx.Response]:
    """Exchange; a refusal that names a row of the batch comes to name the row of the source."""
    try:
        return (yield from exchange(session, request))
    except ShoalClientError as error:
        if error.row is not None and batch.first_row:
            in_batch, error.row = error.row, error.row + batch.first_row
            where = f"row {error.row} (row {in_batch} of the batch that starts at row {batch.first_row})"
            error.args = (f"{where}: {error.args[0]}",)
        raise


def _points_request(session: Session, verb: str, batch: Batch, kind: Format, params: dict[str, str]) -> Request:
    content, content_type = body_of(batch, kind)
    return Request("POST", data_path(session, verb), params, {"Content-Type": content_type}, content)


def _batch_key(given: str | None) -> str:
    if given is None:
        return uuid.uuid4().hex
    if not 0 < len(given) <= 100 or not given.isascii() or not given.isprintable() or given[0] == " ":
        raise BadPointsError(f"idempotency_key is {given!r}; give 1 to 100 printable ASCII characters, no space first")
    return given


def _tell(progress: Callable[[int, int | None], None] | None, done: int, total: int | None) -> None:
    if progress is not None:
        progress(done, total)
