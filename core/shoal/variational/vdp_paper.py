"""The greedy release of components by the rule of Kurihara, Welling and Vlassis (2006), section 4.

From T components: candidates are drawn by size, each is divided along its principal component and the two halves settle
between themselves; the division that raises the bound most is made, everything settles, and if the bound has not risen
by more than the threshold the state from before it is the result (ERRATA 1.8). Both bounds are on the same cells (1.9).
"""

import numpy as np

from shoal.points.arrays import Array, IntArray
from shoal.variational.splits import Split, apply_splits, part_of, principal_start, search, test_splits
from shoal.variational.vdp_cells import Cells
from shoal.variational.vdp_run import Run
from shoal.variational.vdp_state import State

CANDIDATES = 10
"""The paper's number."""


def release(run: Run, cells: Cells, state: State, give_up: bool = False) -> tuple[State, bool]:
    """Components added one by one while the bound rises; the state, and whether it stopped by its rule.

    With `give_up` a division is not settled to the end where twenty rounds more like the last would not make it worth
    its component. The paper's rule always settles.
    """
    while not run.exhausted:
        settled, resp = run.divided(cells, state)
        state = settled
        candidates = sampled_by_size(state.mass, CANDIDATES, run.rng)
        goal = state.elbo + run.threshold if give_up else -np.inf
        tried = _release_one(run, cells, state, resp, candidates, goal)
        if tried is None or tried.elbo - state.elbo <= run.threshold:
            return state, not run.exhausted
        state = run.accept(tried)
    return state, False


def _release_one(run: Run, cells: Cells, state: State, resp: Array, candidates: IntArray, goal: float) -> State | None:
    """The best split of the candidates, settled; None where none can be split."""
    splits = []
    for row in candidates:
        part = part_of(cells, resp[row], run.candidate_points, run.rng)
        split = search(run.model, part, state, int(row), principal_start(part)) if len(part.weight) > 1 else None
        if split is not None:
            splits.append(split)
    if not splits:
        return None
    return adopt(run, cells, state, [max(splits, key=lambda split: split.gain)], goal)


def adopt(run: Run, cells: Cells, state: State, splits: list[Split], goal: float = -np.inf) -> State:
    """The state with all the splits made, settled; given up where the bound will not reach `goal`."""
    tested = test_splits(run.model, cells, state, splits)
    parts = apply_splits(state, tested, np.arange(len(splits)))
    split = run.fitted(cells, *parts)
    run.note(split, "splitting", trial=True)
    return run.settle(cells, split, "splitting", trial=True, goal=goal)


def sampled_by_size(mass: Array, at_most: int, rng: np.random.Generator) -> IntArray:
    """Rows drawn without replacement, by mass (the paper does not say which, ERRATA 1.11; the tail is no candidate)."""
    share = np.maximum(mass, 0.0) / mass.sum()
    n_possible = int(np.count_nonzero(share))
    return np.asarray(rng.choice(mass.size, min(at_most, n_possible), replace=False, p=share), dtype=np.int64)
