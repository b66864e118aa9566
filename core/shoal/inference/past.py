"""The past of each component: the points that have left the window, as statistics that stay whole.

The responsibilities of those points are gone. A search moves the past with its components: a join adds two pasts, a
split gives the past to one child or shares it between both. The bound counts the entropy of the past's
responsibilities, of which the entropies between pairs of components are recorded:

* A join of a and b lowers it by the recorded E_ab.
* A split in proportion s : 1 - s raises it by n h(s), n being the mass that is shared.

Both changes are exact for exact records. Where a record is an upper value, the bound falls by more than it needs to.
The pairs also bound the entropy at the start (`entropy_below`).
"""

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.special import xlogy

from shoal.families import AnyFamily, concatenated, take
from shoal.mixture import Past, mixing_entropy
from shoal.points.arrays import Array, IntArray


class PastStats(NamedTuple):
    """The past of T components; zeros where a component has none."""

    stats: Any
    """Statistics, T rows."""
    pairs: Array  # (T, T) entropy between pairs, nats; symmetric, diagonal zero
    entropy: float  # of all of them together: a lower bound, nats
    share: Array  # (T, T0) share of the past of each of the T0 components at the start that a component has

    @property
    def mass(self) -> Array:
        """(T,)."""
        mass: Array = self.stats[0]
        return mass


def past_of(given: Past) -> PastStats:
    """The past as a caller gives it."""
    mass = np.asarray(given.stats[0], dtype=np.float64)
    pairs = np.zeros((mass.size, mass.size)) if given.entropy_pairs is None else np.array(given.entropy_pairs)
    np.fill_diagonal(pairs, 0.0)
    return PastStats(given.stats, pairs, entropy_below(pairs), np.eye(mass.size))


def no_past(family: AnyFamily, n_components: int, n_start: int = 0) -> PastStats:
    """The past of components that have none."""
    pairs = np.zeros((n_components, n_components))
    return PastStats(family.empty_stats(n_components), pairs, 0.0, np.zeros((n_components, n_start)))


def entropy_below(pairs: Array) -> float:
    """A lower bound, nats, on the entropy of responsibilities whose pair entropies (T, T) are given.

    Join the components one pair of groups after another. The entropy is the sum over the joins of that between the two
    groups, and each is at least that of any pair across. So the weight of every spanning tree is a lower bound, and
    the heaviest is the best. (The sum over all pairs exceeds the entropy.)
    """
    return -float(minimum_spanning_tree(-np.asarray(pairs, dtype=np.float64)).sum()) + 0.0


def join_past(family: AnyFamily, past: PastStats, a: int, b: int) -> PastStats:
    """The past of b joined to that of a; row b goes.

    Pair entropies follow the rule of `mixture.joins`, the upper value. The entropy falls by E_ab.
    """
    both = family.add(take(past.stats, [a]), take(past.stats, [b]))
    stats = type(past.stats)(*(field.copy() for field in past.stats))
    for field, row in zip(stats, both, strict=True):
        field[a] = row[0]
    pairs, share = past.pairs.copy(), past.share.copy()
    upper = np.minimum(pairs[a] + pairs[b], mixing_entropy(stats[0][a], stats[0]))
    pairs[a] = pairs[:, a] = upper
    pairs[a, a] = 0.0
    share[a] += share[b]
    keep = np.arange(len(pairs)) != b
    entropy = max(past.entropy - float(past.pairs[a, b]), 0.0)
    return PastStats(take(stats, keep), pairs[np.ix_(keep, keep)], entropy, share[keep])


def split_past(family: AnyFamily, past: PastStats, row: int, first: float) -> PastStats:
    """The past of `row` divided: the share `first` (0..1) stays, the rest goes to a new row at the end.

    Each of its points is divided alike. The entropy between a child and a third component j is at most that of the
    parent with j, and at most what the masses allow.
    """
    if first in (0.0, 1.0):
        grown = _with_row(family, past, None)
        if first == 0.0:
            for values in (*grown.stats, grown.pairs, grown.pairs.T, grown.share):
                values[[row, -1]] = values[[-1, row]]
        return grown
    grown = _with_row(family, past, row)
    factor = np.ones(len(grown.pairs))
    factor[row], factor[-1] = first, 1.0 - first
    stats, share = family.scale(grown.stats, factor), grown.share * factor[:, None]
    between = float(past.mass[row]) * binary_entropy(first)
    pairs = grown.pairs
    for child in (row, len(pairs) - 1):
        pairs[child] = pairs[:, child] = np.minimum(pairs[child], mixing_entropy(stats[0][child], stats[0]))
        pairs[child, child] = 0.0
    pairs[row, -1] = pairs[-1, row] = between
    return PastStats(stats, pairs, past.entropy + between, share)


def _with_row(family: AnyFamily, past: PastStats, row: int | None) -> PastStats:
    """The past with one row more at the end: a copy of `row`, or an empty one."""
    n = len(past.pairs)
    stats = take(past.stats, np.append(np.arange(n), 0 if row is None else row))
    pairs, share = np.zeros((n + 1, n + 1)), np.zeros((n + 1, past.share.shape[1]))
    pairs[:n, :n], share[:n] = past.pairs, past.share
    if row is None:
        return PastStats(family.scale(stats, np.append(np.ones(n), 0.0)), pairs, past.entropy, share)
    pairs[n, :n] = pairs[:n, n] = past.pairs[row]
    share[n] = past.share[row]
    return PastStats(stats, pairs, past.entropy, share)


def stats_by_share(family: AnyFamily, past: PastStats, given: Past) -> tuple[Any, IntArray]:
    """Statistics (T rows) of the past by component, and the row (T0,) that holds the larger share of each given one.

    They are computed from the given statistics again, so that moves leave no rounding in them.
    """
    if np.all((past.share == 0.0) | (past.share == 1.0)) and np.all(past.share.sum(axis=1) == 1.0):
        return take(given.stats, past.share.argmax(axis=1)), np.asarray(past.share.argmax(axis=0), dtype=np.int64)
    return summed_shares(family, given.stats, past.share), np.asarray(past.share.argmax(axis=0), dtype=np.int64)


def summed_shares(family: AnyFamily, stats: Any, share: Array) -> Any:
    """Statistics (T rows), each the sum of shares (T, T0) of the rows of `stats` (T0 rows)."""
    parts, empty = [take(stats, [i]) for i in range(len(stats[0]))], family.empty_stats(1)
    return concatenated(
        *(reduce(family.add, (family.scale(parts[i], own[i]) for i in np.flatnonzero(own)), empty) for own in share)
    )


def binary_entropy(p: float) -> float:
    """-p log p - (1 - p) log(1 - p), nats."""
    return -float(xlogy(p, p) + xlogy(1.0 - p, 1.0 - p))
