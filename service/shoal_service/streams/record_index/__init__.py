"""Records of a stream by their keys: written by its learner, read by any process.

`rows` says which version of a record counts, `pages` how the store holds them, `writer` writes and `reader` reads.
`run_change` and `merge` join runs. `resolve` follows the component of a record to the one that lives today.
"""

from shoal_service.streams.record_index.membership import Order, Page, Position, Since, changed, members
from shoal_service.streams.record_index.reader import Bounds, RecordReader, Stored
from shoal_service.streams.record_index.resolve import FamilyTree, Resolved, Resolver
from shoal_service.streams.record_index.rows import REASSIGNED, TEXT_TIME, RecordRows
from shoal_service.streams.record_index.run_change import Limits
from shoal_service.streams.record_index.writer import RecordWriter, forget_payload, forgotten_keys

__all__ = [
    "REASSIGNED",
    "TEXT_TIME",
    "Bounds",
    "FamilyTree",
    "Limits",
    "Order",
    "Page",
    "Position",
    "RecordReader",
    "RecordRows",
    "RecordWriter",
    "Resolved",
    "Resolver",
    "Since",
    "Stored",
    "changed",
    "forget_payload",
    "forgotten_keys",
    "members",
]
