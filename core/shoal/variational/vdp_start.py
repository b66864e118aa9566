"""The state that a search begins with, where it begins with nothing found."""

import numpy as np

from shoal.variational.vdp_cells import Cells
from shoal.variational.vdp_run import Run
from shoal.variational.vdp_state import State, Tied, round_of, totals_of, untied


def start(run: Run, cells: Cells, tied: Tied | None) -> State:
    """One component with all points; or those of the past, as they stand without any points, which they then divide."""
    width = cells.reach.size
    if tied is None:
        totals = totals_of(cells, np.vstack([np.ones(cells.n_cells), np.zeros(cells.n_cells)]))
        return _noted(run, run.fitted(cells, totals, untied(1, width), np.arange(1)))
    n_components = len(tied.mass)
    nothing = totals_of(cells, np.zeros((n_components + 1, cells.n_cells)))
    blank = run.fitted(cells, nothing, tied, np.arange(n_components))
    return _noted(run, round_of(run.model, cells, blank)[0])


def _noted(run: Run, state: State) -> State:
    run.note(state, "starting")
    return state
