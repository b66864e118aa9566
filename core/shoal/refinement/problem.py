"""What a refinement is given and what it gives back: data alone, the same for every family and method.

All of it is in the coordinates that the family works in (standardised where the stream is). The problem says which
points may be divided anew (the window's rows) and which may not (the past, hard-tied to the components); the solution
says how the rows are divided, and what became of each component of the live mixture.
"""

from typing import Any, Literal, NamedTuple, TypeAlias

import scipy.sparse

from shoal.families import AnyFamily
from shoal.inference import Rows
from shoal.mixture.batch import Past
from shoal.points.arrays import Array, IntArray

WORTH_A_ROW = 1e-6
"""Nats a window row by which the bound must rise for a solution to be worth adopting."""
RefinementMethod: TypeAlias = Literal["vdp", "fast-vdp", "tsb", "o-tsb", "ctsb", "o-ctsb", "fsd", "cfsd"]


class Problem(NamedTuple):
    """A live mixture of T components over N window rows and what came before them."""

    family: AnyFamily
    """The prior in force."""
    concentration: float
    """Of the Dirichlet process, > 0."""
    rows: Rows
    """(N, D) the window's points, oldest first."""
    weights: Array
    """(N,) in (0, 1]: what is left of each point after decay; 1 without a half-life."""
    past: Past
    """Statistics of the points that have left the window, T rows, and their pair entropies (T, T)."""
    live: Any
    """Statistics of past and window together, T rows, as the stream has them: where the search starts."""
    reestimate_prior: bool
    """Whether the prior is to be estimated anew (a prior of `auto`) or is the user's."""
    confirmed: bool = False
    """Whether the last refinement left the structure as it was, and no component of any size was born since."""


class Solution(NamedTuple):
    """A mixture of T' components, in decreasing mass, and how it came out of the live one."""

    family: AnyFamily
    """The prior, re-estimated where the problem asks for it."""
    stats: Any
    """Statistics of past and window together, T' rows, from `resp` and the problem's past."""
    resp: scipy.sparse.csr_matrix
    """(N, T') responsibilities of the window's rows, each row summing to one, entries below a floor dropped."""
    live_resp: scipy.sparse.csr_matrix
    """(N, T) the same of the live components, where the search started."""
    past_stats: Any
    """Statistics of the past by row of the solution, T' rows: the problem's, joined, or shared between two children."""
    past_pairs: Array
    """(T', T') pair entropies of the past after the moves that the search made, nats."""
    past_entropy: float
    """Nats: what the bounds count as the entropy of the past's responsibilities, after those moves."""
    past_row: IntArray
    """(T,) the row of the solution that holds the past of each live component, or the larger share of it."""
    bound_before: float
    """Nats: the functional at the live mixture, after one E- and one M-step."""
    bound_after: float
    """Nats: the same functional at the solution, on the same points; never below `bound_before`."""
    tail_mass: float
    """Decayed points whose responsibility was moved between components when small entries were dropped."""
    rounds: int
    """Passes over the rows, all trials included."""
    changed: bool
    """Whether the structure differs: a component was split, joined or removed."""
    report: dict[str, Any]
    """How it went, for people: counts of moves, components before and after, the prior's change."""

    @property
    def worthwhile(self) -> bool:
        """Whether the bound rose by more than `WORTH_A_ROW` a window row."""
        return self.bound_after - self.bound_before > WORTH_A_ROW * self.resp.shape[0]
