"""Where streams are kept: the contract, and its backends."""

from shoal_service.store.base import (
    Appended,
    Checkpoint,
    DeadLetter,
    Entry,
    EntryKind,
    IdempotencyKey,
    Job,
    Needs,
    Store,
    StreamRecord,
    Tail,
)
from shoal_service.store.memory import MemoryStore
from shoal_service.store.sqlite import SqliteStore

__all__ = [
    "Appended",
    "Checkpoint",
    "DeadLetter",
    "Entry",
    "EntryKind",
    "IdempotencyKey",
    "Job",
    "MemoryStore",
    "Needs",
    "SqliteStore",
    "Store",
    "StreamRecord",
    "Tail",
]
