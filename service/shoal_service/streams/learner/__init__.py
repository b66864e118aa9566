"""Learner of one stream: applies the log, publishes views and writes checkpoints. It needs a store only.

It has a thread of its own (`own_thread`), or turns in threads that many learners share (`pool`).

The way of an entry: `thread` reads it from the log; `apply` makes the next state of it; `publisher` shows that state;
`checkpoints` makes it durable. `retry_policy` decides what happens when the store or the machine fails, `dead_letters`
what happens when an entry itself cannot be applied. `window_position` follows the place of the window in the log.
`LocalSource` gives the views to the requests of this process.
"""

from shoal_service.streams.learner.apply import resume, view_of
from shoal_service.streams.learner.checkpoints import state_alone, unpack_checkpoint
from shoal_service.streams.learner.counters import LearnerCounters
from shoal_service.streams.learner.local_source import LocalSource
from shoal_service.streams.learner.pool import LearnerPool
from shoal_service.streams.learner.publisher import ViewSink
from shoal_service.streams.learner.thread import Learner

__all__ = [
    "Learner",
    "LearnerCounters",
    "LearnerPool",
    "LocalSource",
    "ViewSink",
    "resume",
    "state_alone",
    "unpack_checkpoint",
    "view_of",
]
