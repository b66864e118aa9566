"""Times of the points of a stream that forgets by time: stamped and checked when they are accepted.

A point without a time happened when it was accepted. The service writes that moment into the entry of the log once, so
that every replay reads the same one. A point cannot have happened later than that: a time in the future counts as the
moment of acceptance, as far as learning is concerned. A time far in the future is refused, since a wrong clock is the
only explanation.
"""

from typing import TYPE_CHECKING

import numpy as np

from shoal_service.errors import RecordFieldError
from shoal_service.wire import Points, RecordFields, time_text

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings

MAX_AHEAD_S = 86_400.0
"""Most seconds by which a time may lie in the future: a day, more than any error of a time zone."""


def stamped(points: Points, settings: "StreamSettings", now: float) -> Points:
    """The points with the time at which they are accepted, where their entry of the log is to hold it."""
    fields = points.fields
    if fields is None and settings.clock_step_s is not None:
        fields = RecordFields(0.0, None, None, None, None)
    return points if fields is None else points._replace(fields=fields._replace(arrived=now))


def check_times(points: Points, settings: "StreamSettings", newest: float | None, name: str) -> None:
    """Raise RecordFieldError for the first point of a stamped batch that is too far in the future, or older than the
    newest by more than the setting `lateness`.

    `newest` is the newest time as readers see it. Where the answering process does not know of a newer one yet, an
    older point is learnt, with the weight of its age.
    """
    fields = points.fields
    if settings.clock_step_s is None or fields is None or fields.times is None:
        return
    ahead = fields.times > fields.arrived + MAX_AHEAD_S
    if ahead.any():
        row = int(ahead.argmax())
        raise RecordFieldError(
            f"row {row} has the time {time_text(fields.times[row])}, more than a day in the future (the clock of the "
            f"service is at {time_text(fields.arrived)}); check the clock of its source, or leave the time out",
            row=row,
        )
    if settings.lateness_s is None:
        return
    happened = np.fmin(fields.times, fields.arrived)  # the time of arrival where there is none
    so_far = np.maximum.accumulate(happened)
    if newest is not None:
        so_far = np.maximum(so_far, min(newest, fields.arrived))  # the clock that gave a newer one was wrong
    late = fields.times < so_far - settings.lateness_s
    if late.any():
        row = int(late.argmax())
        raise RecordFieldError(
            f"row {row} has the time {time_text(fields.times[row])}, which is older than {time_text(so_far[row])}, the "
            f"newest one of stream {name!r}, by more than its lateness of {settings.lateness}; leave the point out, or "
            "raise the setting lateness",
            row=row,
        )


def shown_time(seconds: float | None) -> str | None:
    """A newest time as RFC 3339, within the years that it can write. None where there is none."""
    return None if seconds is None else time_text(seconds)
