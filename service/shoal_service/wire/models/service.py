"""Answers about the service itself, and the body of every error."""

from typing import ClassVar, Literal

from shoal_service.wire.models.base import WireModel, example


class HealthOut(WireModel):
    """The process is alive."""

    model_config = example(status="ok", version="0.1.0")

    status: Literal["ok"]
    version: str


class ReadyOut(WireModel):
    """200: the service accepts points. 503: a problem that says what is missing."""

    model_config = example(status="ready", store="sqlite", streams=1)

    status: Literal["ready"]
    store: str
    streams: int


class ProblemOut(WireModel):
    """Problem details (RFC 9457): every error has this body, of type application/problem+json."""

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
    """Stable name of the kind of problem, for programs to compare."""
    title: str
    status: int
    detail: str
    retryable: bool
    """Whether the same request can succeed later."""
    row: int | None = None
    """Number of the first bad row, counted from 0, if the fault is in a row."""
    retry_after: float | None = None
    """Seconds to wait before the next try, if waiting helps."""
    scope: Literal["read", "write", "admin"] | None = None
    """The scope that the key lacks, if that is the reason."""
    position: str | None = None
    """The stored position of the source, if the batch does not begin there. Left out where none is stored."""
