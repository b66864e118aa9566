"""At which points of a stream something other than a point happens: absolute offsets, functions of the stream alone.

An offset counts absorbed points. What is due at one happens after its point and before the next, inside a chunk where
it falls there, so that the result never depends on how the stream was cut.
"""

from shoal.mixture import CheckSchedule, MixtureState, next_half_window

FIRST_CHECK = 1_024
LONGEST_STEP = 4_096
"""Checks, and renewals of the predictive cache, fall at 1,024, 2,048, 4,096, then every 4,096.

None falls earlier: what is joined early on the evidence of a few points is never parted again. With a first check at
offset 1, doubling, nine Gaussians on a grid came out as 8 in half the runs, and on 50 principal components of MNIST
digits the held-out log density was 1.5 to 2 nats a point lower.
"""

_BLOCK_ELEMENTS = 1 << 20
_BLOCK_ROWS = 8_192


def next_regular(points_seen: int) -> int:
    """The next of 1024, 2048, 4096, 8192, 12288, ...: doubling, then every 4,096."""
    if points_seen < FIRST_CHECK:
        return FIRST_CHECK
    if points_seen < LONGEST_STEP:
        return 1 << points_seen.bit_length()
    return (points_seen // LONGEST_STEP + 1) * LONGEST_STEP


def next_check(points_seen: int, n_components: int, schedule: CheckSchedule) -> int:
    """Offset of the check after the one at `points_seen`.

    `doubling` as `next_regular`; `paper` after i + iK points (Lin 2013, section 3.3; ERRATA 5.14): intervals grow
    without end.
    """
    if schedule == "doubling":
        return next_regular(points_seen)
    return points_seen + max(1, points_seen * n_components)


def points_until_due(state: MixtureState) -> int:
    """Points to absorb before a decay, a check, a renewal of the predictive cache or a move of the window is due, >= 1.

    A window that is due at `points_seen` itself has moved.

    Raises ValueError where one lies in the past: learning on would never end.
    """
    due = [next_regular(state.points_seen), state.next_check]
    if state.next_decay >= 0:
        due.append(state.next_decay)
    if state.clock is not None and state.clock.pending is not None:
        due.append(int(state.clock.at[state.clock.pending]))
    if state.mid is not None:
        due.append(next_half_window(state.mid.offset, state.settings))
    left = min(due) - state.points_seen
    if left <= 0:
        raise ValueError(
            f"a decay, check or move of the window was due at offset {min(due)}, before {state.points_seen} points seen"
        )
    return left


def points_until_refit(state: MixtureState) -> int:
    """Points that can be absorbed before the next fit of the warm-up, >= 1. Raises ValueError where that is past."""
    left = state.next_refit - state.points_seen
    if left <= 0:
        raise ValueError(f"a fit was due at offset {state.next_refit}, but {state.points_seen} points are seen")
    return left


def block_rows(n_features: int) -> int:
    """Rows of the standardised copy that is kept at a time: at most 8,192, and 8 MiB."""
    return max(1, min(_BLOCK_ROWS, _BLOCK_ELEMENTS // n_features))
