"""Where in the log the rows of a state's window lie: what a checkpoint asks the store to keep.

The state knows its window in points seen, which part from the log's counts at dead letters and restores. So the place
is followed entry by entry: of a mark it is known after which entry its rows begin.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from shoal.mixture import MixtureState


class WindowPlace(NamedTuple):
    """Entries after `past` hold every row since the mark where the window begins; `mid`, since the later mark."""

    past: int
    mid: int


def at(seq: int) -> WindowPlace:
    """The place of a window that begins after entry `seq`."""
    return WindowPlace(seq, seq)


class Numbers(NamedTuple):
    """Points seen by a state, and where its marks stand."""

    points_seen: int
    past: int | None
    mid: int | None


def numbers_of(state: "MixtureState") -> Numbers:
    """The numbers, kept while the state itself is consumed."""
    past, mid = state.past, state.mid
    return Numbers(state.points_seen, None if past is None else past.offset, None if mid is None else mid.offset)


def followed(place: WindowPlace, before: Numbers, after: "MixtureState", seq: int) -> WindowPlace:
    """The place once entry `seq` has led from a state with the numbers `before` to the state `after`."""
    if after.settings.window_rows == 0:
        return at(seq)
    if after.past is None or after.mid is None:  # no marks yet: the first will stand where the rows begin
        return place
    known = [(before.points_seen, seq - 1), (after.points_seen, seq)]
    if before.past is not None and before.mid is not None:
        known += [(before.past, place.past), (before.mid, place.mid)]

    def entry_of(offset: int) -> int:
        return max((entry for start, entry in known if start <= offset), default=place.past)

    return WindowPlace(entry_of(after.past.offset), entry_of(after.mid.offset))
