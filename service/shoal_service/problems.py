"""Errors as problem+json (RFC 9457): one table for every leaf of both error trees.

`type` is a stable URI reference for programs to compare. `detail` is for people. For faults of the server itself (a
damaged store, a bug) the detail is empty of facts, which go to the log of the service.
"""

import math
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from shoal import errors as library
from shoal_service import errors as service

MEDIA_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="shoal"'
"""Value of WWW-Authenticate (RFC 6750, section 3)."""
_MAX_DETAIL = 1_000


class Kind(NamedTuple):
    """A kind of problem."""

    status: int
    slug: str
    title: str

    @property
    def type(self) -> str:
        """URI reference that names this kind of problem."""
        return f"/problems/{self.slug}"


class Problem(NamedTuple):
    """One problem, ready to send."""

    status: int
    type: str
    title: str
    detail: str
    retryable: bool
    row: int | None = None
    retry_after_s: float | None = None
    scope: str | None = None
    position: str | None = None

    def body(self) -> bytes:
        """The JSON body, with `row`, `retry_after`, `scope` and `position` if they apply."""
        fields = self._asdict()
        fields["retry_after"] = fields.pop("retry_after_s")
        return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})

    def headers(self) -> dict[str, str]:
        """Content-Type, Retry-After (whole seconds, rounded up) if waiting helps, and how to authenticate after 401."""
        headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store"}
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = CHALLENGE
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after_s)))
        return headers


KINDS: dict[type[library.ShoalError], Kind] = {
    # the library's
    library.ShapeError: Kind(400, "shape", "The points have the wrong shape"),
    library.NotFiniteError: Kind(400, "not-finite", "A number is not finite, or too large"),
    library.NotNumericError: Kind(400, "not-numeric", "A value is not a number"),
    library.OutsideDomainError: Kind(400, "outside-domain", "A number is outside the domain of the family"),
    library.SettingError: Kind(400, "setting", "A setting is outside its range"),
    library.InputError: Kind(400, "input", "The input cannot be used"),
    library.NoPointsError: Kind(409, "no-points", "The stream has no points yet"),
    library.RefinementError: Kind(409, "refinement", "The stream cannot be refined as it is"),
    library.AdoptionError: Kind(409, "adoption", "The refinement no longer fits the stream"),
    library.WorkersLostError: Kind(503, "workers-lost", "Worker processes ended without a result"),
    library.UnknownComponentError: Kind(404, "unknown-component", "No component has this id"),
    library.SnapshotDamagedError: Kind(400, "snapshot-damaged", "The snapshot is damaged"),
    library.SnapshotVersionError: Kind(400, "snapshot-version", "The snapshot was written by a newer shoal"),
    # the request
    service.MalformedBodyError: Kind(400, "malformed-body", "The body does not fit its content type"),
    service.ParameterError: Kind(400, "parameter", "A parameter or header is not valid"),
    service.UnsupportedMediaTypeError: Kind(
        415, "unsupported-media-type", "The content type or encoding is not supported"
    ),
    service.BodyTooLargeError: Kind(413, "body-too-large", "The body is too large"),
    service.UploadTooSlowError: Kind(408, "upload-too-slow", "The body arrives too slowly"),
    service.RecordFieldError: Kind(400, "record-field", "A key, time, payload or weight cannot be used"),
    service.FeatureNamesError: Kind(422, "feature-names", "The names of the features are not those of the stream"),
    service.LimitError: Kind(400, "limit", "Over a limit of this service"),
    service.StreamNameError: Kind(400, "stream-name", "The stream name is not valid"),
    service.IdempotencyMismatchError: Kind(
        422, "idempotency-mismatch", "The idempotency key was used for another request"
    ),
    service.OffsetBeyondLogError: Kind(400, "offset-beyond-log", "The log has not reached this offset"),
    service.HostNotAllowedError: Kind(421, "host-not-allowed", "The Host header is not allowed"),
    service.RequestError: Kind(400, "request", "The request cannot be used"),
    # the caller
    service.UnauthenticatedError: Kind(401, "unauthenticated", "A key is needed"),
    service.ForbiddenError: Kind(403, "forbidden", "The key does not allow this"),
    service.RateLimitedError: Kind(429, "rate-limited", "The key is over a limit"),
    service.UnknownKeyError: Kind(404, "unknown-key", "No access key has this id"),
    # the stream
    service.UnknownStreamError: Kind(404, "unknown-stream", "No stream has this name"),
    service.RecordNotFoundError: Kind(404, "record-not-found", "No record has this key"),
    service.UnknownRefinementError: Kind(404, "unknown-refinement", "No refinement has this id"),
    service.UnknownDeadLetterError: Kind(404, "unknown-dead-letter", "No dead letter of this entry"),
    service.UnknownWebhookError: Kind(404, "unknown-webhook", "No webhook has this name"),
    service.NotRequeueableError: Kind(409, "not-requeueable", "The dead letter holds no points"),
    service.NotRefinableError: Kind(409, "not-refinable", "The stream keeps no points to refine"),
    service.StreamConflictError: Kind(409, "stream-conflict", "The shape of a live stream cannot change"),
    service.SourcePositionError: Kind(
        409, "source-position", "The batch does not begin at the stored position of its source"
    ),
    service.SourceChangedError: Kind(409, "source-changed", "The source was changed, paused or deleted meanwhile"),
    service.UnknownSourceError: Kind(404, "unknown-source", "No source has this name"),
    service.PreconditionFailedError: Kind(412, "precondition-failed", "A condition of the request does not hold"),
    service.NoPointsYetError: Kind(409, "no-points", "The stream has no points yet"),
    service.OffsetNotAppliedError: Kind(504, "offset-not-applied", "The offset was not applied in time"),
    service.DeadLetteredError: Kind(422, "dead-lettered", "The learner could not apply the batch"),
    # the service
    service.OverloadedError: Kind(503, "overloaded", "The service is overloaded"),
    service.NotReadyError: Kind(503, "not-ready", "The service is starting or stopping"),
    service.LearnerStoppedError: Kind(500, "learner-stopped", "The learner of the stream has stopped on an error"),
    service.StoreUnavailableError: Kind(503, "store-unavailable", "The store did not answer, or is full"),
    service.StoreStartingError: Kind(503, "store-starting", "The server of the store has just started"),
    service.StoreFormatError: Kind(500, "store-format", "The store is damaged, or was written by a newer shoal"),
    service.StoreInUseError: Kind(500, "store-in-use", "Another process owns the store"),
    service.LogGapError: Kind(500, "log-gap", "The log has a gap"),
    service.StaleWriterError: Kind(500, "stale-writer", "Another process has taken over the stream"),
    service.SettingsMovedError: Kind(503, "settings-moved", "Other requests changed the settings at the same time"),
    service.StreamGoneError: Kind(409, "stream-gone", "The stream was deleted"),
}
"""Kinds by class of error; the nearest class above counts. A wrong Host gives 421: the request reached a server that
does not answer for this name (RFC 9110, 15.5.20)."""

_INTERNAL = Kind(500, "internal", "A fault in the service")
_INTERNAL_DETAIL = "the service failed to answer this request; its log says why"
_STORE_DETAIL = (
    "the store holds something that cannot be read; run shoal doctor on it, which says what is lost and what to do"
)


def problem_for(error: BaseException) -> Problem:
    """Make the problem for any error. Unexpected errors and faults of the server do not show their text."""
    kind = next((KINDS[ancestor] for ancestor in type(error).__mro__ if ancestor in KINDS), _INTERNAL)
    if kind is _INTERNAL:
        return Problem(kind.status, kind.type, kind.title, _INTERNAL_DETAIL, retryable=False)
    return Problem(
        kind.status,
        kind.type,
        kind.title,
        _detail(error, kind),
        retryable=bool(getattr(error, "retryable", False)),
        row=getattr(error, "row", None),
        retry_after_s=getattr(error, "retry_after_s", None),
        scope=getattr(error, "scope", None),
        position=getattr(error, "position", None),
    )


def _detail(error: BaseException, kind: Kind) -> str:
    if isinstance(error, service.StoreFormatError):
        return _STORE_DETAIL
    hidden = kind.status == HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, service.LearnerStoppedError)
    return _INTERNAL_DETAIL if hidden else _line(str(error))


def problem_for_status(status: int, detail: str = "") -> Problem:
    """Make the problem for a status without an error of the trees: an unknown path, a method that is not allowed.

    Its type is `about:blank`, which RFC 9457 defines for problems that the status describes completely.
    """
    title = HTTPStatus(status).phrase
    return Problem(status, "about:blank", title, _line(detail) or title, retryable=status in (408, 429, 503, 504))


def openapi_responses(*errors: type[library.ShoalError]) -> dict[int | str, dict[str, Any]]:
    """Describe the errors of an operation for OpenAPI: by status, with one example for each kind."""
    responses: dict[int | str, dict[str, Any]] = {}
    for error in errors:
        kind = KINDS[error]
        example = problem_for(error((error.__doc__ or "").strip()))
        response = responses.setdefault(kind.status, {"description": "", "content": {MEDIA_TYPE: {"examples": {}}}})
        content = response["content"][MEDIA_TYPE]
        content["schema"] = {"$ref": "#/components/schemas/ProblemOut"}
        content["examples"][kind.slug] = {"summary": kind.title, "value": msgspec.json.decode(example.body())}
        response["description"] = "; ".join(e["summary"] for e in content["examples"].values())
    return responses


def _line(text: str) -> str:
    """Join the text to one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_DETAIL else line[: _MAX_DETAIL - 3] + "..."
