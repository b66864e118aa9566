"""Requests that send points in batches: ingest and predict."""

import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import httpx
import numpy as np

from shoal.points.arrays import IntArray
from shoal_service.client import requests
from shoal_service.client.bodies import Format, body_of, checked_format
from shoal_service.client.errors import BadPointsError, ShoalClientError
from shoal_service.client.flow import DONE, Flow, Pull, Request, Session, Step, exchange
from shoal_service.client.http import data_path, given, json_of
from shoal_service.client.points import Batch, Batcher, open_source
from shoal_service.client.record_points import Records
from shoal_service.client.results import IngestResult, Predictions, predictions_from_json


def ingest(
    session: Session,
    points: Any,
    *,
    keys: Sequence[str | None] | None = None,
    times: Sequence[Any] | None = None,
    payloads: Sequence[Mapping[str, Any] | None] | None = None,
    weights: Sequence[float | None] | None = None,
    batch_size: int = 1000,
    wait: Literal["applied"] | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    idempotency_key: str | None = None,
    on_refused: Callable[[int, ShoalClientError], bool] | None = None,
    format: Format = "msgpack",  # noqa: A002  the word that every reader of points has for it
    create: bool = False,
    holes: bool = False,
    level: Literal["component", "cluster"] = "component",
) -> Flow[IngestResult]:
    """Send points in batches. Returns when the last batch is durable, or learnt with `wait="applied"`.

    `points`: an array (N, D), a sparse matrix of SciPy, or an iterable of rows, arrays or matrices. AsyncClient also
    accepts asynchronous iterables. float32 is sent as float32, all other real numbers as float64.
    `keys`, `times`, `payloads`, `weights`: make the points of a table records (see `Records`). An iterable may give
    `Records` instead.
    `format`: msgpack is the fastest; arrow needs the extra `shoal[arrow]`.
    `create`: create the stream with the default settings if it does not exist. The stream `default` needs no such wish.
    `holes`: NaN stands for a missing value, which a stream with the setting `missing="marginal"` takes.
    `level="cluster"`: with `wait="applied"`, also the cluster of each point, as clusters are right after its batch.
    `progress(done, total)` is called after each batch; total is None if it is not known.
    `on_refused(row, error)` is called with a point that the server refuses. True: the batch is sent again without it.
    The method needs memory for one batch and one item.

    Every batch has its own key, so a batch that is sent again after a lost answer is stored once. With a fixed
    `idempotency_key` this also holds between processes: send the same points, key and `batch_size` again.

    If it fails, `accepted` of the error is the number of stored points, which are the first ones. `row` of the error
    counts over all points.
    """
    key = _batch_key(idempotency_key)
    kind = checked_format(format)
    if any(values is not None for values in (keys, times, payloads, weights)):
        points = Records(points, keys, times, payloads, weights)
    source = open_source(points)
    batcher = Batcher(batch_size, holes=holes)
    counts = _IngestCounts()
    if level == "cluster" and wait is None:
        raise BadPointsError('points have clusters once they are learnt; use wait="applied" with level="cluster"')
    wanted = given(wait=wait, create="true" if create else None, level=None if level == "component" else level)
    try:
        while (item := (yield Pull(source.items))) is not DONE:
            for batch in batcher.push(item):
                yield from _send(session, batch, kind, key, wanted, counts, on_refused)
                _report(progress, counts.accepted, source.n_points)
        for batch in batcher.flush():
            yield from _send(session, batch, kind, key, wanted, counts, on_refused)
            _report(progress, counts.accepted, source.n_points)
    except ShoalClientError as error:
        error.accepted = counts.accepted
        raise
    except BaseException as error:  # an error of the iterable, or an interrupt
        error.add_note(f"ingest: the first {counts.accepted} points are stored")
        raise
    return counts.result(session.stream or "default", wanted)


def predict(
    session: Session,
    points: Any,
    *,
    batch_size: int = 1000,
    min_offset: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    format: Format = "msgpack",  # noqa: A002
    level: Literal["component", "cluster"] = "component",
    n_clusters: int | None = None,
    resolution: float | None = None,
    holes: bool = False,
) -> Flow[Predictions]:
    """Predict component, log density, novelty and responsibilities of points. The arguments are those of `ingest`.

    `level="cluster"`: also the cluster of each point, with `n_clusters` and `resolution` as in `clusters`.
    The stream does not learn from these points. Raises ConflictError (`no-points`) if the stream is empty.
    """
    kind = checked_format(format)
    source = open_source(points)
    batcher = Batcher(batch_size, holes=holes)
    choice = given(n=n_clusters, resolution=resolution) | ({} if level == "component" else {"level": level})
    params = given(min_offset=min_offset) | choice
    rows: list[dict[str, Any]] = []
    head: dict[str, Any] = {"stream": session.stream or "default", "log_offset": None}

    def ask(batch: Batch) -> Flow[None]:
        nonlocal head
        request = _points_request(session, "predict", batch, kind, params)
        body = json_of((yield from _translated(session, request, batch)), "predictions", "stream", "log_offset")
        head = body if head["log_offset"] is None or body["log_offset"] < head["log_offset"] else head
        rows.extend(body["predictions"])
        _report(progress, len(rows), source.n_points)

    while (item := (yield Pull(source.items))) is not DONE:
        for batch in batcher.push(item):
            yield from ask(batch)
    for batch in batcher.flush():
        yield from ask(batch)
    return predictions_from_json(rows, head["stream"], head["log_offset"])


class _IngestCounts:
    """Progress of an ingest."""

    def __init__(self) -> None:
        self.accepted = 0
        self.batches = 0
        self.replayed = 0
        self.last: dict[str, Any] = {}
        self.ids: dict[str, list[IntArray]] = {"components": [], "clusters": []}
        """Of each batch, by the name of the list in an answer."""

    def add_ids(self, answer: dict[str, Any], n_points: int) -> None:
        for name, known in self.ids.items():
            ids = answer.get(name) or [None] * n_points
            known.append(np.array([-1 if one is None else one for one in ids], dtype=np.int64))

    def result(self, stream: str, wanted: Mapping[str, str]) -> IngestResult:
        joined = {name: np.concatenate([np.empty(0, dtype=np.int64), *known]) for name, known in self.ids.items()}
        return IngestResult(
            stream=self.last.get("stream", stream),
            incarnation=self.last.get("incarnation"),
            accepted=self.accepted,
            log_offset=self.last.get("log_offset"),
            batches=self.batches,
            replayed_batches=self.replayed,
            components=joined["components"] if "wait" in wanted else None,
            clusters=joined["clusters"] if "level" in wanted else None,
        )


def _send(
    session: Session,
    batch: Batch,
    kind: Format,
    key: str,
    wanted: dict[str, str],
    counts: _IngestCounts,
    on_refused: Callable[[int, ShoalClientError], bool] | None,
) -> Flow[None]:
    rows = np.arange(batch.first_row, batch.first_row + batch.n_points)  # in the source
    while True:
        request = _points_request(session, "ingest", batch, kind, wanted)
        request = replace(request, headers={**request.headers, "Idempotency-Key": f"{key}-{batch.first_row}"})
        try:
            response = yield from _translated(session, request, batch)
            break
        except ShoalClientError as error:
            at = -1 if error.row is None else error.row - batch.first_row
            if on_refused is None or not 0 <= at < batch.n_points or not on_refused(int(rows[at]), error):
                raise
        batch, rows = batch.without(at), np.delete(rows, at)
        if not batch.n_points:
            return
    counts.last = json_of(response, "stream", "log_offset")
    counts.accepted += batch.n_points
    counts.batches += 1
    counts.replayed += response.headers.get("Idempotency-Replayed") == "true"
    if "wait" in wanted:
        if response.status_code == httpx.codes.ACCEPTED:  # durable, but not learnt before the timeout of the request
            yield from requests.wait(session, counts.last["log_offset"], timeout_s=session.deadline_s)
            response = yield from _translated(session, request, batch)
        counts.add_ids(json_of(response), batch.n_points)


def _translated(session: Session, request: Request, batch: Batch) -> Generator[Step, Any, httpx.Response]:
    """Send a request. An error that names a row of the batch is changed to name the row of the source."""
    try:
        return (yield from exchange(session, request))
    except ShoalClientError as error:
        if error.row is not None and batch.first_row:
            in_batch, error.row = error.row, error.row + batch.first_row
            where = f"row {error.row} (row {in_batch} of the batch that starts at row {batch.first_row})"
            error.args = (f"{where}: {error.args[0]}",)
        raise


def _points_request(session: Session, path: str, batch: Batch, kind: Format, params: dict[str, str]) -> Request:
    content, content_type = body_of(batch, kind)
    return Request("POST", data_path(session, path), params, {"Content-Type": content_type}, content)


def _batch_key(given: str | None) -> str:
    if given is None:
        return uuid.uuid4().hex
    if not 0 < len(given) <= 100 or not given.isascii() or not given.isprintable() or given[0] == " ":
        raise BadPointsError(
            f"idempotency_key is {given!r}; use 1 to 100 printable ASCII characters, not beginning with a space"
        )
    return given


def _report(progress: Callable[[int, int | None], None] | None, done: int, total: int | None) -> None:
    if progress is not None:
        progress(done, total)
