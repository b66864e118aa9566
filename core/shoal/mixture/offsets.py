"""Offsets of the next decay and of the next fit of the warm-up, as functions of the points seen alone.

They are in this room, below `sequential`, because a state has these offsets and `validity` checks them.
"""


def decay_step(half_life: float) -> int:
    """Points between two decays: a 32nd of the half-life, so that the error of a weight is at most 2.2 %."""
    return max(1, int(half_life) // 32)


def next_decay(points_seen: int, half_life: float | None) -> int:
    """The next multiple of the decay step, or -1 without a half-life."""
    if half_life is None:
        return -1
    step = decay_step(half_life)
    return (points_seen // step + 1) * step


def next_refit(points_seen: int, warmup_points: int) -> int:
    """Offset of the next fit of the warm-up buffer: 1, 2, 4, ... and the last at `warmup_points`; -1 after that."""
    if points_seen >= warmup_points:
        return -1
    return min(1 << points_seen.bit_length(), warmup_points)
