"""State of a source: whether it runs, why not, and how much it has read."""

from typing import NamedTuple

import msgspec

SOURCE_STATUSES = ("starting", "running", "failed")
"""Values of `SourceState.status`."""


class SourceState(NamedTuple):
    """What became of a source."""

    source: str
    """Id of its definition."""
    revision: int = 0
    """Of the definition that ran last."""
    status: str = "starting"
    """`starting`; `running`: source and service answer; `failed`: `error` says why, and another attempt follows."""
    records: int = 0
    """Records that were read. Those that were read again, for example after a kill, count again."""
    skipped: int = 0
    """Records that were refused and skipped."""
    points: int = 0
    """Points that were stored."""
    failures: int = 0
    """Ends of its process since it last stored points."""
    error: str | None = None
    """Why it cannot work now."""
    failed_at: float | None = None
    """Unix time of the last error."""
    next_attempt_at: float | None = None
    """Unix time. None unless its process has ended."""
    last_stored_at: float | None = None
    """Unix time."""
    lag_records: int | None = None
    """Records that wait in the source. None where it does not say."""
    lag_s: float | None = None
    """Time between the last record that was read and the newest one. None where the source does not say."""
    reported_at: float | None = None
    """Unix time of this state."""


class RunningSource(NamedTuple):
    """Source that this process runs."""

    stream: str
    name: str
    state: SourceState
    begun: SourceState
    """State when this process began to run this definition. Counters count from there: what a crash left unsaved of a
    state would make them go back, and a reader of metrics would add all of it again.
    """
    restarts: int
    """Times that its process has ended by itself, since this process runs this definition."""


def encode_state(state: SourceState) -> bytes:
    """As JSON."""
    return msgspec.json.encode(state._asdict())


def decode_state(data: bytes) -> SourceState:
    """Inverse of `encode_state`."""
    return SourceState(**msgspec.json.decode(data))
