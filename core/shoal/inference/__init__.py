"""The split-and-join engine: one search for the components of a mixture, whatever the data and the labels.

    label_terms       sticks, with or without a tail, and what a split or a join changes of their term
    data, past        rows with weights; statistics of points that are gone
    sweep             responsibilities; then statistics and the bound (`reference`: the plain form of its kernel)
    distance_bounds   which scores need not be computed
    acceleration      sweeps until they converge
    split             `start_points`, then `two_way_split`, then the exact gain on all rows
    join              pairs worth valuing, and their exact gain
    search            rounds of prior, splits and joins
    restart           the search from the components at hand, and from one component
    estimated_prior   the prior that the components suggest

The refinement of a stream and the batch engines `vdp` and `fast-vdp` are its users. `Search` is the door to all of it.
"""

from shoal.inference.acceleration import converge
from shoal.inference.data import Rows, WindowData
from shoal.inference.estimated_prior import evidence_under, reestimated, reestimated_wholly
from shoal.inference.join import pair_entropies
from shoal.inference.label_terms import (
    StickPrior,
    expected_log_weights,
    log_mean_weights,
    masses_after,
    split_gain,
    stick_bound,
    stick_divergence,
    stick_posterior,
    stick_prior,
)
from shoal.inference.past import PastStats, entropy_below, no_past, past_of, stats_by_share, summed_shares
from shoal.inference.restart import Found, best_found
from shoal.inference.search import Search
from shoal.inference.split_limits import LIMITS
from shoal.inference.start_points import Cloud, locations_of, power_axis, principal_start, units_of
from shoal.inference.sweep import (
    Model,
    Responsibilities,
    State,
    SweepStart,
    best_entries,
    bound_of,
    m_step,
    normalized,
    swept,
    swept_from,
)
from shoal.inference.two_way_split import PlainSplit

__all__ = [
    "LIMITS",
    "Cloud",
    "Found",
    "Model",
    "PastStats",
    "PlainSplit",
    "Responsibilities",
    "Rows",
    "Search",
    "State",
    "StickPrior",
    "SweepStart",
    "WindowData",
    "best_entries",
    "best_found",
    "bound_of",
    "converge",
    "entropy_below",
    "evidence_under",
    "expected_log_weights",
    "locations_of",
    "log_mean_weights",
    "m_step",
    "masses_after",
    "no_past",
    "normalized",
    "pair_entropies",
    "past_of",
    "power_axis",
    "principal_start",
    "reestimated",
    "reestimated_wholly",
    "split_gain",
    "stats_by_share",
    "stick_bound",
    "stick_divergence",
    "stick_posterior",
    "stick_prior",
    "summed_shares",
    "swept",
    "swept_from",
    "units_of",
]
