"""Search for the most probable partition as a batch engine.

Daume (2007), "Fast search for Dirichlet process mixture models", with corrected objective and bounds (ERRATA 4.1-4.8;
`objective`, `caps`). A score is the log joint of a prefix plus an estimate of the gain of the rest:

* "admissible": an upper bound on the gain of the rest, by the blocks as they may grow. Without a beam the answer is
  certainly the most probable partition. The cost is exponential in the points, so it is for about a dozen points.
* "trivial": the same by caps that do not depend on the blocks. Also certain and exponential, and looser.
* "inadmissible": each later point as if alone, by the predictive of the prior (eq. 12). It is no bound. It prefers long
  prefixes, and with a beam of ten it costs little more than one pass.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.errors import NoPointsError, SettingError
from shoal.families import AnyFamily
from shoal.families.predictive_cache import has_sampling_kernels
from shoal.mixture import BatchFit, Progress, ProgressCallback, by_size, component_stats, log_joint
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points
from shoal.process import log_rising, predictive_weights
from shoal.search.beam import BeamSearch
from shoal.search.caps import log_caps_alone
from shoal.search.objective import suffix_sums
from shoal.search.plain import AdmissibleScore, Found, Score, search

ScoreName: TypeAlias = Literal["inadmissible", "admissible", "trivial"]
Order: TypeAlias = Literal["descending", "ascending", "given", "random"]

BEAM = 10
"""Default number of hypotheses kept."""


def fit_search(
    family: AnyFamily,
    x: Points,
    *,
    concentration: float = 1.0,
    search_score: ScoreName = "inadmissible",
    beam: float | None = None,
    search_order: Order = "ascending",
    max_iter: int | None = None,
    rng: np.random.Generator,
    progress: ProgressCallback = None,
) -> BatchFit:
    """The best partition that the search finds of points x (N, D).

    search_score  as above.
    beam          hypotheses kept, of any length together (ERRATA 4.10): a whole number >= 1, or infinite; None: 10.
    search_order  order of the points: by density under the prior alone, "descending" (usual points first) or
                  "ascending" (unusual points first, so that they found blocks before a wide block absorbs them); as
                  "given"; or "random". With a beam the order matters much.
    max_iter      most hypotheses expanded; then only the longest continues, each point goes to its best block, and
                  `converged` is False. None: no limit.

    The fit is of that partition. `elbo` is its log p(x, partition) in nats, a lower bound on the log evidence; for an
    admissible or trivial score without a beam it is the largest possible. `n_rounds`: hypotheses expanded. In `extra`:
    labels (N,) int64 and log_joint (). Raises NoPointsError, and SettingError for a score whose bound the family
    lacks.
    """
    if x.shape[0] == 0:
        raise NoPointsError("there are no points to fit; send at least one row")
    width = BEAM if beam is None else beam
    limit = math.inf if max_iter is None else max_iter
    alone = family.log_predictive(family.posterior(family.empty_stats(1)), x)[:, 0]
    rows = _order(search_order, alone, rng)
    placed, report = x[rows], _reporter(progress, x.shape[0], log_rising(concentration, x.shape[0]))
    log_concentration = float(np.log(concentration))
    rest = _rest(search_score, family, placed, alone[rows])
    if math.isinf(width) or isinstance(rest, AdmissibleScore) or not has_sampling_kernels(family):
        found = search(family, placed, log_concentration, rest, width, limit, report)
    else:
        found = BeamSearch(family, placed, log_concentration, rest.suffix, int(width)).run(limit, report)
    labels = np.empty(x.shape[0], dtype=np.int64)
    labels[rows] = found.labels
    return _as_fit(family, x, concentration, by_size(labels), found, progress)


def _order(order: str, alone: Array, rng: np.random.Generator) -> IntArray:
    """(N,): the points in the order of placement."""
    match order:
        case "descending":
            return np.argsort(-alone, kind="stable")
        case "ascending":
            return np.argsort(alone, kind="stable")
        case "given":
            return np.arange(alone.size)
        case "random":
            return rng.permutation(alone.size)
    raise SettingError(f'search_order is {order!r}; choose "descending", "ascending", "given" or "random"')


def _rest(score: str, family: AnyFamily, x: Points, alone: Array) -> Score:
    match score:
        case "inadmissible":
            return Score(suffix_sums(alone))
        case "trivial":
            return Score(suffix_sums(log_caps_alone(family, x)))
        case "admissible":
            return AdmissibleScore()
    raise SettingError(f'search_score is {score!r}; choose "inadmissible", "admissible" or "trivial"')


def _as_fit(
    family: AnyFamily, x: Points, concentration: float, labels: IntArray, found: Found, progress: ProgressCallback
) -> BatchFit:
    stats = component_stats(family, x, labels)
    value = log_joint(family, concentration, stats)
    if progress is not None:
        progress(Progress(found.n_expanded, value, len(stats[0]), "search, done", 1.0))
    weight, new_weight = predictive_weights(stats[0], concentration)
    extra: dict[str, npt.NDArray[Any]] = {"labels": labels, "log_joint": np.array(value)}
    return BatchFit(
        stats=stats,
        resp=None,
        log_weight=np.log(weight),
        log_new_weight=float(np.log(new_weight)),
        elbo=value,
        elbo_history=np.array([value]),
        elbo_is_exact=True,
        n_rounds=found.n_expanded,
        converged=not found.exhausted,
        extra=extra,
    )


def _reporter(progress: ProgressCallback, n_points: int, denominator: float) -> Callable[[float, int, int, int], None]:
    """The callback of the searches: reports the score less the prior's denominator, and the points placed."""
    longest = 0

    def report(value: float, length: int, n_blocks: int, n_expanded: int) -> None:
        nonlocal longest
        longest = max(longest, length)
        if progress is not None:
            message = f"search, {longest} of {n_points} points placed"
            progress(Progress(n_expanded, value - denominator, max(n_blocks, 1), message, longest / n_points))

    return report
