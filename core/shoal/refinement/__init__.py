"""Refinement: batch inference over the retained window, started from the live mixture and judged by one exact bound.

`refinement_due` tells whether one is due. `refine` computes it from a state and the raw rows of the window.
`adopt_inplace` puts it into the live state and learns the later rows again. `postponed` advances the schedule where the
refinement is not worth adopting. `to_bytes` and `from_bytes` carry it between processes.
"""

from shoal.inference import Rows
from shoal.refinement.adopt import adopt_inplace, check_adoptable
from shoal.refinement.codec import from_bytes, to_bytes
from shoal.refinement.job import Refinement, postponed, refine
from shoal.refinement.problem import (
    WORTH_A_ROW,
    Problem,
    RefinementMethod,
    Solution,
    forget_window,
    restored,
    window_start,
)
from shoal.refinement.schedule import Due, points_until_refinement, refinement_due

__all__ = [
    "WORTH_A_ROW",
    "Due",
    "Problem",
    "Refinement",
    "RefinementMethod",
    "Rows",
    "Solution",
    "adopt_inplace",
    "check_adoptable",
    "forget_window",
    "from_bytes",
    "points_until_refinement",
    "postponed",
    "refine",
    "refinement_due",
    "restored",
    "to_bytes",
    "window_start",
]
