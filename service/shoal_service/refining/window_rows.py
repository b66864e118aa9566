"""Rows of a window with their weights, from batches of the log, and the file that carries these to the child."""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal_service.wire import from_log, times_from_log, weights_from_log

if TYPE_CHECKING:
    from shoal.mixture import MixtureState
    from shoal.refinement import Rows

_LENGTH = struct.Struct("<Q")


class MissingRowsError(Exception):
    """The log holds fewer rows of a window than its state counts. Another attempt would find the same."""


class LearntTimes(NamedTuple):
    """The times of a batch as they are learnt."""

    own: npt.NDArray[np.float64]
    """(N,) seconds since 1970; NaN for a point without a time, and for one with a time in the future."""
    arrived: float | None
    """When the batch was accepted. None where the entry does not say."""


def learnt_times(payload: bytes, n_points: int) -> LearntTimes:
    """The times of a batch of the log."""
    found = times_from_log(payload)
    own, arrived = (None, None) if found is None else found
    if own is None:
        return LearntTimes(np.full(n_points, np.nan), arrived)
    return LearntTimes(own if arrived is None else np.where(own >= arrived, np.nan, own), arrived)


def last_rows(batches: Iterable[bytes], n: int, state: "MixtureState") -> "Rows | None":
    """The last n rows of the batches, oldest first, with the weights under which `state` has learnt them.

    None for n = 0. MissingRowsError where there are fewer.
    """
    if n == 0:
        return None
    parts: list[Any] = []
    times: list[LearntTimes] = []
    n_rows = 0
    for payload in batches:
        parts.append(rows_of(payload))
        n_rows += parts[-1].shape[0]
        if state.clock is not None:
            times.append(learnt_times(payload, parts[-1].shape[0]))
        while n_rows - parts[0].shape[0] >= n:
            n_rows -= parts.pop(0).shape[0]
            del times[:1]
    if n_rows < n:
        raise MissingRowsError(f"the window has {n:,} rows, but the log holds only {n_rows:,} of them")
    parts[0] = parts[0][n_rows - n :]
    return _stacked(parts) if state.clock is None else _with_age(_stacked(parts), times, state)


def _with_age(rows: Any, times: list[LearntTimes], state: "MixtureState") -> Any:
    import numpy as np

    from shoal.sequential import weighted_as_learnt

    arrived = [np.full(len(batch.own), np.inf if batch.arrived is None else batch.arrived) for batch in times]
    last = slice(-rows.shape[0], None)
    return weighted_as_learnt(
        state, rows, np.concatenate([batch.own for batch in times])[last], np.concatenate(arrived)[last]
    )


def rows_of(payload: bytes) -> Any:
    """The rows of a batch of the log, with their weights."""
    from shoal.points.weighted_rows import with_weights

    return with_weights(from_log(payload), weights_from_log(payload))  # type: ignore[arg-type]


def _stacked(parts: list[Any]) -> Any:
    import numpy as np

    from shoal.points.weighted_rows import joined_weights, unweighted, with_weights

    rows, weights = [unweighted(part) for part in parts], joined_weights(parts)
    if all(isinstance(part, np.ndarray) for part in rows):
        return with_weights(np.concatenate(rows), weights)
    import scipy.sparse

    from shoal.points.rows import SparseRows

    stacked = scipy.sparse.vstack([scipy.sparse.csr_array(part) for part in rows], format="csr")
    return with_weights(SparseRows.of(stacked), weights)


def write_window(path: Path, batches: Iterable[bytes]) -> None:
    """Write the payloads one after another, each after its length in eight bytes."""
    with path.open("xb") as file:
        for payload in batches:
            file.write(_LENGTH.pack(len(payload)))
            file.write(payload)


def read_window(path: Path) -> Iterator[bytes]:
    """Inverse of `write_window`."""
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            yield file.read(_LENGTH.unpack(head)[0])
