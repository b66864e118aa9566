"""`vdp` for families with a latent variable at each point, by the search that refines a stream.

Their natural statistics depend on the component, so the cells of `rounds` cannot hold them. The sweeps of `inference`
fit the latent variables to each component. The bound is the same functional, with an empty tail.
"""

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import entr

from shoal.errors import SettingError
from shoal.families import AnyFamily, take
from shoal.inference import (
    Model,
    Responsibilities,
    Search,
    State,
    StickPrior,
    WindowData,
    converge,
    m_step,
    no_past,
    stick_posterior,
)
from shoal.mixture import BatchFit, Progress, ProgressCallback
from shoal.points.arrays import Array
from shoal.variational.rounds import stick_fit

_MOST_ROUNDS = 50
_STARTING_MASS = 1e-12
"""Share of a row below which a responsibility that is given counts as zero."""


def fit_latent(
    family: AnyFamily,
    x: Array,
    prior: StickPrior,
    *,
    max_iter: int,
    tol: float,
    resp_init: Array | None,
    rng: np.random.Generator,
    progress: ProgressCallback,
) -> BatchFit:
    """As `fit_vdp`, with `moves="default"`. With `resp_init` (N, T), sweeps alone, until two gain at most tol * N.

    `elbo_history` holds after each pass, those of rejected moves included, the bound of the best state so far, at most
    that of the result. With `resp_init` it holds the bound of each sweep.
    """
    history: list[float] = []

    def observe(passes: int, bound: float, n_components: int, message: str) -> None:
        history.append(bound)
        if progress is not None:
            progress(Progress(passes, bound, n_components, message, None))

    data = WindowData(x, np.ones(len(x)), observe, max_iter)
    model = Model(family, prior)
    if resp_init is None:
        search = Search(data, model, rng, worth=tol * len(x))
        state = search.run(search.single_start(0), _MOST_ROUNDS)
        history = np.minimum(np.maximum.accumulate(history), state.bound).tolist()
    else:
        state = _started(data, model, resp_init)
        state = converge(data, model, state, tol * len(x), max_iter)
    history.append(state.bound)
    return _fit_of(model, state, history, not data.exhausted)


def _started(data: WindowData, model: Model, resp_init: Array) -> State:
    """The state of given responsibilities, latent variables and parameters fitted to each other."""
    n_components = resp_init.shape[1]
    kept = np.where(resp_init > _STARTING_MASS, resp_init, 0.0)
    found = Responsibilities(csr_matrix(kept), float(entr(kept).sum()), 0.0)
    return m_step(data, model, found, no_past(model.family, n_components), np.arange(n_components))


def _fit_of(model: Model, state: State, history: list[float], converged: bool) -> BatchFit:
    """The result, components in decreasing mass."""
    order = np.argsort(-state.mass, kind="stable")
    stats = take(state.stats, order)
    sticks = stick_posterior(model.sticks, stats[0], 0.0)
    resp = state.resp[:, order].toarray()
    return stick_fit(stats, resp, sticks, state.bound, history, converged, tail=np.zeros(len(resp)))


def check_latent(moves: str, past: object) -> None:
    """Raise SettingError for what only families without latent variables can do."""
    if moves != "default" or past is not None:
        raise SettingError("the family has a latent variable at each point; use moves='default', and no past")
