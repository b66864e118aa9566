"""The past of each component while a search moves components about: it stays whole, but for splits that share it.

Where the entropy of responsibilities is concerned: a join of a and b lowers that of the past by E_ab; a split in
proportion s : 1 - s raises it by n h(s), n being the mass shared. Both are exact for any responsibilities, so that the
bound changes by what the moves say, whatever the constant that it began with.
"""

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy

from shoal.families import AnyFamily, take
from shoal.mixture.batch import Past
from shoal.points.arrays import Array, IntArray
from shoal.variational.vdp_past import entropy_below


class Held(NamedTuple):
    """What points that have left the window gave to each of T components (zeros: nothing)."""

    stats: Any
    """Statistics, T rows."""
    pairs: Array  # (T, T) entropy between pairs, nats; symmetric, diagonal zero
    entropy: float  # of all of them together, as far as it is known: a lower bound, nats
    share: Array  # (T, T0) which part of the past of each component of the start a component has

    @property
    def mass(self) -> Array:
        """(T,)."""
        mass: Array = self.stats[0]
        return mass


def held_of(past: Past) -> Held:
    """The past as a problem gives it."""
    mass = np.asarray(past.stats[0], dtype=np.float64)
    pairs = np.zeros((mass.size, mass.size)) if past.entropy_pairs is None else np.array(past.entropy_pairs)
    np.fill_diagonal(pairs, 0.0)
    return Held(past.stats, pairs, entropy_below(pairs) + 0.0, np.eye(mass.size))


def _grown(family: AnyFamily, held: Held, row: int | None) -> Held:
    """The past with another row at the end, that of `row` once more or none."""
    n = len(held.pairs)
    stats = take(held.stats, np.append(np.arange(n), 0 if row is None else row))
    pairs, share = np.zeros((n + 1, n + 1)), np.zeros((n + 1, held.share.shape[1]))
    pairs[:n, :n], share[:n] = held.pairs, held.share
    if row is None:
        return Held(family.scale(stats, np.append(np.ones(n), 0.0)), pairs, held.entropy, share)
    pairs[n, :n] = pairs[:n, n] = held.pairs[row]
    share[n] = held.share[row]
    return Held(stats, pairs, held.entropy, share)


def joined(family: AnyFamily, held: Held, a: int, b: int) -> Held:
    """The past with that of b joined to that of a; row b goes. Pairs by the rule of `mixture.joins`, the upper value.

    The entropy falls by E_ab, exactly where E_ab is exact and by more where it is an upper value: it stays a bound.
    """
    both = family.add(take(held.stats, [a]), take(held.stats, [b]))
    stats = type(held.stats)(*(field.copy() for field in held.stats))
    for field, row in zip(stats, both, strict=True):
        field[a] = row[0]
    pairs, share = held.pairs.copy(), held.share.copy()
    upper = np.minimum(pairs[a] + pairs[b], mixing_entropy(stats[0][a], stats[0]))
    pairs[a] = pairs[:, a] = upper
    pairs[a, a] = 0.0
    share[a] += share[b]
    keep = np.arange(len(pairs)) != b
    entropy = max(held.entropy - float(held.pairs[a, b]), 0.0)
    return Held(take(stats, keep), pairs[np.ix_(keep, keep)], entropy, share[keep])


def shared(family: AnyFamily, held: Held, row: int, first: float) -> Held:
    """The past with that of `row` divided, `first` (0..1) staying and the rest going to a new row at the end.

    Every point of it is divided alike. Between a child and a third component j the entropy is at most what the parent
    had with j, and at most what the masses allow.
    """
    if first in (0.0, 1.0):
        grown = _grown(family, held, None)
        if first == 0.0:
            for values in (*grown.stats, grown.pairs, grown.pairs.T, grown.share):
                values[[row, -1]] = values[[-1, row]]
        return grown
    grown = _grown(family, held, row)
    factor = np.ones(len(grown.pairs))
    factor[row], factor[-1] = first, 1.0 - first
    stats, share = family.scale(grown.stats, factor), grown.share * factor[:, None]
    between = float(held.mass[row]) * binary_entropy(first)
    pairs = grown.pairs
    for child in (row, len(pairs) - 1):
        pairs[child] = pairs[:, child] = np.minimum(pairs[child], mixing_entropy(stats[0][child], stats[0]))
        pairs[child, child] = 0.0
    pairs[row, -1] = pairs[-1, row] = between
    return Held(stats, pairs, held.entropy + between, share)


def released(family: AnyFamily, held: Held, past: Past) -> tuple[Any, IntArray]:
    """Statistics of the past by component (T rows), taken anew from the problem's, and where each of its rows went."""
    if np.all((held.share == 0.0) | (held.share == 1.0)) and np.all(held.share.sum(axis=1) == 1.0):  # none is in parts
        return take(past.stats, held.share.argmax(axis=1)), np.asarray(held.share.argmax(axis=0), dtype=np.int64)
    parts = [take(past.stats, [i]) for i in range(len(past.stats[0]))]
    empty = family.empty_stats(1)
    rows = [reduce(family.add, (family.scale(parts[i], s[i]) for i in np.flatnonzero(s)), empty) for s in held.share]
    stats = type(empty)(*(np.concatenate(fields) for fields in zip(*rows, strict=True)))
    return stats, np.asarray(held.share.argmax(axis=0), dtype=np.int64)


def mixing_entropy(u: float, v: Array) -> Array:
    """(u + v) log(u + v) - u log u - v log v, >= 0: what the pair entropy of masses u and v (T,) cannot exceed."""
    return np.asarray(np.maximum(xlogy(u + v, u + v) - xlogy(u, u) - xlogy(v, v), 0.0))


def binary_entropy(p: float) -> float:
    """-p log p - (1 - p) log(1 - p), nats."""
    return -float(xlogy(p, p) + xlogy(1.0 - p, 1.0 - p))
