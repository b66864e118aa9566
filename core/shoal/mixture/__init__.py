"""The mixture as data: settings, state, bound, moves between states, snapshots for readers, and bytes."""

from shoal.mixture.bound import bound_of_responsibilities, entropy, evidence_bound
from shoal.mixture.joins import prune_inplace, retire_rows
from shoal.mixture.lineage import (
    Event,
    EventKind,
    Lineage,
    Matching,
    Retired,
    carried_ids,
    empty_lineage,
    lineage_budget_bytes,
    match,
    recall,
    retire,
    shared_mass,
    successors_of,
    without_stats,
)
from shoal.mixture.moves import merge_by_bound_inplace, merge_gain, prune_and_merge_inplace
from shoal.mixture.prediction import Component, MixtureSnapshot, Prediction, snapshot_of
from shoal.mixture.settings import StreamSettings
from shoal.mixture.snapshot import from_bytes, to_bytes
from shoal.mixture.state import (
    MixtureState,
    Status,
    compact_inplace,
    component_bytes,
    component_limit,
    grow,
    live_rows,
    next_capacity,
    state_bytes,
)
from shoal.mixture.view_bytes import past_from_bytes, past_to_bytes, view_from_bytes, view_to_bytes

__all__ = [
    "Component",
    "Event",
    "EventKind",
    "Lineage",
    "Matching",
    "MixtureSnapshot",
    "MixtureState",
    "Prediction",
    "Retired",
    "Status",
    "StreamSettings",
    "bound_of_responsibilities",
    "carried_ids",
    "compact_inplace",
    "component_bytes",
    "component_limit",
    "empty_lineage",
    "entropy",
    "evidence_bound",
    "from_bytes",
    "grow",
    "lineage_budget_bytes",
    "live_rows",
    "match",
    "merge_by_bound_inplace",
    "merge_gain",
    "next_capacity",
    "past_from_bytes",
    "past_to_bytes",
    "prune_and_merge_inplace",
    "prune_inplace",
    "recall",
    "retire",
    "retire_rows",
    "shared_mass",
    "snapshot_of",
    "state_bytes",
    "successors_of",
    "to_bytes",
    "view_from_bytes",
    "view_to_bytes",
    "without_stats",
]
