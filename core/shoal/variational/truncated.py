"""Mean-field inference with a fixed number of components: TSB, O-TSB and FSD, and the rounds of the collapsed methods.

TSB is the method of Blei and Jordan (2004): sticks truncated by v_T = 1, with q(v_i) for i < T. O-TSB puts the
components in their best order between the halves of a round (Kurihara, Welling and Teh 2007, section 3.4, as corrected
by ERRATA 2.11 and 2.12). FSD has a symmetric Dirichlet for the weights. Each bound is exact and rises in every round.
It is a bound on the evidence of the truncated model, and may exceed that of the Dirichlet process (ERRATA 0.1).

The state of a fit is the responsibilities q(z), updated in place, and the order of the components. All other parameters
are at their best for q(z), so that the bound is

    sum_i log m(S_i) + E log p(labels) + H(q(z))                                                        (ERRATA 0.3)

Here log m(S_i) is the evidence of the statistics of component i, carriers included. The label term is integrated over
the weights (collapsed) or taken at the best q(weights). A round updates all q(z), then in the o-methods the order, then
all parameters. A past adds its statistics and masses to those of the components, and a lower bound on its entropy to
the bound.

The keywords that all six methods share:
    concentration  > 0.
    truncation     T; None: as many as `resp_init` or the past has, else `default_truncation`.
    max_iter, tol  at most so many rounds (1000); a fit ends after a round that changes the bound by less than tol
                   (1e-5) nats a point. With tol 0 all rounds are done.
    resp_init      (N, T), rows summing to one: the parameters are fitted to it, in its order, before the first round.
    past           statistics of the first components, which stay whole.
    rng            for the start, where there is no `resp_init`.
In the result `elbo_history[s]` is the bound after s rounds. Components are in decreasing mass;
`extra["stick_place"]` (T,) is the place of each in the model's own order. The functions raise NoPointsError,
SettingError and ShapeError.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NotRequired, Protocol, TypeAlias, TypedDict, Unpack

import numpy as np
from scipy.special import entr

from shoal.errors import NoPointsError, SettingError, ShapeError
from shoal.families import AnyFamily, concatenated, take
from shoal.families.capabilities import fitted_suffstats, suffstats_given
from shoal.families.derived import log_marginal
from shoal.inference import entropy_below, locations_of
from shoal.mixture import BatchFit, Past, Progress, ProgressCallback, by_mass
from shoal.points.arrays import Array, IntArray, as_points
from shoal.points.rows import Points
from shoal.process import default_truncation
from shoal.variational.label_priors import Labels, Sticks, Symmetric, plugged_in

BLOCK_ELEMENTS = 1 << 19
"""Responsibilities handled at once: 4 MiB, and a few times that in temporaries."""

LogLikelihood: TypeAlias = Callable[[slice], Array]
"""E log p(x_n | eta_i) (rows, T) of a slice of the points, under a q(eta) that stays the same during a round."""
_LLOYD_ROUNDS = 3
_ROW_SUM_ERROR = 1e-6
_NO_WIDTH = 1e-12
"""Mean squared distance to the nearest centre, in units of a feature's variance, below which it counts as zero."""


class FitOptions(TypedDict):
    """The keywords above."""

    concentration: float
    rng: np.random.Generator
    truncation: NotRequired[int | None]
    max_iter: NotRequired[int]
    tol: NotRequired[float]
    resp_init: NotRequired[Array | None]
    past: NotRequired[Past | None]
    progress: NotRequired[ProgressCallback]


def fit_tsb(family: AnyFamily, x: Array, **options: Unpack[FitOptions]) -> BatchFit:
    """Truncated stick breaking, uncollapsed: points x (N, D), keywords as above."""
    division = Uncollapsed(Sticks(options["concentration"]))
    return fit_with(family, x, division, ordered=False, message="tsb", **options).result()


def fit_o_tsb(family: AnyFamily, x: Array, **options: Unpack[FitOptions]) -> BatchFit:
    """As `fit_tsb`, with the components put in their best order in every round; then q(v) is computed again."""
    division = Uncollapsed(Sticks(options["concentration"]))
    return fit_with(family, x, division, ordered=True, message="o-tsb", **options).result()


def fit_fsd(family: AnyFamily, x: Array, **options: Unpack[FitOptions]) -> BatchFit:
    """Finite symmetric Dirichlet, uncollapsed: points x (N, D), keywords as above."""
    division = Uncollapsed(Symmetric(options["concentration"]))
    return fit_with(family, x, division, ordered=False, message="fsd", **options).result()


class Division(Protocol):
    """How q(z) is updated, and what the labels add to the bound."""

    @property
    def labels(self) -> Labels:
        """The prior of the labels."""

    @property
    def is_exact(self) -> bool:
        """Whether `log_prior` is exact; an approximation may exceed the true value."""

    def divide_inplace(self, resp: Array, base: Array, log_likelihood: LogLikelihood) -> None:
        """Update all q(z_n): resp (N, T), beside given counts `base` (T,)."""

    def log_prior(self, resp: Array, base: Array) -> float:
        """E log p(labels), nats, integrated over the weights or at the best q(weights)."""


class Rules(NamedTuple):
    """Limits of a fit, and its settings for each round."""

    max_iter: int
    tol: float  # nats a point
    ordered: bool  # whether components are put in their best order
    progress: ProgressCallback
    message: str


class Run:
    """A fit in progress: q(z) and the past, in the current order of the components."""

    def __init__(self, family: AnyFamily, x: Array, division: Division, resp: Array, past: Past | None) -> None:
        self.family, self.x, self.division, self.resp = family, x, division, resp
        n_components = resp.shape[1]
        self.past = None if past is None else padded(family, past.stats, n_components)
        self.base = np.zeros(n_components) if self.past is None else np.array(self.past[0])
        self.given: Any = None  # parameters (T) under which q(z) was found, for latent variables of the points
        self.history: list[float] = []  # the bound, nats, after 0, 1, 2, ... rounds
        self.converged = False  # whether the tolerance ended the rounds
        self.past_entropy = 0.0
        if past is not None and past.entropy_pairs is not None:
            self.past_entropy = entropy_below(np.array(past.entropy_pairs, dtype=np.float64))
        self.fit_parameters()

    def fit_parameters(self) -> None:
        """Set the statistics of the best q(eta)."""
        if self.given is None:
            stats = fitted_suffstats(self.family, self.x, self.resp)
        else:
            stats = suffstats_given(self.family, self.given, self.x, self.resp)
        self.stats: Any = stats if self.past is None else self.family.add(stats, self.past)

    def divide(self) -> None:
        """Update all q(z)."""
        self.given = params = self.family.posterior(self.stats)
        self.division.divide_inplace(
            self.resp, self.base, lambda rows: self.family.expected_log_likelihood(params, self.x[rows])
        )

    def reorder(self) -> bool:
        """Put the components in their best order by expected counts, if that raises the bound.

        Without collapsing it always does (ERRATA 2.11). In a collapsed method the expectation depends on the whole
        distributions of the counts. The order that is best for their means may lower it (ERRATA 2.12), and the
        components then keep their order.
        """
        order = self.division.labels.best_order(self.resp.sum(axis=0) + self.base)
        if np.array_equal(order, np.arange(order.size)):
            return False
        resp = np.take(self.resp, order, axis=1)
        if self.division.log_prior(resp, self.base[order]) <= self.division.log_prior(self.resp, self.base):
            return False
        self.resp, self.base = resp, self.base[order]
        self.past = None if self.past is None else take(self.past, order)
        self.given = None if self.given is None else take(self.given, order)
        return True

    def elbo(self) -> float:
        """The bound, nats, with the parameters at their best for q(z)."""
        evidence = float(log_marginal(self.family, self.stats).sum())
        return evidence + self.entropy() + self.division.log_prior(self.resp, self.base)

    def entropy(self) -> float:
        """H(q(z)) with the entropy of the past, nats."""
        blocks = row_slices(*self.resp.shape)
        return self.past_entropy + sum(float(entr(self.resp[rows]).sum()) for rows in blocks)

    def result(self, **extra: Array) -> BatchFit:
        """The fit with components in decreasing mass; `stick_place` is the place of each in the model's own order."""
        place: IntArray = np.argsort(-self.stats[0], kind="stable")
        fit = BatchFit(
            stats=self.stats,
            resp=self.resp,
            log_weight=self.division.labels.log_mean_weight(self.stats[0]),
            log_new_weight=-np.inf,
            elbo=self.history[-1],
            elbo_history=np.array(self.history),
            elbo_is_exact=self.division.is_exact,
            n_rounds=len(self.history) - 1,
            converged=self.converged,
            extra={"stick_place": place.astype(np.float64), **extra},
        )
        return by_mass(fit)


def run_rounds(run: Run, rules: Rules) -> None:
    """Run rounds until one changes the bound by less than tol * N nats, at most `max_iter` of them.

    With tol 0 all rounds are done.
    """
    history = run.history = [run.elbo()]
    for number in range(1, rules.max_iter + 1):
        run.divide()
        if rules.ordered:
            run.reorder()
        run.fit_parameters()
        history.append(run.elbo())
        if rules.progress is not None:
            n_components = int(np.count_nonzero(run.stats[0] >= 0.5))
            rules.progress(Progress(number, history[-1], n_components, rules.message, None))
        if abs(history[-1] - history[-2]) < rules.tol * len(run.x):
            run.converged = True
            return


def padded(family: AnyFamily, stats: Any, n_components: int) -> Any:
    """Statistics with empty rows after their own, up to `n_components`."""
    return concatenated(stats, family.empty_stats(n_components - len(stats[0])))


def row_slices(n_rows: int, n_columns: int) -> list[slice]:
    """Consecutive slices of the rows of a table, of bounded size each."""
    step = max(1, BLOCK_ELEMENTS // max(n_columns, 1))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def softmax_inplace(score: Array) -> Array:
    """Rows of exp(score) normalised to one, in `score` (N, T) itself."""
    score -= score.max(axis=1, keepdims=True)
    np.exp(score, out=score)
    score /= score.sum(axis=1, keepdims=True)
    return score


@dataclass(frozen=True)
class Uncollapsed:
    """q(z) q(weights) q(eta), all factors independent: every q(z_n) at once, softmax of expected log joints."""

    labels: Labels
    is_exact: bool = True

    def divide_inplace(self, resp: Array, base: Array, log_likelihood: LogLikelihood) -> None:
        """The best q(z) under the best q(weights) for the responsibilities before the update."""
        log_weight = self.labels.expected_log_weight(resp.sum(axis=0) + base)
        for rows in row_slices(*resp.shape):
            resp[rows] = softmax_inplace(log_likelihood(rows) + log_weight)

    def log_prior(self, resp: Array, base: Array) -> float:
        """E log p(z | weights) - KL(q(weights) || prior) at the best q(weights), in closed form (ERRATA 0.3)."""
        return plugged_in(self.labels.terms(base, len(resp)), resp.sum(axis=0))


def fit_with(
    family: AnyFamily, x: Array, division: Division, *, ordered: bool, message: str, **options: Unpack[FitOptions]
) -> Run:
    """Start, then run rounds until the tolerance or the limit ends the fit."""
    past = options.get("past")
    rules = Rules(options.get("max_iter", 1000), options.get("tol", 1e-5), ordered, options.get("progress"), message)
    if rules.max_iter < 0 or not rules.tol >= 0.0:
        raise SettingError(f"max_iter is {rules.max_iter} and tol {rules.tol}; neither may be negative")

    def from_past(truncation: int) -> Array:
        """Responsibilities of all points under the statistics of the past, as in the first half of a round."""
        assert past is not None
        stats = padded(family, past.stats, truncation)
        params, resp = family.posterior(stats), np.zeros((len(x), truncation))
        uncollapsed = Uncollapsed(division.labels)
        uncollapsed.divide_inplace(resp, stats[0], lambda rows: family.expected_log_likelihood(params, x[rows]))
        return resp

    resp = starting_resp(
        family,
        x,
        truncation=options.get("truncation"),
        resp_init=options.get("resp_init"),
        past=past,
        concentration=options["concentration"],
        rng=options["rng"],
        from_past=from_past,
    )
    run = Run(family, x, division, resp, past)
    run_rounds(run, rules)
    return run


def starting_resp(
    family: AnyFamily,
    x: Points,
    *,
    truncation: int | None,
    resp_init: Array | None,
    past: Past | None,
    concentration: float,
    rng: np.random.Generator,
    from_past: Callable[[int], Array],
) -> Array:
    """Responsibilities (N, T) to start from, a new array: those given, or from the past, or around drawn centres.

    Raises NoPointsError, ShapeError, SettingError.
    """
    if len(x) == 0:
        raise NoPointsError("there are no points to fit; send at least one row")
    if not (np.isfinite(concentration) and concentration > 0.0):
        raise SettingError(f"concentration is {concentration}; it must be a positive number")
    n_past = 0 if past is None else len(past.stats[0])
    if resp_init is not None:
        return _checked(resp_init, len(x), truncation, n_past)
    if truncation is None:
        truncation = max(n_past, default_truncation(len(x), concentration))
    if truncation < max(n_past, 1):
        raise SettingError(
            f"truncation is {truncation}; it must be at least 1, and at least the {n_past} components of the past"
        )
    return from_past(truncation) if n_past else seeded_resp(locations_of(family, x), truncation, rng)


def seeded_resp(x: Array, truncation: int, rng: np.random.Generator) -> Array:
    """Soft responsibilities (N, T) around centres chosen as k-means++ does, each feature in units of its own spread.

    Points have locations x (N, E), see `inference.locations`. Points far from all centres are likely to be the next
    (Arthur and Vassilvitskii 2007). A few rounds of Lloyd's method follow. Each point is then divided among Gaussians
    about the centres. Their variance is the mean squared distance to the nearest centre.
    """
    spread = x.std(axis=0)
    z = (x - x.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    centres = _far_centres(z, truncation, rng)
    for _ in range(_LLOYD_ROUNDS):
        nearest = np.argmin(_squared_distances(z, centres), axis=1)
        counts = np.bincount(nearest, minlength=truncation)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, z)
        filled = counts > 0
        centres[filled] = sums[filled] / counts[filled, None]
    distances = _squared_distances(z, centres)
    least = distances.min(axis=1, keepdims=True)
    width = float(least.mean()) / z.shape[1]
    resp = np.exp((least - distances) / (2.0 * width if width > _NO_WIDTH else 2.0))
    resp /= resp.sum(axis=1, keepdims=True)
    return np.asarray(resp)


def _far_centres(z: Array, n_centres: int, rng: np.random.Generator) -> Array:
    """Points drawn one after another, each with probability proportional to its squared distance to those before."""
    chosen = [int(rng.integers(len(z)))]
    nearest = ((z - z[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < n_centres:
        total = float(nearest.sum())
        pick = int(rng.choice(len(z), p=nearest / total)) if total > 0.0 else int(rng.integers(len(z)))
        chosen.append(pick)
        np.minimum(nearest, ((z - z[pick]) ** 2).sum(axis=1), out=nearest)
    return np.array(z[chosen])


def _squared_distances(z: Array, centres: Array) -> Array:
    cross = z @ centres.T
    distances = (z**2).sum(axis=1)[:, None] - 2.0 * cross + (centres**2).sum(axis=1)
    return np.asarray(np.maximum(distances, 0.0))


def _checked(resp_init: Array, n_points: int, truncation: int | None, n_past: int) -> Array:
    resp = np.array(as_points(resp_init), order="C")
    if resp.shape[0] != n_points or resp.shape[1] < n_past or truncation not in (None, resp.shape[1]):
        want = f"({n_points}, {'T' if truncation is None else truncation})"
        raise ShapeError(
            f"resp_init has shape {resp.shape}; send {want}, with T at least the {n_past} components of the past"
        )
    if resp.min() < 0.0 or np.abs(resp.sum(axis=1) - 1.0).max() > _ROW_SUM_ERROR:
        raise SettingError("resp_init has rows that are not probabilities; send entries >= 0 with rows that sum to one")
    return resp
