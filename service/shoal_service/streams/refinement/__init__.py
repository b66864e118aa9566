"""Refinements: batch inference over the window of a stream, run by a child process and adopted through the log.

The way of a refinement: `trigger` notices that one is due, or `service` receives a request, and `records` keeps it in
the store as a job. A `worker` claims it (`job_lease`), writes the state and the rows of the window (`window_rows`) to
files, and has a `child` process refine them (`process` is the parent's side). The result goes into the log as an entry.
The learner reads what the entry needs and applies it (`adopt`); `trigger` records the outcome.
"""

from shoal_service.streams.refinement.adopt import AdoptionInputs, AdoptionOutcome, apply_adoption_inplace, read_inputs
from shoal_service.streams.refinement.records import Refinement, RefinementRecords
from shoal_service.streams.refinement.service import RefinementService
from shoal_service.streams.refinement.trigger import AdoptionCounters, RefinementTrigger
from shoal_service.streams.refinement.window_rows import (
    batches_of,
    entries_between,
    rows_of_window,
    with_window,
)
from shoal_service.streams.refinement.worker import RefinementCounters, RefinementWorker

__all__ = [
    "AdoptionCounters",
    "AdoptionInputs",
    "AdoptionOutcome",
    "Refinement",
    "RefinementCounters",
    "RefinementRecords",
    "RefinementService",
    "RefinementTrigger",
    "RefinementWorker",
    "apply_adoption_inplace",
    "batches_of",
    "entries_between",
    "read_inputs",
    "rows_of_window",
    "with_window",
]
