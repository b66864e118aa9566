"""Position of a state's window in the log, followed from entry to entry."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from shoal.mixture import MixtureState


class WindowPosition(NamedTuple):
    """Position of a state's window in the log: the entries that a checkpoint asks the store to keep.

    A state counts the beginning of its window in points seen. That count differs from the log's own after dead letters
    and restores, so the position is updated entry by entry.
    """

    past: int
    """Entries after this one hold every row since the offset where the window begins, that of `state.past`."""
    mid: int
    """Entries after this one hold every row since the offset of `state.mid`, where the window begins next."""


class StateOffsets(NamedTuple):
    """Points seen by a state, and the offsets of its earlier statistics. None where it has none."""

    points_seen: int
    past: int | None
    mid: int | None


def window_begins_after(seq: int) -> WindowPosition:
    """The position of a window that begins after entry `seq`."""
    return WindowPosition(seq, seq)


def window_offsets_of(state: "MixtureState") -> StateOffsets:
    """The offsets of a state, copied before the state is consumed."""
    past, mid = state.past, state.mid
    return StateOffsets(state.points_seen, None if past is None else past.offset, None if mid is None else mid.offset)


def window_after_entry(
    position: WindowPosition, before: StateOffsets, after: "MixtureState", seq: int
) -> WindowPosition:
    """The position once entry `seq` has led from a state with the offsets `before` to the state `after`."""
    return window_after_entries(position, before, after, [(after.points_seen, seq)])


def window_after_entries(
    position: WindowPosition, before: StateOffsets, after: "MixtureState", ends: list[tuple[int, int]]
) -> WindowPosition:
    """The same for entries one after another, at least one: points seen at the end of each, and its number."""
    if after.settings.window_rows == 0:
        return window_begins_after(ends[-1][1])
    if after.past is None or after.mid is None:  # no earlier statistics yet: the first will be where the rows begin
        return position
    known = [(before.points_seen, ends[0][1] - 1), *ends]
    if before.past is not None and before.mid is not None:
        known += [(before.past, position.past), (before.mid, position.mid)]

    def entry_of(offset: int) -> int:
        return max((entry for start, entry in known if start <= offset), default=position.past)

    return WindowPosition(entry_of(after.past.offset), entry_of(after.mid.offset))
