"""Problem and solution of a refinement: plain data, the same for every family and method.

All values are in the coordinates of the family (standardised where the stream is). The problem has the points whose
responsibilities are free (the rows of the window) and those whose are fixed (the past, tied to the components). The
solution has the responsibilities of the rows and the fate of each component of the live mixture.
"""

from typing import Any, Literal, NamedTuple, TypeAlias

import scipy.sparse

from shoal.families import AnyFamily
from shoal.inference import Rows
from shoal.mixture.batch import Past
from shoal.points.arrays import Array, IntArray

WORTH_A_ROW = 1e-6
"""Least rise of the bound, in nats a window row, for a solution to be worth adopting."""
RefinementMethod: TypeAlias = Literal["vdp", "fast-vdp", "tsb", "o-tsb", "ctsb", "o-ctsb", "fsd", "cfsd"]


class Problem(NamedTuple):
    """A live mixture of T components, N rows of the window, and the past before them."""

    family: AnyFamily
    """The prior in force."""
    concentration: float
    """Of the Dirichlet process, > 0."""
    rows: Rows
    """(N, D) the window's points, oldest first."""
    weights: Array
    """(N,) in (0, 1]: weight of each point after decay; 1 without a half-life."""
    past: Past
    """Statistics of the points that have left the window, T rows, and their pair entropies (T, T)."""
    live: Any
    """Statistics of past and window together, T rows, as in the stream; the search starts there."""
    reestimate_prior: bool
    """Whether the prior is estimated again (prior `auto`); False keeps the user's."""
    confirmed: bool = False
    """Whether the last refinement kept the structure, and no component of notable mass was born since."""


class Solution(NamedTuple):
    """A mixture of T' components, in decreasing mass, and its relation to the live one."""

    family: AnyFamily
    """The prior, re-estimated where the problem asks for it."""
    stats: Any
    """Statistics of past and window together, T' rows, from `resp` and the problem's past."""
    resp: scipy.sparse.csr_matrix
    """(N, T') responsibilities of the window's rows, each row summing to one, entries below a floor dropped."""
    live_resp: scipy.sparse.csr_matrix
    """(N, T) responsibilities of the live components, where the search started."""
    past_stats: Any
    """Statistics of the past by row of the solution, T' rows: the problem's, joined, or shared between two children."""
    past_pairs: Array
    """(T', T') pair entropies of the past after the moves that the search made, nats."""
    past_entropy: float
    """Entropy of the past's responsibilities as the bounds count it, after those moves, nats."""
    past_row: IntArray
    """(T,) the row of the solution that holds the past of each live component, or the larger share of it."""
    bound_before: float
    """The functional at the live mixture, after one E- and one M-step, nats."""
    bound_after: float
    """The same functional at the solution, on the same points, nats; never below `bound_before`."""
    tail_mass: float
    """Decayed mass that moved between components when small responsibilities were dropped."""
    rounds: int
    """Passes over the rows, all trials included."""
    changed: bool
    """Whether the structure differs: a component was split, joined or removed."""
    report: dict[str, Any]
    """Facts for people: counts of moves, components before and after, whether the prior changed."""

    @property
    def worthwhile(self) -> bool:
        """Whether the bound rose by more than `WORTH_A_ROW` a window row."""
        return self.bound_after - self.bound_before > WORTH_A_ROW * self.resp.shape[0]
