"""Everything that shoal raises on purpose, drawn as one tree.

ShoalError
├── InputError                (ValueError)  what the caller passed cannot be used; nothing was changed
│   ├── ShapeError                          wrong number of features, ragged, empty, not two-dimensional
│   ├── NotFiniteError                      NaN, infinite, or too large to square
│   ├── NotNumericError       (TypeError)   booleans, strings, objects where numbers belong
│   ├── OutsideDomainError                  a number that the family's points cannot hold: -1 among counts
│   └── SettingError                        a setting or a prior outside its range
├── NoPointsError                           a question that only data can answer, before any data came
├── RefinementError                         a refinement asked of a stream that keeps no window, or not the right rows
│   └── AdoptionError                       a refinement that does not fit the state that is to adopt it
├── WorkersLostError                        worker processes that ended again and again without a result
├── UnknownComponentError     (KeyError)    an id that was never given out, or is no longer remembered
└── SnapshotError                           bytes that are not a usable snapshot
    ├── SnapshotDamagedError                truncated, altered, or not a snapshot at all
    └── SnapshotVersionError                written by a newer shoal than this one

Each message says what was wrong, what was given and what to do, in one line.
`retryable` says whether the same call can succeed later without a change by the caller.
"""

import difflib
from collections.abc import Iterable


class ShoalError(Exception):
    """Root of the tree."""

    retryable = False


class InputError(ShoalError, ValueError):
    """Arguments that cannot be used; nothing was changed."""

    def __init__(self, message: str, *, row: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.row = row
        """Index of the first bad row, where the fault lies in one."""
        self.column = column
        """Index of the column, where the fault lies in one value and the message gives this index."""


class ShapeError(InputError):
    """Wrong number of features, ragged rows, no rows, or not two-dimensional."""


class NotFiniteError(InputError):
    """NaN, infinite, or of a magnitude above 1e150, whose square overflows."""


class NotNumericError(InputError, TypeError):
    """Booleans, strings or objects where numbers belong."""


class OutsideDomainError(InputError):
    """A number that points of the stream's family cannot hold, such as -1 or 0.5 among counts."""


class SettingError(InputError):
    """A setting or a prior's parameter outside its range."""


class NoPointsError(ShoalError):
    """A question that only data can answer, asked before any data came."""


class RefinementError(ShoalError):
    """A refinement asked of a stream that keeps no window of rows, or made of other rows than the window's."""


class AdoptionError(RefinementError):
    """A refinement that does not fit the state that is to adopt it; the state was not changed."""


class WorkersLostError(ShoalError):
    """Worker processes of an executor that ended again and again without a result."""

    retryable = True


class UnknownComponentError(ShoalError, KeyError):
    """An id that was never given out, or is no longer remembered."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class SnapshotError(ShoalError, ValueError):
    """Bytes that are not a usable snapshot."""


class SnapshotDamagedError(SnapshotError):
    """Truncated, altered, or not a snapshot at all."""


class SnapshotVersionError(SnapshotError):
    """Written by a newer shoal than this one."""


def counted(n: int, noun: str) -> str:
    """A number and its noun, for messages: `1 feature`, `2 features`."""
    return f"{n} {noun if n == 1 else noun + 's'}"


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Advice for a misspelt name, for messages: `did you mean 'half_life'? `. Empty if no known name is similar."""
    near = nearest_name(given, known)
    return "" if near is None else f"did you mean {near!r}? "


def nearest_name(given: object, known: Iterable[str]) -> str | None:
    """The known name that is most similar to a misspelt one. None if none is similar."""
    if not isinstance(given, str):
        return None
    return next(iter(difflib.get_close_matches(given[:100], sorted(known), 1)), None)
