"""The refining child process, and what it shares with its parent: the rows of a window.

A child loads this room, the wire and the library, and nothing else of the service: no web framework, no settings, no
store. So it starts sooner, and takes less memory.
"""

from shoal_service.refining.window_rows import (
    LearntTimes,
    MissingRowsError,
    last_rows,
    learnt_times,
    read_window,
    rows_of,
    write_window,
)

__all__ = [
    "LearntTimes",
    "MissingRowsError",
    "last_rows",
    "learnt_times",
    "read_window",
    "rows_of",
    "write_window",
]
