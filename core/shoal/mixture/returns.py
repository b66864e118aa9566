"""Archive of components that forgetting retired, and the return of a cluster under its old id.

With a half-life, a component that nothing feeds is retired. When its cluster comes back, its points found a newborn
component. Once the newborn has enough mass, the Bayes factor of one cluster against two says whether it is an archived
one: the evidence of the points of both together over that of each alone (`derived.join_gain`). If so, the newborn takes
the old id.

The label terms of other joins are left out. They are the cost of telling two components apart at each point, and here
time does that. With them, a cluster three deviations away took the old id, because they gain a hundred nats.

The archived statistics add nothing to the mixture: only the id and the time of birth come back. Their points were
forgotten, and their mass is part of `pruned_mass`, which keeps decaying. So masses and densities are the same
with and without an archive.

An archived component has the weights that its points had when it last was fed. They say where the cluster was; the
weights at its retirement are smaller by the two half-lives that passed since.
"""

from typing import Any

import numpy as np

from shoal.families import AnyFamily, collapsed_log_marginal, concatenated, join_gain, take
from shoal.mixture.archive import Archive, archive_budget_bytes, chosen, longer, within_limits
from shoal.mixture.join_candidates import gain_ceiling
from shoal.mixture.joins import retire_rows
from shoal.mixture.lineage import Event, revived
from shoal.mixture.state import MixtureState, half_lives_ago, left_since
from shoal.points.arrays import Array, BoolArray
from shoal.process import join_label_gain

LEAST_MASS = 30.0
"""Mass of an archived component, and of a newborn one, from which their gain is taken as proof. It is more than a few
outliers (`refinement.schedule.BORN_MASS`)."""

YOUNG_HALF_LIVES = 2
"""A component is compared with the archive until it is so old."""

LEAST_GAIN = 1e-6
"""Nats that the evidence must gain, as in `moves`."""

MOST_LIFTED = 8.0
"""Most by which weights at retirement are raised: more than two half-lives and a step of the decay."""

_NEAREST = 4
"""Archived components that a newborn is compared with, the nearest ones."""


def with_archived(state: MixtureState, retiring: BoolArray) -> MixtureState:
    """The state with the rows where `retiring` (K,) is True added to the archive, if they have enough mass.

    Comes just before they are pruned. The oldest entries beyond the limits are dropped.
    """
    settings, n = state.settings, state.n_components
    rows = np.flatnonzero(retiring)
    if rows.size == 0 or archive_budget_bytes(settings) == 0 or state.prior is None or not state.frozen:
        return state
    lift = _lift(state)[rows]
    enough = state.stats[0][:n][rows] * lift >= LEAST_MASS
    rows, lift = rows[enough], lift[enough]
    if rows.size == 0:
        return state
    stats = state.prior.scale(take(state.stats, rows), lift)
    new = Archive(state.ids[rows], state.born_at[rows], np.full(rows.size, state.points_seen, dtype=np.int64), stats)
    return state._replace(archive=within_limits(longer(state.archive, new), settings))


def _lift(state: MixtureState) -> Array:
    """(K,) by how much the weights of each component have fallen since it last was fed."""
    left = left_since(state, state.last_seen_at[: state.n_components])
    return np.asarray(np.minimum(1.0 / left, MOST_LIFTED))


def returned_inplace(state: MixtureState) -> tuple[MixtureState, tuple[Event, ...]]:
    """Give the ids of archived components to newborn ones that are the same cluster, the largest gain first.

    A newborn was born after the other was retired, has `LEAST_MASS`, and is at most `YOUNG_HALF_LIVES` old. Its own id
    is retired, with the old one as successor. Rewrites ids and times of birth in the arrays of `state`; nothing else
    of the mixture changes.
    """
    archive, n = state.archive, state.n_components
    if archive is None or state.settings.half_life is None or state.prior is None:
        return state, ()
    born_at, mass = state.born_at[:n], state.stats[0][:n]
    born_from = max(archive.retired_at[0] + 1, half_lives_ago(state, YOUNG_HALF_LIVES))
    if n == 0 or born_at.max() < born_from:  # so it is at most decays
        return state, ()
    newborn = np.flatnonzero((born_at >= born_from) & (mass >= LEAST_MASS))
    found: list[tuple[float, int, int]] = []
    for row in newborn.tolist():
        for entry, gain in return_gains(state.prior, state, archive, row):
            if gain > LEAST_GAIN:
                found.append((-gain, row, entry))
    pairs: list[tuple[int, int]] = []
    for _, row, entry in sorted(found):
        if all(row != matched_row and entry != matched_entry for matched_row, matched_entry in pairs):
            pairs.append((row, entry))
    return _renamed_inplace(state, archive, pairs)


def return_gains(family: AnyFamily, state: MixtureState, archive: Archive, row: int) -> list[tuple[int, float]]:
    """Entries that a newborn may be, the nearest ones, with the logarithm of the Bayes factor for each; none where
    none gains."""
    n_earlier = int(np.searchsorted(archive.retired_at, state.born_at[row]))
    if n_earlier == 0:
        return []
    own, others = take(state.stats, slice(row, row + 1)), take(archive.stats, slice(n_earlier))
    both = concatenated(own, others)
    if _return_ceiling(family, state, both) <= LEAST_GAIN:
        return []
    places = family.positions(both)
    far = np.square(places[1:] - places[0]).sum(axis=1)
    near = np.sort(np.argsort(far, kind="stable")[:_NEAREST])
    both = concatenated(own, take(others, near))
    j = 1 + np.arange(near.size)
    gain = join_gain(family, both, np.zeros_like(j), j, collapsed_log_marginal)
    return [(int(entry), float(g)) for entry, g in zip(near, gain, strict=True)]


def _return_ceiling(family: AnyFamily, state: MixtureState, both: Any) -> float:
    """An upper bound on the log Bayes factors of the newborn, row 0 of `both`, with the other rows.

    Most newborns are new clusters, and are far from all that is archived. The exact values would find that at every
    decay, in ten times as long: half the time of a stream with some clusters in the archive.

    The kernel bounds evidence with label terms, as if the rows of `both` were all there is. So the least label term
    comes off.
    """
    n, concentration = len(both[0]), state.settings.concentration
    fresh = np.zeros(n, dtype=np.bool_)
    fresh[0] = True
    j = np.arange(1, n)
    labels = join_label_gain(both[0], concentration, np.zeros_like(j), j)
    return gain_ceiling(family, both, np.zeros((n, n)), fresh, concentration, np.inf) - float(labels.min())


def _renamed_inplace(
    state: MixtureState, archive: Archive, pairs: list[tuple[int, int]]
) -> tuple[MixtureState, tuple[Event, ...]]:
    """The state with each row under the id of its entry, which leaves the archive, and the events."""
    if not pairs:
        return state, ()
    rows, entries = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    was, back = state.ids[rows].copy(), archive.ids[entries]
    lineage = state.lineage
    for component in back.tolist():
        lineage = revived(lineage, component)
    successors = [(component,) for component in back.tolist()]
    state = retire_rows(state._replace(lineage=lineage), rows, successors, take(state.stats, rows))
    state.ids[rows], state.born_at[rows] = back, archive.born_at[entries]
    events = tuple(
        Event(state.points_seen, "returned", (newborn,), (component,))
        for newborn, component in zip(was.tolist(), back.tolist(), strict=True)
    )
    left = np.ones(len(archive.ids), dtype=np.bool_)
    left[entries] = False
    return state._replace(archive=chosen(archive, left)), events
