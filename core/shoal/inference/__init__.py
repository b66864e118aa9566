"""The split-and-join engine: one search for the components of a mixture, whatever the data and the labels.

    label_terms       sticks, with or without a tail, and what a split or a join changes of their term
    data, past        rows with weights; statistics of points that are gone
    sweep             responsibilities; then statistics and the bound (`reference`: the plain form of its kernel)
    distance_bounds   which scores need not be computed
    acceleration      sweeps until they settle
    split             `start_points`, then `two_way_split`, then the exact gain on all rows
    join              pairs worth valuing, and their exact gain
    search            rounds of prior, splits and joins

The refinement of a stream and the batch engines `vdp` and `fast-vdp` are its users. `Search` is the door to all of it.
Modules that hold kernels are imported where one is called first, as they bring Numba.
"""

from shoal.inference.acceleration import settled
from shoal.inference.data import Rows, WindowData
from shoal.inference.join import pair_entropies
from shoal.inference.label_terms import StickPrior
from shoal.inference.past import PastStats, no_past, past_of, stats_by_share
from shoal.inference.search import Search
from shoal.inference.sweep import (
    Model,
    Responsibilities,
    State,
    SweepStart,
    best_entries,
    m_step,
    normalized,
    swept,
    swept_from,
)

__all__ = [
    "Model",
    "PastStats",
    "Responsibilities",
    "Rows",
    "Search",
    "State",
    "StickPrior",
    "SweepStart",
    "WindowData",
    "best_entries",
    "m_step",
    "no_past",
    "normalized",
    "pair_entropies",
    "past_of",
    "settled",
    "stats_by_share",
    "swept",
    "swept_from",
]
