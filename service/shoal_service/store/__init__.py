"""Store of the streams: the contract, and the SQLite backend. The Redis backend is `shoal_service.store.redis`."""

from shoal_service.store.contract import (
    MAX_ACCESS_KEYS,
    AccessKey,
    Appended,
    Checkpoint,
    DeadLetter,
    DeadLetterHead,
    Entry,
    EntryKind,
    IdempotencyKey,
    Job,
    PagePlace,
    PageRun,
    References,
    SourceStep,
    Store,
    StreamRecord,
    Tail,
    Wake,
)
from shoal_service.store.doctor import inspect_store
from shoal_service.store.inspection import Finding, Inspection, Part, StreamSummary
from shoal_service.store.sharing import Blob, Lease, PublishedHead, ReaderRequest, SharedStore, Sharing, View
from shoal_service.store.source_positions import KIND as SOURCES
from shoal_service.store.source_positions import SourcePosition, fault_of
from shoal_service.store.source_positions import decode as decode_position
from shoal_service.store.sqlite import SqliteStore, dead_letters_at_rest

__all__ = [
    "MAX_ACCESS_KEYS",
    "SOURCES",
    "AccessKey",
    "Appended",
    "Blob",
    "Checkpoint",
    "DeadLetter",
    "DeadLetterHead",
    "Entry",
    "EntryKind",
    "Finding",
    "IdempotencyKey",
    "Inspection",
    "Job",
    "Lease",
    "PagePlace",
    "PageRun",
    "Part",
    "PublishedHead",
    "ReaderRequest",
    "References",
    "SharedStore",
    "Sharing",
    "SourcePosition",
    "SourceStep",
    "SqliteStore",
    "Store",
    "StreamRecord",
    "StreamSummary",
    "Tail",
    "View",
    "Wake",
    "dead_letters_at_rest",
    "decode_position",
    "fault_of",
    "inspect_store",
]
