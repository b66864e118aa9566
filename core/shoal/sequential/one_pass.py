"""The entry to the one-pass kernel: it gives arrays one type, so that each family compiles once."""

from operator import is_
from typing import Any

import numpy as np

from shoal.families.base import AnyFamily
from shoal.families.predictive_cache import (
    as_kernels_read,
    deferred_rows,
    has_kernels,
    kernel_points,
    kernel_prior,
    kernel_views,
)
from shoal.points.arrays import LARGEST_COORDINATE, Array, largest_magnitude
from shoal.points.rows import Points, SparseRows
from shoal.runtime.kernels import kernel
from shoal.sequential.kernel import ENTROPY, NO_PAIRS, OVERLAP, new_memory, sva_pass
from shoal.sequential.passes import Components, PassResult, PassRules, Piece
from shoal.sequential.reference import reference_pass_inplace

LONGEST_BLOCK = 1_024
"""Most rows for which bounds are computed at a time."""

_NO_WEIGHTS = np.zeros(0)

_PAIR_RULES = {"none": NO_PAIRS, "entropy": ENTROPY, "overlap": OVERLAP}


def one_pass_inplace(
    family: AnyFamily,
    rules: PassRules,
    components: Components,
    n_components: int,
    points_seen: int,
    piece: Piece,
    *,
    block_rows: int | None = None,
    bounded: bool = False,
) -> PassResult:
    """Absorb a piece, updating `components`. One call of the kernel.

    The result is the same, to the bit, however the stream is cut into calls and however many rows the arrays have; row
    `n_components` must exist (it serves as the empty component; what rows from there on hold does not matter).

    Components that cannot matter are left unscored where bounds prove it, `block_rows` points at a time (1: all are
    scored): that changes nothing, to the bit.

    Coordinates beyond 1e100 count as 1e100 with their sign (`bounded` says that there are none). A point so far
    out that its log score saturates under every component ties them all; with a prior within a factor of 1e90 of the
    data's scale that cannot happen.
    """
    longest = min(LONGEST_BLOCK if block_rows is None else int(block_rows), max(len(piece.x), 1))
    piece = piece if bounded else piece._replace(x=within_bounds(piece.x))
    return OnePass(family, rules, longest).absorb_inplace(components, n_components, points_seen, piece)


class OnePass:
    """Calls of the kernel for pieces of points, one after another, under one prior and one set of rules.

    Arguments that do not change from piece to piece are made once for the same arrays of components. A stream that
    forgets has a decay after every 32nd of a half-life: of its pieces of some tens of points, each costs as much for
    the arguments as for the points.
    """

    def __init__(self, family: AnyFamily, rules: PassRules, longest_block: int) -> None:
        """`longest_block`: most rows for which bounds are computed at a time, up to `LONGEST_BLOCK`."""
        self._family, self._rules, self._longest_block = family, rules, longest_block
        self._by_kernel = has_kernels(family)
        self._components: Components | None = None
        self._arguments: tuple[Any, ...] = ()

    def absorb_inplace(self, components: Components, n_components: int, points_seen: int, piece: Piece) -> PassResult:
        """See `one_pass_inplace`; coordinates are at most 1e100."""
        if self._by_kernel:
            return PassResult(*sva_pass(*self.kernel_arguments(components, n_components, points_seen, piece)))
        return reference_pass_inplace(self._family, self._rules, components, n_components, points_seen, piece)

    def kernel_arguments(
        self, components: Components, n_components: int, points_seen: int, piece: Piece
    ) -> tuple[Any, ...]:
        """What the kernel is called with: of these types for every stream with the same predictive cache."""
        points = kernel_points(self._family, piece.x)
        if self._components is None or not all(map(is_, components, self._components)):
            self._components = components
            self._arguments = self._arguments_for(components, points.shape[1])
        own = _NO_WEIGHTS if piece.weights is None else np.require(piece.weights, np.float64, ["C", "W"])
        prior, records, settings, memory = self._arguments
        # for each piece: what a family has copied for its views is old after a decay or a join
        stats, cache, empty = kernel_views(self._family, components.stats, components.cache, prior.empty)
        arrays = (points, own, (empty, prior.constants), stats, cache, records)
        novelties = np.empty(len(piece.x)) if piece.novelties is None else piece.novelties
        written = (piece.labels, piece.log_density, novelties)
        return *arrays, settings, n_components, points_seen, written, memory

    def _arguments_for(self, components: Components, n_columns: int) -> tuple[Any, ...]:
        """Prior, records of components, settings and memory."""
        monitor, rules, capacity = components.monitor, self._rules, components.stats[0].shape[0]
        return (
            kernel_prior(self._family),
            (
                components.born_at,
                components.last_seen_at,
                components.pairs,
                monitor.base,
                monitor.spread,
                monitor.level,
                monitor.collected,
            ),
            (
                float(rules.concentration),
                float(rules.birth_threshold),
                float(rules.responsibility_floor),
                _PAIR_RULES[rules.pair_rule],
                int(rules.max_components),
                self._longest_block,
            ),
            new_memory(capacity, n_columns, self._longest_block, deferred_rows(self._family, capacity)),
        )


def within_bounds(x: Points) -> Points:
    """Tables with bounded coordinates; a copy only where it must be."""
    if isinstance(x, np.ndarray) and largest_magnitude(x) > LARGEST_COORDINATE:
        return np.clip(x, -LARGEST_COORDINATE, LARGEST_COORDINATE)
    return x


@kernel()
def standardise_into(x: Array, location: Array, scale: Array, out: Array) -> None:
    """Write (x - location) / scale, x (N, D), of magnitude at most 1e100, into `out` (N, D)."""
    for i in range(x.shape[0]):
        for b in range(x.shape[1]):
            z = (x[i, b] - location[b]) / scale[b]
            out[i, b] = min(max(z, -LARGEST_COORDINATE), LARGEST_COORDINATE)


def standardised_by_kernel(x: Points, location: Array, scale: Array) -> Points:
    """(x - location) / scale, x (N, D), of magnitude at most 1e100; sparse rows, which are of no located domain, as
    they are."""
    if isinstance(x, SparseRows):
        return x
    z = np.empty(x.shape)
    standardise_into(*standardise_arguments(x, location, scale, z))
    return z


def standardise_arguments(x: Array, location: Array, scale: Array, out: Array) -> tuple[Any, ...]:
    """What the kernel is called with: of these types whatever the arrays."""
    return as_kernels_read(x), as_kernels_read(location), as_kernels_read(scale), out
