"""Steps shared by all changes of identity: join two rows, retire rows to the lineage, record events.

Bounds on the running pair sums of a joined component (ab) with any third c (all sums over the same points):

* E (rule `entropy`): E_kl = sum_i h(r_ik, r_il) with h(u, v) = (u + v) log(u + v) - u log u - v log v, which is concave
  and homogeneous. Hence max(E_ac, E_bc) <= E_(ab)c <= min(E_ac + E_bc, h(w_a + w_b, w_c)). The second cap is Jensen's
  inequality. Without it, components that share their points in constant proportion would stay apart, because the sums
  count twice. The upper value is stored: the gain of a later join is then understated, and an accepted join never
  lowers the bound (for families of counts, whose gains are estimates, see `moves.merge_gain`).
* M (rule `overlap`): max(M_ac, M_bc) <= M_(ab)c <= min(M_ac + M_bc, w_a + w_b, w_c), since min(a + b, c) has the same
  bounds at every point. The lower value is stored: the distance (w_(ab) + w_c - 2M) / i is then overstated, and a later
  merge would also happen with stored responsibilities.

Both sums replace the past responsibilities that Lin (2013) section 3.3 stores (ERRATA 5.11). Masses and centred moments
add. The prior is in neither, so it counts once (ERRATA 5.12).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy

from shoal.families import AnyFamily, concatenated, take
from shoal.mixture.lineage import Event, lineage_budget_bytes, retire
from shoal.mixture.settings import PairRule
from shoal.mixture.state import MixtureState, compact_inplace, stats_at_offsets
from shoal.mixture.stats_at_offset import MisfitMonitor, with_rows_pruned
from shoal.points.arrays import Array, BoolArray


class Join(NamedTuple):
    """A component absorbed by another."""

    survivor: int
    """Row that stays, with its id."""
    absorbed: int
    """Row that is removed; it holds zeros after the join."""
    stats: Any
    """Final statistics of the absorbed component, one row."""


def survivor_first(state: MixtureState, a: int, b: int) -> tuple[int, int]:
    """The rows (survivor, absorbed) of a pair: the heavier survives; among equals the older, then the smaller id."""

    def rank(row: int) -> tuple[float, int, int]:
        return -float(state.stats[0][row]), int(state.born_at[row]), int(state.ids[row])

    return (a, b) if rank(a) <= rank(b) else (b, a)


def join_inplace(state: MixtureState, a: int, b: int) -> Join:
    """Join rows a and b in the arrays of `state`.

    The absorbed row is set to zeros; `finish_joins_inplace` drops it.
    """
    assert state.prior is not None, "components exist before there is a prior"
    survivor, absorbed = survivor_first(state, a, b)
    final = take(state.stats, slice(absorbed, absorbed + 1))
    final = type(final)(*(field.copy() for field in final))
    rule = state.settings.pair_rule
    _join_rows_inplace(state.prior, state.stats, survivor, absorbed)
    join_pairs_inplace(state.pairs, rule, state.stats[0], survivor, absorbed)
    for kept in stats_at_offsets(state):
        _join_rows_inplace(state.prior, kept.stats, survivor, absorbed)
        join_pairs_inplace(kept.pairs, rule, kept.stats[0], survivor, absorbed)
    state.last_seen_at[survivor] = max(state.last_seen_at[survivor], state.last_seen_at[absorbed])
    if state.monitor is not None:
        _join_monitor_inplace(state.monitor, survivor, absorbed)
    return Join(survivor, absorbed, final)


def _join_rows_inplace(family: AnyFamily, stats: Any, survivor: int, absorbed: int) -> None:
    both = (take(stats, slice(row, row + 1)) for row in (survivor, absorbed))
    joined = family.add(*both)
    for field, row in zip(stats, joined, strict=True):
        field[survivor] = row[0]
        field[absorbed] = 0.0


def _join_monitor_inplace(monitor: MisfitMonitor, survivor: int, absorbed: int) -> None:
    """Keep the survivor's monitor; it counts as placed by a refinement if either was."""
    monitor.settled_at[survivor] = max(monitor.settled_at[survivor], monitor.settled_at[absorbed])
    for field in monitor:
        field[absorbed] = 0


def join_pairs_inplace(pairs: Array, rule: PairRule, mass: Array, survivor: int, absorbed: int) -> None:
    """Set the survivor's pair sums (C, C) to the bounds above; `mass` (C,) already has the joint mass."""
    if rule == "none":
        return
    if rule == "entropy":
        ceiling = mixing_entropy(mass[survivor], mass)
        joined = np.minimum(pairs[survivor] + pairs[absorbed], ceiling)
    else:
        joined = np.maximum(pairs[survivor], pairs[absorbed])
    joined[[survivor, absorbed]] = 0.0
    pairs[survivor] = pairs[:, survivor] = joined
    pairs[absorbed] = pairs[:, absorbed] = 0.0


def mixing_entropy(u: float, v: Array) -> Array:
    """h(u, v), v (C,): an upper bound on E between components of these masses, nats; >= 0 despite rounding."""
    return np.asarray(np.maximum(xlogy(u + v, u + v) - xlogy(u, u) - xlogy(v, v), 0.0))


def finish_joins_inplace(state: MixtureState, joins: list[Join]) -> tuple[MixtureState, tuple[Event, ...]]:
    """Retire the absorbed rows in order, drop them, and return the events."""
    if not joins:
        return state, ()
    events = []
    for join in joins:
        survivor, absorbed = int(state.ids[join.survivor]), int(state.ids[join.absorbed])
        events.append(Event(state.points_seen, "merged", (survivor, absorbed), (survivor,)))
    stats = concatenated(*(join.stats for join in joins))
    rows = [join.absorbed for join in joins]
    state = retire_rows(state, rows, [event.children for event in events], stats)
    keep = np.ones(state.n_components, dtype=np.bool_)
    keep[rows] = False
    return compact_inplace(state, keep), tuple(events)


def retire_rows(state: MixtureState, rows: Any, successors: Sequence[tuple[int, ...]], stats: Any) -> MixtureState:
    """The state with `rows` recorded in the lineage, at the present offset; the rows themselves stay."""
    rows = np.asarray(rows, dtype=np.int64)
    past = retire(
        state.lineage,
        ids=state.ids[rows],
        born_at=state.born_at[rows],
        last_seen_at=state.last_seen_at[rows],
        retired_at=state.points_seen,
        successors=successors,
        stats=stats,
        budget_bytes=lineage_budget_bytes(state.settings),
    )
    return state._replace(lineage=past)


def prune_inplace(state: MixtureState, pruned: BoolArray) -> tuple[MixtureState, tuple[Event, ...]]:
    """Drop the rows where `pruned` (K,) is True; their mass is added to `pruned_mass` (ERRATA 5.13).

    At least one component stays: if all would go, the heaviest (first of equals).
    """
    pruned = spared(state, pruned)
    rows = np.flatnonzero(pruned)
    if rows.size == 0:
        return state, ()
    events = tuple(Event(state.points_seen, "pruned", (int(state.ids[row]),), ()) for row in rows)
    state = retire_rows(state, rows, [()] * rows.size, take(state.stats, rows))
    lost = float(np.sum(state.stats[0][rows]))
    past, mid = (None if kept is None else with_rows_pruned(kept, pruned) for kept in (state.past, state.mid))
    state = compact_inplace(state._replace(past=past, mid=mid), ~pruned)
    return state._replace(pruned_mass=state.pruned_mass + lost), events


def spared(state: MixtureState, pruned: BoolArray) -> BoolArray:
    """The rows to prune (K,), without the heaviest component if all would go."""
    if not pruned.size or not pruned.all():
        return pruned
    pruned = pruned.copy()
    pruned[state.stats[0][: state.n_components].argmax()] = False
    return pruned
