"""POST /ingest: accept points and store them durably."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from shoal_service.access import WRITE
from shoal_service.errors import (
    DeadLetteredError,
    NotReadyError,
    ParameterError,
    SourceChangedError,
    SourcePositionError,
)
from shoal_service.routes import docs
from shoal_service.routes.answers import json_answer, learnt_columns
from shoal_service.routes.compute import ALWAYS_IN_THREAD
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.key_limits import KeyLimits
from shoal_service.routes.service import IdempotencyKeyHeader, Level, Service, Timeout, key_of, service_of, stream_of
from shoal_service.store import SourceStep, fault_of
from shoal_service.streams import ClusterChoice, Label, LearntRows, Receipt, cluster_ids_of
from shoal_service.wire import encode, record_columns
from shoal_service.wire.models import AppliedOut, IngestOut

DEFAULT_PARTITION = "0"

Source = Annotated[
    str | None,
    Query(
        description="Name of the source that the points come from. Its position is stored with the batch, which is "
        "refused unless it begins at the stored position.",
        examples=["orders"],
    ),
]
Partition = Annotated[
    str | None,
    Query(description="Partition of the source. [default: 0]", examples=["3"]),
]
PositionBefore = Annotated[
    str | None,
    Query(
        description="Position that must be stored. Left out: none is, the batch is the first of its partition.",
        examples=["1700000000000-0"],
    ),
]
Position = Annotated[
    str | None,
    Query(description="Position behind the batch, which is stored with it.", examples=["1700000000000-4"]),
]

Definition = Annotated[
    str | None,
    Query(
        description="Digest of the definition of a configured source, which the service's own connectors send. The "
        "batch is refused where the source was changed, paused or deleted meanwhile.",
    ),
]


def source_step(
    source: str | None, partition: str | None, before: str | None, after: str | None, definition: str | None
) -> SourceStep | None:
    """Return the step of a source that the parameters of an ingest name, or None. Raises ParameterError."""
    if source is None:
        given = {"partition": partition, "position_before": before, "position": after, "definition": definition}
        for name, value in given.items():
            if value is not None:
                raise ParameterError(f"{name} is {value[:80]!r}, and no source is named; send source=NAME with it")
        return None
    if after is None:
        raise ParameterError(f"source is {source[:80]!r}, and position is missing; send the position behind the batch")
    step = SourceStep(source, DEFAULT_PARTITION if partition is None else partition, before, after, definition)
    if fault := fault_of(step):
        raise ParameterError(fault)
    return step


endpoints = Endpoints("points")


@endpoints.post(
    "/ingest",
    WRITE,
    status_code=202,
    summary="Send points to learn from",
    openapi_extra=docs.points("Points to learn from"),
    responses=docs.answers(
        docs.answer(200, AppliedOut, "Stored and learnt (`wait=applied`)", ("Idempotency-Replayed",))
        | docs.answer(202, IngestOut, "Stored durably; it will be learnt", ("Idempotency-Replayed",)),
        *docs.BODY, *docs.STREAM, *docs.WRITE, NotReadyError, DeadLetteredError,
        SourcePositionError, SourceChangedError,
    ),
)  # fmt: skip
async def ingest(
    request: Request,
    wait: Annotated[Literal["applied"] | None, Query(description="`applied`: answer when the batch is learnt.")] = None,
    level: Annotated[
        Level, Query(description="`cluster`: with `wait=applied`, also name the cluster of each point.")
    ] = "component",
    key_column: Annotated[
        str | None, Query(description="Arrow: column of the keys. Columns named here are no features.")
    ] = None,
    time_column: Annotated[str | None, Query(description="Arrow: column of the times.")] = None,
    payload_columns: Annotated[
        str | None, Query(description="Arrow: columns that make up the payloads, with commas.")
    ] = None,
    weight_column: Annotated[str | None, Query(description="Arrow: column of the weights.")] = None,
    create: Annotated[
        bool, Query(description="Create the stream if it does not exist, with the default settings.")
    ] = False,
    source: Source = None,
    partition: Partition = None,
    position_before: PositionBefore = None,
    position: Position = None,
    definition: Definition = None,
    incarnation: Annotated[
        str | None, Query(description="Refuse the batch where another incarnation of the stream has its name.")
    ] = None,
    timeout: Timeout = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Store a batch, as a whole or not at all. The answer comes when it is in the durable log.

    With `wait=applied` the answer comes when the batch is learnt. It holds the component of each point, its novelty and
    log density just before it was learnt, and whether it founded a component. If that takes longer than `timeout`, the
    answer is 202: the batch is stored and will be learnt.

    The stream `default` is created by its first batch, every other one only with `create=true`. This needs no more than
    the scope `write`, as `PUT /streams/{stream}` does.

    With `source` the batch also moves the position of a partition of a source, in the same transaction. It is refused
    unless `position_before` is the stored position, which the problem tells as `position`. The last batch of a
    partition may be repeated: it is answered as the first time, and stored once.
    """
    service, name = service_of(request), stream_of(request)
    if level == "cluster" and wait is None:
        raise ParameterError("points have clusters once they are learnt; send wait=applied with level=cluster")
    wait_s = service.wait_s(timeout)
    columns = record_columns(key_column, time_column, payload_columns, weight_column)
    step = source_step(source, partition, position_before, position, definition)
    limits = KeyLimits(request)
    limits.check_points()
    await limits.check_may_create(name)
    await service.streams.prepare_ingest(name, create=create)
    async with service.uploads.read(request, service.limits.max_body_bytes) as upload:
        key = await key_of(service, idempotency_key, upload, columns, step)
        body, kind, encoding = upload
        form = await service.streams.point_form(name, create=create)
        points = await service.decoder.decode(body, kind, content_encoding=encoding, columns=columns, **form._asdict())
        limits.count_points(points.n_points)
        receipt = await service.streams.ingest(
            name,
            points,
            idempotency=key,
            source=step,
            create=create,
            incarnation=incarnation,
            may_create=limits.may_create,
        )
    return _answer(receipt, await _learnt(service, receipt, wait_s, level) if wait else None)


class _Learnt(NamedTuple):
    """What became of the points of a batch."""

    rows: LearntRows
    labels: Mapping[int, Label]
    """Labels of components by id."""
    clusters: list[int | None] | None
    """Cluster of each point, where the request asks for clusters."""


async def _learnt(service: Service, receipt: Receipt, wait_s: float, level: Level) -> _Learnt | None:
    """Wait until a batch is learnt. None after the timeout."""
    rows = await service.streams.learnt_rows(receipt, wait_s)
    if rows is None:
        return None
    clusters = None
    if level == "cluster":
        view = await service.streams.view(receipt.stream, min_offset=None, timeout_s=wait_s)
        clusters = await service.compute(ALWAYS_IN_THREAD, cluster_ids_of, view, rows["component"], ClusterChoice())
    return _Learnt(rows, await service.streams.shown_labels(receipt.stream), clusters)


def _answer(receipt: Receipt, learnt: _Learnt | None) -> Response:
    answer: dict[str, Any] = {
        "stream": receipt.stream,
        "incarnation": receipt.incarnation,
        "accepted": receipt.accepted,
        "log_offset": receipt.log_offset,
    }
    if learnt is not None:
        answer |= learnt_columns(learnt.rows, learnt.labels)
        if learnt.clusters is not None:
            answer["clusters"] = learnt.clusters
    headers = {"Idempotency-Replayed": "true"} if receipt.replayed else {}
    return json_answer(encode(answer), 202 if learnt is None else 200, headers)
