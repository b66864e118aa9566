"""Refinement: batch inference over the retained window, warm from the live mixture, judged by one exact bound.

`refinement_due` says when, `refine` makes one of a state and the window's raw rows, `adopt_inplace` puts it into the
live state, with the rows that came since; `postponed` moves the schedule on where it was not worth it. In between it
can go through `to_bytes` and `from_bytes`.
"""

from shoal.inference import Rows
from shoal.refinement.adopt import adopt_inplace, check_adoptable
from shoal.refinement.codec import from_bytes, to_bytes
from shoal.refinement.job import Refinement, postponed, refine
from shoal.refinement.problem import WORTH_A_ROW, Problem, RefinementMethod, Solution
from shoal.refinement.schedule import Due, points_until_refinement, refinement_due, refines_within
from shoal.refinement.window import forget_window, most_window_rows, restored, window_start

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
    "most_window_rows",
    "points_until_refinement",
    "postponed",
    "refine",
    "refinement_due",
    "refines_within",
    "restored",
    "to_bytes",
    "window_start",
]
