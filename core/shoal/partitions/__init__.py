"""One stream learnt by several partitions: rounds at fixed offsets, and the sum of their contributions."""

from shoal.partitions.batches import AT_ONCE, Batch, assimilate_batches_inplace
from shoal.partitions.rounds import Tasks, assimilate_inplace, in_turn, learn_in_rounds_inplace

__all__ = [
    "AT_ONCE",
    "Batch",
    "Tasks",
    "assimilate_batches_inplace",
    "assimilate_inplace",
    "in_turn",
    "learn_in_rounds_inplace",
]
