"""The split-and-join engine: one search for the components of a mixture, whatever the data and the labels.

    label_terms       sticks, with or without a tail, and what a split or a join changes of their term
    past              statistics of points that are gone
    data              rows with weights, and the passes over them
    e_step, m_step    responsibilities; statistics and the bound. `sweep` makes both
    distance_bounds   which scores need not be computed
    acceleration      sweeps until they settle
    split             `start_points`, then `two_way_split`, then the exact gain on all rows
    join              pairs worth valuing, and their exact gain
    search            rounds of prior, splits and joins

The refinement of a stream and the batch engines `vdp` and `fast-vdp` are its users.
"""

from shoal.inference.data import Rows, WindowData
from shoal.inference.label_terms import StickPrior
from shoal.inference.m_step import Model, State
from shoal.inference.past import PastStats, no_past, past_of
from shoal.inference.search import Search
from shoal.inference.sweep import sweep_from_params, sweep_from_stats

__all__ = [
    "Model",
    "PastStats",
    "Rows",
    "Search",
    "State",
    "StickPrior",
    "WindowData",
    "no_past",
    "past_of",
    "sweep_from_params",
    "sweep_from_stats",
]
