"""Errors of the client, as one tree.

ShoalClientError
├── BadPointsError      (ValueError)  the points cannot be sent; nothing was sent
├── UnreachableError                  no answer: connection refused, lost or timed out in every try
├── OutcomeUnknownError               the answer to a request that must not be repeated was lost
├── ProtocolError                     the answer is not that of a shoal server
└── RefusedError                      the server answered with a problem
    ├── InvalidRequestError           other 4xx: the request is wrong
    ├── AccessError                   401, 403: no key, a wrong one, or one that does not allow this
    ├── NotFoundError                 404, 410: no such stream or component
    ├── ConflictError                 409, 412: the request does not fit the state of the stream
    ├── UnavailableError              429, 502, 503, 504: not now, in every try
    └── ServerError                   500 and others: a fault of the server

This tree is separate from `shoal.errors`: those errors come from the process that computes, these describe the answer
of another process.
"""


class ShoalClientError(Exception):
    """Root of the tree."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        type: str | None = None,  # noqa: A002  the name that RFC 9457 gives it
        detail: str | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
        row: int | None = None,
        position: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status, if the server answered."""
        self.type = type
        """Stable name of the problem, such as `offset-not-applied`."""
        self.detail = detail if detail is not None else message
        """What was wrong, in one sentence."""
        self.retryable = retryable
        """Whether the same call can succeed later without a change by the caller."""
        self.retry_after_s = retry_after_s
        """Seconds that the server asked to wait."""
        self.row = row
        """The first bad row, counted from 0 over all the points of the call (not of one batch)."""
        self.position = position
        """The stored position of a source, where the points do not begin there (type `source-position`)."""
        self.accepted = 0
        """Number of points that a failed `ingest` stored: the first ones, so a new call can start at this row."""


class BadPointsError(ShoalClientError, ValueError):
    """The points cannot be sent. Nothing was sent."""


class UnreachableError(ShoalClientError):
    """No answer: the connection was refused, lost or timed out."""


class OutcomeUnknownError(ShoalClientError):
    """The answer to a request that must not be repeated was lost. The request may have been done or not."""


class ProtocolError(ShoalClientError):
    """The answer is not that of a shoal server."""


class RefusedError(ShoalClientError):
    """The server answered with a problem."""


class InvalidRequestError(RefusedError):
    """The request itself is wrong; nothing was stored."""


class AccessError(RefusedError):
    """No access key was sent, or a wrong one, or one that does not allow this."""


class NotFoundError(RefusedError):
    """No such stream or component."""


class ConflictError(RefusedError):
    """The request does not fit the state of the stream."""


class UnavailableError(RefusedError):
    """The server cannot do this now."""


class ServerError(RefusedError):
    """A fault of the server."""


_BY_STATUS: dict[int, type[RefusedError]] = {
    **dict.fromkeys((401, 403), AccessError),
    **dict.fromkeys((404, 410), NotFoundError),
    **dict.fromkeys((409, 412), ConflictError),
    **dict.fromkeys((429, 502, 503, 504), UnavailableError),
}


def refused_class(status: int) -> type[RefusedError]:
    """Error class for an HTTP status of 400 or more."""
    return _BY_STATUS.get(status, InvalidRequestError if status < 500 else ServerError)
