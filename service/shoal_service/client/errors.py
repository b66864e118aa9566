"""Everything that the client raises on purpose, drawn as one tree.

ShoalClientError
├── BadPointsError      (ValueError)  the points cannot be sent; refused here, before the batch left
├── UnreachableError                  no answer: connection refused, cut or timed out, as often as it was tried
├── OutcomeUnknownError               the reply to a request that must not be repeated was lost
├── ProtocolError                     an answer that no shoal server gives: is it one?
└── RefusedError                      the server answered with a problem
    ├── InvalidRequestError           the other 4xx: the request itself
    ├── NotFoundError                 404, 410: no such stream or component
    ├── ConflictError                 409, 412: it does not go with what the stream is or holds
    ├── UnavailableError              429, 502, 503, 504: not now; it was tried until time or tries ran out
    └── ServerError                   500 and the rest: a fault of the server's

The tree stands beside `shoal.errors`, not under it: those are raised by the process that does the work, these say
what another process answered.
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
    ) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status, where the server answered."""
        self.type = type
        """The problem's stable name, such as `offset-not-applied`."""
        self.detail = detail if detail is not None else message
        """What was wrong, in one sentence."""
        self.retryable = retryable
        """Whether the same call can succeed later without a change by the caller."""
        self.retry_after_s = retry_after_s
        """Seconds that the server asked to wait."""
        self.row = row
        """The first bad row, counted from 0 over all the points of the call (not of one batch)."""
        self.accepted = 0
        """Points of the failed `ingest` that are stored: the first ones, so a new call may start at this row."""


class BadPointsError(ShoalClientError, ValueError):
    """The points cannot be sent; refused here, before the batch left."""


class UnreachableError(ShoalClientError):
    """No answer came: connection refused, cut or timed out."""


class OutcomeUnknownError(ShoalClientError):
    """The reply to a request that must not be repeated was lost: it may or may not have been done."""


class ProtocolError(ShoalClientError):
    """An answer that no shoal server gives."""


class RefusedError(ShoalClientError):
    """The server answered with a problem."""


class InvalidRequestError(RefusedError):
    """The request itself is wrong; nothing was stored."""


class NotFoundError(RefusedError):
    """No such stream or component."""


class ConflictError(RefusedError):
    """The request does not go with what the stream is or holds."""


class UnavailableError(RefusedError):
    """The server cannot do it now."""


class ServerError(RefusedError):
    """A fault of the server's."""


_BY_STATUS: dict[int, type[RefusedError]] = {
    **dict.fromkeys((404, 410), NotFoundError),
    **dict.fromkeys((409, 412), ConflictError),
    **dict.fromkeys((429, 502, 503, 504), UnavailableError),
}


def refused_class(status: int) -> type[RefusedError]:
    """The class for an HTTP status of 400 or more."""
    return _BY_STATUS.get(status, InvalidRequestError if status < 500 else ServerError)
