"""Monitor of a stream: quantities that are watched beside its components. A function of the log, kept in checkpoints.

`scores` follows the log density and the novelty of the points before they were learnt, `clusters` the groups of
components.
"""

from shoal_service.streams.monitor.histograms import LOG_DENSITY_EDGES, NOVELTY_EDGES, Buckets, ScoreHistograms
from shoal_service.streams.monitor.monitor import (
    Monitor,
    Observed,
    decode_monitor,
    encode_monitor,
    new_monitor,
    observe_inplace,
)

__all__ = [
    "LOG_DENSITY_EDGES",
    "NOVELTY_EDGES",
    "Buckets",
    "Monitor",
    "Observed",
    "ScoreHistograms",
    "decode_monitor",
    "encode_monitor",
    "new_monitor",
    "observe_inplace",
]
