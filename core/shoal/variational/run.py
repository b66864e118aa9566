"""A fit in progress: rounds are counted, the bound is recorded, and nothing else is remembered."""

from dataclasses import dataclass, field

import numpy as np

from shoal.mixture.batch import Progress, ProgressCallback
from shoal.points.arrays import Array, IntArray
from shoal.variational.cells import Cells
from shoal.variational.rounds import Model, State, Totals, m_step, round_of, totals_of, without_past

_MOST_ROUNDS_TO_GOAL = 20


@dataclass
class Run:
    """The constants, the rules of stopping, the random numbers and the record of a fit.

    `threshold` is the rise of the bound, in nats, at or below which a move is not worth its component. It is `tol` nats
    a point: relative to the number of points, and not to the bound, whose zero and sign depend on the units of the data
    (ERRATA 1.7: without such a rule components are released for ever, for gains of 1e-6). Rounds go on while they raise
    the bound by more than a tenth of it, so that moves are judged by settled bounds.
    """

    model: Model
    threshold: float
    max_iter: int
    rng: np.random.Generator
    candidate_points: int | None
    progress: ProgressCallback = None
    history: list[float] = field(default_factory=list)

    @property
    def exhausted(self) -> bool:
        """Whether the rounds are used up."""
        return len(self.history) > self.max_iter

    def note(self, elbo: float, n_components: int, message: str, trial: bool = False) -> None:
        """Count one round. The record holds the best state that would be returned: a trial is not in it."""
        last = self.history[-1] if self.history else elbo
        self.history.append(last if trial else max(last, elbo))
        if self.progress is not None:
            self.progress(Progress(len(self.history) - 1, self.history[-1], n_components, message, None))

    def accept(self, elbo: float) -> None:
        """A trial becomes the state that would be returned."""
        self.history[-1] = max(self.history[-1], elbo)

    def fitted(self, cells: Cells, totals: Totals, past_row: IntArray, reorder: bool = True) -> State:
        """The state after an M-step."""
        return m_step(self.model, cells.log_carrier, totals, past_row, reorder)[0]

    def start(self, cells: Cells) -> State:
        """One component with all points; or the components of the past, which then divide the points."""
        n_past = len(self.model.past_natural) - 1
        if n_past == 0:
            resp = np.vstack([np.ones(cells.n_cells), np.zeros(cells.n_cells)])
            state = self.fitted(cells, totals_of(cells, resp), without_past(1))
        else:
            nothing = totals_of(cells, np.zeros((n_past + 1, cells.n_cells)))
            state = round_of(self.model, cells, self.fitted(cells, nothing, np.arange(n_past)))[0]
        self.note(state.elbo, state.n_components, "starting")
        return state

    def settle(
        self,
        cells: Cells,
        state: State,
        message: str,
        rounds: int | None = None,
        trial: bool = False,
        share: float = 0.1,
        goal: float = -np.inf,
    ) -> State:
        """Rounds until one raises the bound by no more than a share of the threshold, or `rounds` of them.

        They end earlier where twenty more like the last would not reach `goal`.
        """
        done = 0
        while not self.exhausted and (rounds is None or done < rounds):
            before, (state, _) = state.elbo, round_of(self.model, cells, state)
            self.note(state.elbo, state.n_components, message, trial)
            done += 1
            gain = state.elbo - before
            if gain <= share * self.threshold or (done > 2 and state.elbo + _MOST_ROUNDS_TO_GOAL * gain < goal):
                break
        return state

    def divided(self, cells: Cells, state: State, trial: bool = False) -> tuple[State, Array]:
        """One round that keeps its responsibilities (T + 1, A), in the order of the new state; the tail last."""
        resp = np.empty((state.n_components + 1, cells.n_cells))
        state, order = round_of(self.model, cells, state, resp)
        self.note(state.elbo, state.n_components, "dividing", trial)
        if np.any(order != np.arange(order.size)):
            resp = resp[np.append(order, order.size)]
        return state, resp
