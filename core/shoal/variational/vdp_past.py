"""Starting statistics: what points that are gone left to the components (ARCHITECTURE, section 2).

They stay whole. The entropy that the responsibilities of those points had is recorded by pairs; the bound needs that
of all components together, of which the pairs give a lower bound: joining components one pair after another, the
entropy is the sum over the joins of that between the two groups, each of which is at least that of any pair across. So
the weight of every spanning tree bounds it from below, the heaviest best. (The sum over all pairs is above it.)
"""

from functools import reduce
from typing import Any

import numpy as np

from shoal.families import AnyFamily, take
from shoal.families.natural_statistics import Origin, natural_gain
from shoal.mixture.batch import Past
from shoal.points.arrays import Array
from shoal.variational.spanning_kernel import heaviest_tree
from shoal.variational.vdp_state import Tied


def tied_of(family: AnyFamily, past: Past, origin: Origin) -> Tied:
    """The past as an engine carries it, T rows."""
    mass = np.asarray(past.stats[0], dtype=np.float64)
    pairs = np.zeros((mass.size, mass.size)) if past.entropy_pairs is None else np.array(past.entropy_pairs)
    np.fill_diagonal(pairs, 0.0)
    natural = natural_gain(family, past.stats, origin)
    return Tied(natural, mass, pairs, entropy_below(pairs), np.eye(mass.size, dtype=bool))


def entropy_below(pairs: Array) -> float:
    """A lower bound, nats, on the entropy of responsibilities whose pair entropies (T, T) are given."""
    return float(heaviest_tree(np.ascontiguousarray(pairs, dtype=np.float64)))


def joined_past(family: AnyFamily, past: Past, tied: Tied) -> Any:
    """Statistics of the past by component of `tied`."""
    empty = family.empty_stats(1)
    held = [
        reduce(family.add, (take(past.stats, slice(row, row + 1)) for row in np.flatnonzero(source)), empty)
        for source in tied.source
    ]
    return type(empty)(*(np.concatenate(fields) for fields in zip(*held, strict=True)))
