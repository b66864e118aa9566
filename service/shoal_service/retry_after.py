"""The header Retry-After, which the service and its client read in answers of others."""

import email.utils
import time


def parse_retry_after(value: str | None) -> float | None:
    """Read seconds from a Retry-After header, which holds seconds or a date. None if it is absent or unreadable."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):  # a number of the date that no integer of C can hold
        return None
