"""Store of the streams: the contract, and the SQLite backend. The Redis backend is `shoal_service.store.redis`."""

from shoal_service.store.contract import (
    MAX_ACCESS_KEYS,
    AccessKey,
    Appended,
    Checkpoint,
    DeadLetter,
    Entry,
    EntryKind,
    IdempotencyKey,
    Job,
    References,
    Store,
    StreamRecord,
    Tail,
)
from shoal_service.store.sharing import Blob, Lease, PublishedHead, ReaderRequest, SharedStore, Sharing, View
from shoal_service.store.sqlite import SqliteStore

__all__ = [
    "MAX_ACCESS_KEYS",
    "AccessKey",
    "Appended",
    "Blob",
    "Checkpoint",
    "DeadLetter",
    "Entry",
    "EntryKind",
    "IdempotencyKey",
    "Job",
    "Lease",
    "PublishedHead",
    "ReaderRequest",
    "References",
    "SharedStore",
    "Sharing",
    "SqliteStore",
    "Store",
    "StreamRecord",
    "Tail",
    "View",
]
