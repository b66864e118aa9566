"""Where streams are kept: the contract, and its backends."""

from shoal_service.store.base import (
    Appended,
    Checkpoint,
    DeadLetter,
    Entry,
    EntryKind,
    IdempotencyKey,
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
    "MemoryStore",
    "SqliteStore",
    "Store",
    "StreamRecord",
    "Tail",
]
