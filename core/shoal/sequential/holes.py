"""Points with missing values in one pass: one point at a time, in NumPy, by the same algorithm as `kernel`.

Such a point is scored by the marginal predictives of its observed features, and learnt by its expected statistics
(`families.holes`). Everything else is as for a complete point: births, the floor, pair sums, weights. It does not count
in the misfit monitor, whose reference is the log density of all features.
"""

import numpy as np

from shoal.families import AnyFamily, take
from shoal.families.holes import as_table, expected_stats, marginal_log_predictive, rows_with_holes
from shoal.families.predictive_cache import refresh
from shoal.mixture import StreamSettings, with_empty
from shoal.points.arrays import LARGEST_COORDINATE
from shoal.points.rows import Points
from shoal.sequential.passes import Components, PassResult, PassRules, Piece
from shoal.sequential.reference import add_pairs, put_rows, shared_among


def holed_point_inplace(
    family: AnyFamily,
    rules: PassRules,
    components: Components,
    n: int,
    points_seen: int,
    piece: Piece,
) -> PassResult:
    """Absorb a piece of one point (1, D) with NaN where a value is missing. Arguments are those of the pass; the log
    density is that of the observed features."""
    weight = 1.0 if piece.weights is None else float(piece.weights[0])
    point = np.clip(as_table(piece.x), -LARGEST_COORDINATE, LARGEST_COORDINATE)
    stats, cache = components.stats, components.cache
    params = family.posterior(with_empty(family, take(stats, slice(0, n))))
    scores = marginal_log_predictive(family, params, point)[0]
    log_density, novelty, born, is_refused, resp = shared_among(
        scores[:n] + np.log(stats.mass[:n]), float(scores[n]), rules
    )
    piece.log_density[0] = log_density
    if piece.novelties is not None:
        piece.novelties[0] = novelty
    if rules.pair_rule != "none":
        add_pairs(components.pairs, rules.pair_rule, n, resp, born, weight)
    rows = np.flatnonzero(resp)
    if born:
        put_rows(stats, slice(n, n + 1), family.empty_stats(1))
    own = expected_stats(family, take(params, rows), point, weight * resp[rows])
    joined = family.add(take(stats, rows), own)
    put_rows(stats, rows, joined)
    put_rows(cache, rows, refresh(family, joined))
    piece.labels[0] = label = int(resp.argmax())
    components.last_seen_at[label] = points_seen + 1
    if born:
        components.born_at[n] = components.last_seen_at[n] = points_seen + 1
    return PassResult(1, n + int(born), int(is_refused), 0 if is_refused else -1, -1)


def complete_rows(rows: Points, settings: StreamSettings) -> Points:
    """Rows of a warm-up (N, D) from which a prior is chosen, without holes.

    Where at least half are complete, these alone. Otherwise each hole takes the value of that feature in the row before
    it that has one, the last row before the first; 0 where no row has.
    """
    if not settings.takes_holes or not (holed := rows_with_holes(rows)).any():
        return rows
    if 2 * int(holed.sum()) <= len(rows):
        return rows[~holed]
    table = as_table(rows).copy()
    for column in table.T:
        known = np.flatnonzero(~np.isnan(column))
        if known.size == 0:
            column[:] = 0.0
            continue
        before = np.searchsorted(known, np.arange(column.size), side="right") - 1  # -1 for the last
        column[:] = np.where(np.isnan(column), column[known[before]], column)
    return settings.domain.convert(table)
