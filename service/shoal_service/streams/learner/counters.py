"""Counters of one learner since the process started: written by its thread, read by the metrics."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal_service.streams.monitor import ScoreHistograms
from shoal_service.streams.refinement import AdoptionCounters

if TYPE_CHECKING:
    from shoal.sequential import AssimilateInfo


@dataclass
class LearnerCounters:
    """Counters of one learner. A replay after a start counts again; a replay after a dead letter does not."""

    points_applied: int = 0
    entries_applied: int = 0
    births: int = 0
    merges: int = 0
    prunes: int = 0
    births_refused: int = 0
    dead_letters: int = 0
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    checkpoint_bytes: int = 0
    """Size of the last checkpoint."""
    publications: int = 0
    refinements: AdoptionCounters = field(default_factory=AdoptionCounters)
    scores: ScoreHistograms = field(default_factory=ScoreHistograms)

    def count(self, n_points: int, info: "AssimilateInfo | None") -> None:
        """Add one applied entry. A restore has no `info`."""
        self.entries_applied += 1
        self.points_applied += n_points
        if info is not None:
            self.births += info.n_births
            self.merges += info.n_merges
            self.prunes += info.n_prunes
            self.births_refused += info.births_refused
            if n_points:
                self.scores.add(info.scores.log_density, info.scores.novelty)
