"""Everything that the service refuses on purpose, below the library's root, drawn as one tree.

ShoalError
└── ServiceError                     `retryable`, and `retry_after_s` where waiting helps
    ├── RequestError                 the request itself is wrong; nothing was stored
    │   ├── MalformedBodyError       the body is not what its content type says, or lies about its size
    │   ├── ParameterError           a query parameter or header outside its range
    │   ├── UnsupportedMediaTypeError  a content type or encoding that is not taken
    │   ├── BodyTooLargeError        over the limit, before or after decompression
    │   ├── LimitError               over a limit on rows, features, points a query, streams
    │   ├── StreamNameError          not [a-z0-9][a-z0-9_-]{0,63}
    │   ├── IdempotencyMismatchError the key was used before, with another body
    │   ├── OffsetBeyondLogError     an offset that the log has not reached
    │   └── HostNotAllowedError      a Host header that is not on the list
    ├── UnknownStreamError           no stream of that name
    ├── UnknownRefinementError       no refinement of that id, or none that is remembered
    ├── NotRefinableError            a stream that keeps no points to refine
    ├── StreamConflictError          a change of shape on a live stream
    ├── PreconditionFailedError      If-Match did not match
    ├── NoPointsYetError             the stream is empty, so nothing can be predicted
    ├── OffsetNotAppliedError        (retryable) the offset was not applied within the time allowed
    ├── DeadLetteredError            the learner could not take the batch; it is kept aside, with its offset
    ├── OverloadedError              (retryable) the log that waits to be applied is over its byte budget
    ├── NotReadyError                (retryable) the service is starting or stopping
    └── StoreError                   the durable store
        ├── StoreUnavailableError    (retryable) it did not answer, or its disk or memory is full
        │   └── StoreStartingError   (retryable) its server has started, and is not to be trusted just yet
        ├── StoreFormatError         written by a newer shoal, or not a shoal store
        ├── StoreInUseError          another process owns the data folder
        ├── LogGapError              the entry after the one applied last is missing
        ├── StaleWriterError         a newer writer has taken the stream over
        ├── SettingsMovedError       (retryable) others changed the settings that a change was made of
        └── StreamGoneError          the stream was deleted, or is another incarnation
"""

from shoal.errors import ShoalError


class ServiceError(ShoalError):
    """Root of the service's refusals."""

    retry_after_s: float | None = None


class RequestError(ServiceError):
    """The request itself is wrong; nothing was stored."""

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class MalformedBodyError(RequestError):
    """The body is not what its content type says, or lies about its size."""


class ParameterError(RequestError):
    """A query parameter or header outside its range, or one that the endpoint does not have."""


class UnsupportedMediaTypeError(RequestError):
    """A content type or encoding that is not taken."""


class BodyTooLargeError(RequestError):
    """Over the limit on the body, before or after decompression."""


class LimitError(RequestError):
    """Over a limit on rows, features, points a query, or streams."""


class StreamNameError(RequestError):
    """A stream name that is not [a-z0-9][a-z0-9_-]{0,63}."""


class IdempotencyMismatchError(RequestError):
    """The idempotency key was used before, with another body."""


class OffsetBeyondLogError(RequestError):
    """An offset that the log has not reached."""


class HostNotAllowedError(RequestError):
    """A Host header that is not on the list."""


class UnknownStreamError(ServiceError):
    """No stream of that name."""


class UnknownRefinementError(ServiceError):
    """No refinement of that id, or none that is remembered."""


class NotRefinableError(ServiceError):
    """The stream's settings keep no points that could be refined."""


class StreamConflictError(ServiceError):
    """A change of shape on a live stream."""


class PreconditionFailedError(ServiceError):
    """If-Match did not match."""


class NoPointsYetError(ServiceError):
    """The stream is empty, so nothing can be predicted."""


class OffsetNotAppliedError(ServiceError):
    """The offset was not applied within the time allowed."""

    retryable = True
    retry_after_s = 1.0


class DeadLetteredError(ServiceError):
    """The learner could not take the batch; it is kept aside, with its offset."""


class OverloadedError(ServiceError):
    """The log that waits to be applied is over its byte budget."""

    retryable = True
    retry_after_s = 1.0


class NotReadyError(ServiceError):
    """The service is starting or stopping."""

    retryable = True
    retry_after_s = 1.0


class StoreError(ServiceError):
    """The durable store."""


class StoreUnavailableError(StoreError):
    """The store did not answer, or its disk or memory is full."""

    retryable = True
    retry_after_s = 2.0


class StoreStartingError(StoreUnavailableError):
    """The server of the store has started, and is not to be trusted just yet."""


class StoreFormatError(StoreError):
    """Written by a newer shoal, or not a shoal store."""


class StoreInUseError(StoreError):
    """Another process owns the data folder."""


class LogGapError(StoreError):
    """The entry that follows the one applied last is missing from the log."""


class StaleWriterError(StoreError):
    """A newer writer has taken the stream over."""


class SettingsMovedError(StoreError):
    """Others changed the stream's settings, again and again, before this change could be written."""

    retryable = True
    retry_after_s = 1.0


class StreamGoneError(StoreError):
    """The stream was deleted, or is another incarnation."""
