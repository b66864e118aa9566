"""The door to the one-pass kernel: makes the types of arrays canonical, so that each family compiles once."""

from typing import Any, Literal, NamedTuple

import numpy as np

from shoal.families import FAMILIES
from shoal.families.base import AnyFamily
from shoal.families.capabilities import has_scatter
from shoal.families.predictive_cache import (
    empty_work,
    example_priors,
    has_kernels,
    kernel_points,
    kernel_prior,
    renewal,
)
from shoal.mixture.join_screen import ceiling_call
from shoal.mixture.marks import Monitor, empty_monitor
from shoal.mixture.predictor import predict_call
from shoal.points.arrays import LARGEST_COORDINATE, Array, IntArray, largest_magnitude
from shoal.points.rows import Points
from shoal.sequential.alone import alone_calls
from shoal.sequential.calls import Calls, call_all
from shoal.sequential.forgetting import decay_call
from shoal.sequential.plain_pass import plain_pass
from shoal.sequential.responsibilities_kernel import ENTROPY, NO_PAIRS, OVERLAP
from shoal.sequential.standardise import standardise_arguments
from shoal.sequential.standardise_kernel import standardise_into
from shoal.sequential.sva_kernel import sva_pass

LONGEST_BLOCK = 1_024
"""Most rows for which bounds are worked out at a time."""

_PAIR_RULES = {"none": NO_PAIRS, "entropy": ENTROPY, "overlap": OVERLAP}


class PassRules(NamedTuple):
    """The settings that algorithm 1 itself reads."""

    concentration: float
    """alpha > 0."""
    birth_threshold: float
    """Responsibility under the prior above which a point founds a component, in (0, 1)."""
    responsibility_floor: float
    """Smaller responsibilities are dropped and the rest renormalised, in [0, 0.1]; what is below 4e-18 always is."""
    pair_rule: Literal["none", "entropy", "overlap"]
    max_components: int
    """>= 1."""


NO_MONITOR = empty_monitor(0)


class Components(NamedTuple):
    """The arrays that a pass reads and writes: C rows, writable and C-ordered, the first n_components in use."""

    stats: Any
    """The family's statistics."""
    work: Any
    """The working form, `families.working`."""
    born_at: IntArray  # (C,) points seen at birth, the founding point included
    last_seen_at: IntArray  # (C,) points seen when the component last was the best of a point, that point included
    pairs: Array  # (C, C) symmetric pair sums, both triangles, diagonal zero; (0, 0) under the rule `none`
    monitor: Monitor = NO_MONITOR
    """How well components fit; no rows where nothing is watched."""


class PassResult(NamedTuple):
    """How far a pass came."""

    n_done: int
    """Rows of x taken in: all, unless every row of the arrays is in use; then grow them and go on with x[n_done:]."""
    n_components: int
    n_refused: int
    """Births refused because there were `max_components`."""
    first_refused: int
    """Row of x whose birth was the first refused, -1 for none."""
    first_misfit: int = -1
    """Row of x at which the level of a watched component first stood above `misfit_kernel.MISFIT`, -1 for none."""


def one_pass_inplace(
    family: AnyFamily,
    rules: PassRules,
    components: Components,
    n_components: int,
    points_seen: int,
    x: Points,
    labels: IntArray,
    log_density: Array,
    *,
    block_rows: int | None = None,
    bounded: bool = False,
) -> PassResult:
    """Take in standardised points x (N, D) in order, updating `components`. One call of the kernel.

    The result is the same, to the bit, however the stream is cut into calls and however many rows the arrays have; row
    `n_components` must exist (it serves as the empty component; what rows from there on hold does not matter).

    Written for the rows taken in: `labels` (N,) int64, the component (row) of largest final responsibility, a newborn
    counted, ties to the lowest; `log_density` (N,), log(sum_k w_k p_k + alpha p_0) before the point was taken in,
    from which log(alpha + sum w) is still to be subtracted.

    Components that cannot matter are left unscored where bounds prove it, `block_rows` points at a time (1: all are
    scored): that changes nothing, to the bit.

    Coordinates beyond 1e100 are taken as 1e100 with their sign (`bounded` says that there are none). A point so far
    out that its log score saturates under every component ties them all; with a prior within a factor of 1e90 of the
    data's scale that cannot happen.
    """
    if not has_kernels(family):
        return plain_pass_inplace(family, rules, components, n_components, points_seen, x, labels, log_density)
    given = (family, rules, components, n_components, points_seen, x, labels, log_density, block_rows, bounded)
    return PassResult(*sva_pass(*pass_arguments(*given)))


def plain_pass_inplace(
    family: AnyFamily,
    rules: PassRules,
    components: Components,
    n_components: int,
    points_seen: int,
    x: Points,
    labels: IntArray,
    log_density: Array,
) -> PassResult:
    """`one_pass_inplace` in NumPy, with no kernel called: the same to rounding, wherever calls and arrays are cut."""
    return PassResult(*plain_pass(family, rules, components, n_components, points_seen, x, labels, log_density))


def pass_arguments(
    family: AnyFamily,
    rules: PassRules,
    components: Components,
    n_components: int,
    points_seen: int,
    x: Points,
    labels: IntArray,
    log_density: Array,
    block_rows: int | None = None,
    bounded: bool = False,
) -> tuple[Any, ...]:
    """What `one_pass_inplace` calls the kernel with: of these types for every stream of a working form."""
    prior = kernel_prior(family)
    return (
        kernel_points(family, x if bounded else within_bounds(x)),
        prior.empty,
        prior.constants,
        components.stats,
        components.work,
        components.born_at,
        components.last_seen_at,
        components.pairs,
        components.monitor.base,
        components.monitor.spread,
        components.monitor.level,
        components.monitor.collected,
        n_components,
        points_seen,
        float(rules.concentration),
        float(rules.birth_threshold),
        float(rules.responsibility_floor),
        _PAIR_RULES[rules.pair_rule],
        int(rules.max_components),
        LONGEST_BLOCK if block_rows is None else int(block_rows),
        labels,
        log_density,
    )


def within_bounds(x: Points) -> Points:
    """Tables with bounded coordinates; a copy only where it must be."""
    if isinstance(x, np.ndarray) and largest_magnitude(x) > LARGEST_COORDINATE:
        return np.clip(x, -LARGEST_COORDINATE, LARGEST_COORDINATE)
    return x


def new_components(family: AnyFamily, rows: int, pair_rule: str = "none") -> Components:
    """Arrays of `rows` rows with no component in use."""
    side = 0 if pair_rule == "none" else rows
    zeros = np.zeros(rows, dtype=np.int64)
    return Components(family.empty_stats(rows), empty_work(family, rows), zeros, zeros.copy(), np.zeros((side, side)))


def warm_kernels() -> None:
    """Compile, or load from the disk cache, every kernel there is, so that the first points of a stream do not wait.

    Cold: about a minute, a third of it for `gaussian`; from the cache a few tenths of a second.
    """
    for kind in FAMILIES.values():
        for family in example_priors(kind):
            warm_family(family)
    call_all(alone_calls())


def warm_family(family: AnyFamily) -> None:
    """Compile, or load from the disk cache, the kernels that streams of this family's working form call."""
    call_all(kernel_calls(family))


def kernel_calls(family: AnyFamily) -> Calls:
    """A call of each kernel that streams of this family make, of the types that they make it with, on a point of
    zeros."""
    standard = standardise_arguments(np.zeros((1, 1)), np.zeros(1), np.ones(1), np.empty((1, 1)))
    calls: Calls = [(standardise_into, standard)]
    if not has_kernels(family):
        return calls
    rules, x = PassRules(1.0, 0.5, 1e-3, "none", 2), np.zeros((1, family.n_features))
    out = (np.zeros(1, dtype=np.int64), np.zeros(1))
    calls.append((sva_pass, pass_arguments(family, rules, new_components(family, 2), 0, 0, x, *out)))
    predict = predict_call(family)
    screen = ceiling_call(family, family.empty_stats(2), np.zeros((2, 2)), np.ones(2, dtype=np.bool_), 1.0, 0.0)
    calls += [call for call in (predict, screen) if call is not None]
    held = family.empty_stats(1), empty_work(family, 1)
    if has_scatter(family):
        calls.append(decay_call(held[0]))
    renew = renewal(family, *held, 1)
    return calls if renew is None else [*calls, renew]
