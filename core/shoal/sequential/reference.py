"""The pass of `kernel` in plain NumPy, over a family's own functions.

It is the reference for the tests of the kernels, and it runs the streams of families that have no kernel. It reads and
writes the same arrays as the kernel and stops where they are full. Whatever scores a component is computed again after
each change of the component (a Cholesky factor, for `gaussian`), which takes some tenths of a millisecond a point.
"""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.families.base import AnyFamily, take
from shoal.families.capabilities import absorbed
from shoal.families.estimated import EstimatedFamily
from shoal.families.predictive_cache import refresh
from shoal.mixture import MisfitMonitor
from shoal.points.arrays import LARGEST_COORDINATE, Array, IntArray
from shoal.points.rows import Points
from shoal.sequential.kernel import (
    COLLECTED_POINTS,
    FIRST_MASS,
    LEAST_CUT,
    LEAST_SHORTFALL,
    LEAST_SPREAD,
    MISFIT,
    MISFIT_POINTS,
    MOST_SHORTFALL,
    NEGLIGIBLE,
    SMALLEST_OVERLAP,
)
from shoal.sequential.passes import Components, PassResult, PassRules, Piece, new_components


def reference_pass_inplace(
    family: AnyFamily,
    rules: PassRules,
    components: Components,
    n: int,
    points_seen: int,
    piece: Piece,
    all_resp: Array | None = None,
) -> PassResult:
    """Do what `one_pass_inplace` does, with no kernel called: the same to rounding, wherever calls and arrays are cut.

    The predictive cache is computed again at the end. Writes, where asked for, `all_resp` (N, C): the responsibilities
    with which each point was absorbed, zeros as given where there are none.
    """
    x, labels, log_density, novelties, weights = piece
    rows = _rows_of(family, components.stats, n)
    if isinstance(x, np.ndarray):
        x = np.clip(x, -LARGEST_COORDINATE, LARGEST_COORDINATE)
    refused, first_refused, first_misfit, i = 0, -1, -1, 0
    while i < len(x) and n < len(components.born_at):
        point, weight = x[i : i + 1], 1.0 if weights is None else float(weights[i])
        own, new = rows.scores(n, point)
        existing = own + np.log(components.stats.mass[:n])
        nearest = int(existing.argmax()) if n else -1
        log_density[i], novelty, born, is_refused, resp = shared_among(existing, new, rules)
        if novelties is not None:
            novelties[i] = novelty
        if is_refused:
            first_refused = i if refused == 0 else first_refused
            refused += 1
        if rules.pair_rule != "none":
            add_pairs(components.pairs, rules.pair_rule, n, resp, born, weight)
        if len(components.monitor.spread) and not born and nearest >= 0:
            misfits = _watch(components.monitor, nearest, float(own[nearest]), float(components.stats.mass[nearest]))
            first_misfit = i if misfits and first_misfit < 0 else first_misfit
        if all_resp is not None:
            all_resp[i, : len(resp)] = resp
        i += 1
        rows.absorb(n, point, weight * resp, born)
        labels[i - 1] = label = int(resp.argmax())
        components.last_seen_at[label] = points_seen + i
        if born:
            components.born_at[n] = components.last_seen_at[n] = points_seen + i
            n += 1
    if components.cache:
        for field, fresh in zip(components.cache, refresh(family, components.stats, n), strict=True):
            field[:n] = fresh[:n]
    return PassResult(i, n, refused, first_refused, first_misfit)


class SharedPoint(NamedTuple):
    """How algorithm 1 shares one point among K components and a new one."""

    log_density: float
    """log(sum_k w_k p_k + alpha p_0), nats."""
    novelty: float
    """Responsibility of the new component."""
    born: bool
    """Whether the point founds it."""
    is_refused: bool
    """Whether it would, if there were not `max_components` already."""
    resp: Array
    """(K,) of sum one, or (K + 1,) with that of the newborn last; zeros below the floor."""


def shared_among(existing: Array, new: float, rules: PassRules) -> SharedPoint:
    """The share of a point in each component, from log w_k p_k (K,) and the log density `new` under the prior."""
    least = existing.max(initial=-np.inf) - LEAST_CUT + math.log(max(rules.responsibility_floor, NEGLIGIBLE))
    existing = np.where(existing < least, -np.inf, existing)
    new += math.log(rules.concentration)
    total = float(np.logaddexp(log_sum(existing), new))
    novelty = math.exp(new - total)
    wanted = novelty > rules.birth_threshold
    born = wanted and len(existing) < rules.max_components
    log_joint = np.append(existing, new) if born else existing
    resp = responsibilities(log_joint, rules.responsibility_floor, born)
    return SharedPoint(total, novelty, born, wanted and not born, resp)


def responsibilities(log_joint: Array, floor: float, born: bool) -> Array:
    """Responsibilities (K,) of sum one, those below the floor dropped: bar the last if `born`, else bar the largest."""
    resp: Array = np.exp(log_joint - log_joint.max())
    resp /= resp.sum()
    exempt = len(resp) - 1 if born else int(resp.argmax())
    dropped = resp < max(floor, NEGLIGIBLE)
    dropped[exempt] = False
    resp[dropped] = 0.0
    resp /= resp.sum()
    return resp


def log_sum(scores: Array) -> float:
    """log sum exp of scores (K,), -inf for none; SciPy's takes as long as all the rest of a point."""
    largest = float(scores.max(initial=-np.inf))
    return largest + math.log(np.exp(scores - largest).sum()) if largest > -math.inf else largest


class _Rows(Protocol):
    """What a pass does with the rows of statistics by family."""

    def scores(self, n: int, point: Points) -> tuple[Array, float]:
        """Log predictive density of a point (1, D) under each of the first n rows (n,), and under the prior."""

    def absorb(self, n: int, point: Points, resp: Array, born: bool) -> None:
        """Add a point (1, D) to rows by their responsibilities (n,), or (n + 1,) with row n `born` of it."""


def _rows_of(family: Any, stats: Any, n: int) -> _Rows:
    return _Estimates(family, stats) if isinstance(family, EstimatedFamily) else _Conjugate(family, stats, n)


class _Conjugate:
    """Statistics that add, and beside them what rows are scored by."""

    def __init__(self, family: AnyFamily, stats: Any, n: int) -> None:
        self._family, self._stats = family, stats
        self._empty = family.predictive(family.posterior(family.empty_stats(1)))
        fresh = family.predictive(family.posterior(take(stats, slice(0, n))))
        rows = len(stats.mass)
        self._predictive = type(fresh)(*(np.empty((rows, *field.shape[1:])) for field in fresh))
        put_rows(self._predictive, slice(0, n), fresh)
        self._clear(n)

    def _clear(self, row: int) -> None:
        """Row `row`, if there is one, has seen nothing."""
        if row < len(self._stats.mass):
            put_rows(self._predictive, slice(row, row + 1), self._empty)

    def scores(self, n: int, point: Points) -> tuple[Array, float]:
        log_p = self._family.log_predictive_from(take(self._predictive, slice(0, n + 1)), point)[0]
        return log_p[:n], float(log_p[n])

    def absorb(self, n: int, point: Points, resp: Array, born: bool) -> None:
        rows = np.flatnonzero(resp)
        if born:
            put_rows(self._stats, slice(n, n + 1), self._family.empty_stats(1))
        joined = absorbed(self._family, take(self._stats, rows), point, resp[None, rows])
        put_rows(self._stats, rows, joined)
        put_rows(self._predictive, rows, self._family.predictive(self._family.posterior(joined)))
        if born:
            self._clear(n + 1)


class _Estimates:
    """One estimate a component, moved from where it stood."""

    def __init__(self, family: EstimatedFamily, stats: Any) -> None:
        self._family, self._stats = family, stats

    def scores(self, n: int, point: Any) -> tuple[Array, float]:
        own = self._family.log_likelihood(self._stats.estimate[:n], point)[0]
        return own, float(self._family.log_new(point)[0])

    def absorb(self, n: int, point: Any, resp: Array, born: bool) -> None:
        family, stats = self._family, self._stats
        seen = (float(stats.seen[0]) if n else 0.0) + 1.0
        stats.seen[: n + born] = seen
        for k in np.flatnonzero(resp[:n]):
            stats.mass[k] += resp[k]
            stats.estimate[k] = family.moved(stats.estimate[k], point[0], float(resp[k]), float(stats.mass[k]), seen)
        if born:
            stats.mass[n] = resp[n]
            stats.estimate[n] = family.settled(family.start(point[0]))


def put_rows(target: Any, rows: Any, source: Any) -> None:
    """Write the fields of `source` over those rows of `target`."""
    for field, fresh in zip(target, source, strict=True):
        field[rows] = fresh


def add_pairs(pairs: Array, rule: str, n: int, resp: Array, born: bool, weight: float) -> None:
    """Add one point to the pair sums, times its weight, both triangles; those of row n begin with its birth.

    entropy: -[a log(a / (a + b)) + b log(b / (a + b))], with s <= l of a, b as (a + b) log1p(s / l) - s log(s / l),
    which does not cancel. overlap: min(a, b).
    """
    if born:
        pairs[n, : n + 1] = pairs[: n + 1, n] = 0.0
    rows = np.flatnonzero(resp)
    if len(rows) < 2:
        return
    a, b = resp[rows, None], resp[None, rows]
    small = np.minimum(a, b)
    if rule == "entropy":
        ratio = small / np.maximum(a, b)
        amount = (a + b) * np.log1p(ratio) - small * np.log(ratio)
    else:
        amount = np.where(small > SMALLEST_OVERLAP, small, 0.0)
    np.fill_diagonal(amount, 0.0)
    pairs[np.ix_(rows, rows)] += weight * amount


def _watch(monitor: MisfitMonitor, k: int, score: float, mass: float) -> bool:
    """`kernel.watch`, in plain numbers."""
    base, spread, level, collected = monitor.base, monitor.spread, monitor.level, monitor.collected
    if spread[k] > 0.0:
        shortfall = min(max((base[k] - score) / spread[k], LEAST_SHORTFALL), MOST_SHORTFALL)
        level[k] += (shortfall - level[k]) / MISFIT_POINTS
        return bool(level[k] > MISFIT)
    if mass < FIRST_MASS:
        return False
    n = collected[k]
    if n >= 20.0:
        score = max(score, base[k] - MOST_SHORTFALL * max(math.sqrt(level[k] / n), LEAST_SPREAD))
    collected[k] = n + 1.0
    delta = score - base[k]
    base[k] += delta / collected[k]
    level[k] += delta * (score - base[k])
    if collected[k] >= COLLECTED_POINTS:
        spread[k] = max(math.sqrt(level[k] / collected[k]), LEAST_SPREAD)
        level[k] = 0.0
    return False


class ReferenceResult(NamedTuple):
    """The mixture after a pass of N points that ended with K components, and what happened on the way."""

    stats: Any  # K rows
    born_at: IntArray  # (K,)
    last_seen_at: IntArray  # (K,)
    pairs: Array  # (K, K) symmetric, diagonal zero
    labels: IntArray  # (N,)
    log_density: Array  # (N,) log(sum_k w_k p_k + alpha p_0), before the point was absorbed
    resp: Array  # (N, K) the responsibilities with which each point was absorbed
    n_refused: int


def reference_pass(family: AnyFamily, rules: PassRules, x: Array, weights: Array | None = None) -> ReferenceResult:
    """Algorithm 1 (Lin 2013, eq. 15-16; ERRATA 5.4-5.8) over points x (N, D) from an empty mixture."""
    rows = min(rules.max_components, len(x)) + 1
    components = new_components(family, rows, rules.pair_rule)
    labels, log_density, resp = np.zeros(len(x), dtype=np.int64), np.empty(len(x)), np.zeros((len(x), rows))
    piece = Piece(x, labels, log_density, weights=weights)
    ended = reference_pass_inplace(family, rules, components, 0, 0, piece, resp)
    n, n_refused = ended.n_components, ended.n_refused
    resp = resp[:, :n]
    births = components.born_at[:n]
    last = [int(max(birth, 1 + np.flatnonzero(labels == k).max(initial=-1))) for k, birth in enumerate(births)]
    return ReferenceResult(
        take(components.stats, slice(0, n)),
        births,
        np.array(last, dtype=np.int64),
        pair_sums(resp, rules.pair_rule, weights),
        labels,
        log_density,
        resp,
        n_refused,
    )


def pair_sums(resp: Array, rule: str, weights: Array | None = None) -> Array:
    """Pair sums (K, K) of responsibilities (N, K), straight from their definition; zeros under the rule `none`.
    Each row counts times its weight.

    entropy: E[k, l] = -sum_i [r_ik log(r_ik / (r_ik + r_il)) + r_il log(r_il / (r_ik + r_il))].
    overlap: M[k, l] = sum_i min(r_ik, r_il) over those above 1e-12. A component not yet born has responsibility 0.
    """
    k = resp.shape[1]
    pairs = np.zeros((k, k))
    for a in range(k):
        for b in range(a):
            both = (resp[:, a] > 0) & (resp[:, b] > 0)
            p, q = resp[both][:, [a, b]].T
            w = np.ones(len(p)) if weights is None else weights[both]
            if rule == "entropy":
                pairs[a, b] = -np.sum(w * (p * np.log(p / (p + q)) + q * np.log(q / (p + q))))
            elif rule == "overlap":
                smaller = np.minimum(p, q)
                pairs[a, b] = (w * smaller)[smaller > SMALLEST_OVERLAP].sum()
            pairs[b, a] = pairs[a, b]
    return pairs
