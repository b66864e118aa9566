"""What one learner has done since the process started: plain counters, written by its thread, read by the metrics."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.sequential import AssimilateInfo


@dataclass
class Tally:
    """Counters of one learner. Replays after a start count again, replays after a dead letter do not."""

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
    refinements_adopted: int = 0
    refinements_not_adopted: int = 0
    """Not worth it, or refused."""
    refinements_set_aside: int = 0
    last_adoption_offset: int = 0
    """Log offset at which the last one was adopted; 0: none since the start."""

    def count(self, n_points: int, info: "AssimilateInfo | None") -> None:
        """Add one entry that was applied; a restore has no `info`."""
        self.entries_applied += 1
        self.points_applied += n_points
        if info is not None:
            self.births += info.n_births
            self.merges += info.n_merges
            self.prunes += info.n_prunes
            self.births_refused += info.births_refused
