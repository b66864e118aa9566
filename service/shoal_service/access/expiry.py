"""Times at which keys expire: as a time of RFC 3339, or as a duration from now."""

import math
import re
from datetime import UTC, datetime

from shoal_service.errors import ParameterError

_DURATION = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LATEST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def parse_expiry(text: str, now: float) -> float:
    """Unix time of `30d` (s, m, h, d or w) or `2027-01-31T12:00:00Z`.

    Raises ParameterError for anything else, and for a time that is not in the future or after the year 9999.
    """
    found = _DURATION.fullmatch(text.strip())
    at = _rfc3339(text.strip()) if found is None else now + int(found[1]) * _SECONDS[found[2]]
    if at <= now:
        raise ParameterError(
            f"expires {text[:80]!r} is not in the future; give a later time, or a duration such as 30d"
        )
    if at > _LATEST:
        raise ParameterError(
            f"expires {text[:80]!r} is after the year 9999; give an earlier time, or none for a key without an end"
        )
    return at


def _rfc3339(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ParameterError(
            f"expires {text[:80]!r} is neither a duration such as 30d, 12h or 90m, nor a time with its zone such as"
            " 2027-01-31T12:00:00Z"
        )
    return at.timestamp()


def rfc3339(at: float | None) -> str | None:
    """Unix time as text, in whole seconds of UTC. None stays None."""
    if at is None:
        return None
    return datetime.fromtimestamp(math.floor(at), UTC).isoformat().replace("+00:00", "Z")
