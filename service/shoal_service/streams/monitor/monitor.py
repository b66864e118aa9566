"""State of a stream's monitor, the step that an entry of the log makes with it, and its form in a checkpoint."""

import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from shoal.errors import SnapshotDamagedError
from shoal_service.streams.monitor.clusters import (
    KnownClusters,
    check_clusters,
    clusters_from_plain,
    clusters_to_plain,
    no_clusters,
)
from shoal_service.streams.monitor.scores import (
    Scores,
    add_points_inplace,
    new_scores,
    predictive_score,
    scores_from_plain,
    scores_to_plain,
)

if TYPE_CHECKING:
    from shoal.mixture import MixtureState
    from shoal.sequential import AssimilateInfo

Observed: TypeAlias = tuple[tuple[str, dict[str, Any]], ...]
"""Kind and data of each event that a monitor has found in one entry."""

_VERSION = 1
_CRC = struct.Struct("<I")


class Monitor(NamedTuple):
    """Quantities of a stream that are watched beside its mixture."""

    scores: Scores
    clusters: KnownClusters

    @property
    def predictive_score(self) -> tuple[float | None, int]:
        """Mean log density of the newest points before they were learnt, in nats, and their number."""
        return predictive_score(self.scores)

    @property
    def check_due(self) -> int:
        """Points seen at the next check of the clusters. Before that, only the number of points is read of a state,
        beside its settings."""
        return self.clusters.due


def new_monitor() -> Monitor:
    """The monitor of a stream without points, or with another state than before."""
    return Monitor(new_scores(), no_clusters())


def observe_inplace(
    monitor: Monitor, state: "MixtureState", info: "AssimilateInfo | None", *, live: bool, refined: bool
) -> tuple[Monitor, Observed]:
    """Follow an entry: the state after it, and what was predicted of its points before they were learnt.

    `live`: the warm-up was over before it. `refined`: it has adopted a refinement.
    """
    scores, events = _score_inplace(monitor.scores, state, info, live=live)
    clusters, found = check_clusters(monitor.clusters, state, at_once=refined)
    if scores is monitor.scores and clusters is monitor.clusters:
        return monitor, ()
    return Monitor(scores, clusters), (*events, *found)


def _score_inplace(
    scores: Scores, state: "MixtureState", info: "AssimilateInfo | None", *, live: bool
) -> tuple[Scores, Observed]:
    if info is None or not len(info.labels):
        return scores, ()
    settings, n = state.settings, len(info.labels)
    began = state.points_seen - n
    first = 0 if live else min(n, settings.warmup_points - began) if state.frozen else n
    found = []
    for start, stop in ((0, first), (first, n)):
        if start < stop:
            rows = slice(start, stop)
            scores, some = add_points_inplace(
                scores,
                info.scores.log_density[rows],
                info.scores.novelty[rows],
                live=start == first,
                threshold=settings.novelty_threshold,
                level=settings.novelty_rate,
            )
            found += [one._replace(n_points=start + one.n_points) for one in some]
    events = tuple(
        (one.kind, {"offset": began + one.n_points, "before": one.before, "after": one.after}) for one in found
    )
    return scores, events


def encode_monitor(monitor: Monitor) -> bytes:
    """As MessagePack, after its CRC-32."""
    data = msgspec.msgpack.encode([_VERSION, scores_to_plain(monitor.scores), clusters_to_plain(monitor.clusters)])
    return _CRC.pack(zlib.crc32(data)) + data


def decode_monitor(data: bytes) -> Monitor:
    """Inverse of `encode_monitor`. A new monitor for no bytes, as in checkpoints of earlier versions.

    Raises SnapshotDamagedError.
    """
    if not data:
        return new_monitor()
    if data[: _CRC.size] != _CRC.pack(zlib.crc32(data[_CRC.size :])):
        raise SnapshotDamagedError("the monitor of a checkpoint does not match its checksum; use the one before it")
    _, scores, *rest = msgspec.msgpack.decode(data[_CRC.size :])
    return Monitor(scores_from_plain(scores), clusters_from_plain(rest[0]) if rest else no_clusters())
