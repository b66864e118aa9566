"""Dead letters: batches that the learner could not apply."""

from pydantic import Field

from shoal_service.wire.models.base import STREAM, WireModel, example
from shoal_service.wire.models.points import IngestOut, SparseRowIn

_OF = {name: STREAM[name] for name in ("stream", "incarnation")}
_LETTER = {"seq": 17, "log_offset": 2000, "n_points": 2, "n_bytes": 48, "reason": "ValueError: cannot be learnt"}


class DeadLetterRow(WireModel):
    """An entry of the log that the learner could not apply."""

    model_config = example(**_LETTER)

    seq: int = Field(ge=1)
    """Number of the entry in the log."""
    log_offset: int = Field(ge=0)
    """Number of points in the log up to and including this entry."""
    n_points: int = Field(ge=0)
    """Number of points of the entry. 0 for a restore or a change of settings."""
    n_bytes: int = Field(ge=0)
    """Size of the payload."""
    reason: str
    """Why it could not be applied."""


class DeadLettersOut(WireModel):
    """All dead letters of a stream."""

    model_config = example(**_OF, dead_letters=[_LETTER])

    stream: str
    incarnation: str
    dead_letters: list[DeadLetterRow]
    """Oldest first."""


class DeadLetterOut(DeadLetterRow):
    """A dead letter with its points."""

    model_config = example(**_OF, **_LETTER, points=[[1.2, 3.4], [0.9, 3.1]])

    stream: str
    incarnation: str
    points: list[list[float]] | list[SparseRowIn] | None
    """The first points, at most `limit`. Null where the payload holds none that can be read."""


class RequeueOut(IngestOut):
    """The points of the dead letter are in the durable log once more."""
