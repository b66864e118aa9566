"""Errors of the service, as one tree below the root of the library's errors.

ShoalError
└── ServiceError                     `retryable`, and `retry_after_s` if waiting helps
    ├── RequestError                 the request itself is wrong; nothing was stored
    │   ├── MalformedBodyError       the body does not fit its content type or its length
    │   ├── ParameterError           a query parameter or header outside its range
    │   ├── UnsupportedMediaTypeError  a content type or encoding that is not supported
    │   ├── BodyTooLargeError        over the limit, before or after decompression
    │   ├── UploadTooSlowError       (retryable) the body arrives too slowly
    │   ├── RecordFieldError         a key, time, payload or weight that cannot be used
    │   ├── FeatureNamesError        names of features that the stream does not have, or that are missing
    │   ├── LimitError               over a limit on rows, features, points per query, streams
    │   ├── StreamNameError          not [a-z0-9][a-z0-9_-]{0,63}
    │   ├── IdempotencyMismatchError the key was used before, with another body
    │   ├── OffsetBeyondLogError     an offset that the log has not reached
    │   └── HostNotAllowedError      a Host header that is not allowed
    ├── UnauthenticatedError         no key, or one that is unknown, revoked or expired
    ├── ForbiddenError               the key lacks a scope, or does not cover the stream
    ├── RateLimitedError             (retryable) the key is over one of its own limits
    ├── UnknownKeyError              no access key with this id
    ├── UnknownStreamError           no stream with this name
    ├── RecordNotFoundError          no record with this key, or it is no longer kept
    ├── UnknownRefinementError       no refinement with this id, or it is forgotten
    ├── UnknownDeadLetterError       no dead letter of this entry
    ├── UnknownWebhookError          no webhook with this name
    ├── NotRequeueableError          a dead letter that holds no points
    ├── NotRefinableError            a stream that keeps no points to refine
    ├── StreamConflictError          a change of shape on a live stream
    ├── SourcePositionError          the batch does not begin at the stored position of its source
    ├── SourceChangedError           the batch is from before a change of its configured source
    ├── UnknownSourceError           no source with this name
    ├── PreconditionFailedError      If-Match or If-None-Match does not hold
    ├── NoPointsYetError             the stream is empty, so nothing can be predicted
    ├── OffsetNotAppliedError        (retryable) the offset was not applied within the time allowed
    ├── DeadLetteredError            the learner could not apply the batch, which is kept as a dead letter
    ├── OverloadedError              (retryable) too much waits to be received, decoded or applied
    ├── NotReadyError                (retryable) the service is starting or stopping
    │   └── LearnerStoppedError      the learner of the stream has stopped on an error
    └── StoreError                   the durable store
        ├── StoreUnavailableError    (retryable) it did not answer, or its disk or memory is full
        │   └── StoreStartingError   (retryable) its server has just started and may lose writes
        ├── StoreFormatError         damaged, written by a newer shoal, or not a shoal store
        ├── StoreInUseError          another process owns the data folder
        ├── LogGapError              the entry after the last applied one is missing
        ├── StaleWriterError         a newer writer has taken over the stream
        ├── SettingsMovedError       (retryable) others changed the settings at the same time
        └── StreamGoneError          the stream was deleted, or is another incarnation
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from shoal.errors import ShoalError, did_you_mean


class ServiceError(ShoalError):
    """Root of the errors of the service."""

    retry_after_s: float | None = None


class RequestError(ServiceError):
    """The request itself is wrong; nothing was stored."""

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class MalformedBodyError(RequestError):
    """The body does not fit its content type or its announced length."""


class ParameterError(RequestError):
    """A query parameter or header is outside its range, or the endpoint does not have it."""


class UnsupportedMediaTypeError(RequestError):
    """The content type or encoding is not supported."""


class BodyTooLargeError(RequestError):
    """The body is over the limit, before or after decompression."""


class UploadTooSlowError(RequestError):
    """The body arrives too slowly."""

    retryable = True


class RecordFieldError(RequestError):
    """A key, time, payload or weight of a point cannot be used."""


class FeatureNamesError(RequestError):
    """The names of the features are not those of the stream."""


class LimitError(RequestError):
    """Over a limit on rows, features, points per query, or streams."""


class StreamNameError(RequestError):
    """The stream name is not [a-z0-9][a-z0-9_-]{0,63}."""


class IdempotencyMismatchError(RequestError):
    """The idempotency key was used before, with another body."""


class OffsetBeyondLogError(RequestError):
    """The log has not reached this offset."""


class HostNotAllowedError(RequestError):
    """The Host header is not allowed."""


class UnauthenticatedError(ServiceError):
    """No key was sent, or one that is unknown, revoked or expired."""


class ForbiddenError(ServiceError):
    """The key lacks a scope, or does not cover the stream."""

    def __init__(self, message: str, *, scope: str | None = None) -> None:
        super().__init__(message)
        self.scope = scope
        """The scope that the key lacks, if it is the scope."""


class RateLimitedError(ServiceError):
    """The key is over one of its own limits."""

    retryable = True
    retry_after_s = 1.0

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnknownKeyError(ServiceError):
    """No access key has this id."""


class UnknownStreamError(ServiceError):
    """No stream has this name."""


class RecordNotFoundError(ServiceError):
    """No record has this key: it never came, was forgotten, or is no longer kept."""


class UnknownRefinementError(ServiceError):
    """No refinement has this id, or it is forgotten."""


class UnknownDeadLetterError(ServiceError):
    """No dead letter of this entry."""


class UnknownWebhookError(ServiceError):
    """The stream has no webhook of this name."""


class NotRequeueableError(ServiceError):
    """The dead letter holds no points that can be appended again."""


class NotRefinableError(ServiceError):
    """The settings of the stream keep no points for refinement."""


class StreamConflictError(ServiceError):
    """The shape of a live stream cannot change."""


class SourcePositionError(ServiceError):
    """The batch does not begin at the stored position of its source."""

    def __init__(self, message: str, *, position: str | None = None) -> None:
        super().__init__(message)
        self.position = position
        """The stored position. None where there is none."""


class SourceChangedError(ServiceError):
    """The batch was read for a definition of its source that was changed, paused or deleted meanwhile."""


class UnknownSourceError(ServiceError):
    """The stream has no position of this source."""


class PreconditionFailedError(ServiceError):
    """If-Match or If-None-Match does not hold."""


class NoPointsYetError(ServiceError):
    """The stream is empty, so nothing can be predicted."""


class OffsetNotAppliedError(ServiceError):
    """The offset was not applied within the time allowed."""

    retryable = True
    retry_after_s = 1.0


class DeadLetteredError(ServiceError):
    """The learner could not apply the batch, which is kept as a dead letter with its offset."""


class OverloadedError(ServiceError):
    """Too many bytes wait to be received, decoded or applied."""

    retryable = True
    retry_after_s = 1.0


class NotReadyError(ServiceError):
    """The service is starting or stopping."""

    retryable = True
    retry_after_s: float | None = 1.0


class LearnerStoppedError(NotReadyError):
    """The learner of the stream has stopped on an error. It stays so until somebody removes the cause."""

    retryable = False
    retry_after_s = None


class StoreError(ServiceError):
    """Root of the errors of the durable store."""


class StoreUnavailableError(StoreError):
    """The store did not answer, or its disk or memory is full."""

    retryable = True
    retry_after_s = 2.0


class StoreStartingError(StoreUnavailableError):
    """The server of the store has just started, and may still lose writes."""


class StoreFormatError(StoreError):
    """The store is damaged, was written by a newer shoal, or is not a shoal store."""


class StoreInUseError(StoreError):
    """Another process owns the data folder."""


class LogGapError(StoreError):
    """The entry after the last applied one is missing from the log."""


class StaleWriterError(StoreError):
    """A newer writer has taken over the stream."""


class SettingsMovedError(StoreError):
    """Other requests kept changing the settings before this change could be written."""

    retryable = True
    retry_after_s = 1.0


class StreamGoneError(StoreError):
    """The stream was deleted, or deleted and created again."""


def spelling_advice(fault: Mapping[str, Any], known: Iterable[str] = ()) -> str:
    """Advice on a misspelt word, for a fault that pydantic has found: `; did you mean 'half_life'?`, or empty.

    `known`: names of the fields, for a fault about an unknown one.
    """
    given = fault["input"]
    if fault["type"] == "literal_error":
        known = re.findall(r"'([^']*)'", fault["msg"])
    elif fault["type"] == "extra_forbidden":
        given = str(fault["loc"][-1])
    else:
        return ""
    advice = did_you_mean(given, known).rstrip()
    return f"; {advice}" if advice else ""
