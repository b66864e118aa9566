"""One stream learnt by several partitions: rounds at fixed offsets, and the sum of their contributions."""

from shoal.partitions.batches import PASS_ROWS, Batch, assimilate_batches_inplace
from shoal.partitions.piece_bytes import (
    pieces_version,
    result_from_bytes,
    result_to_bytes,
    task_from_bytes,
    task_to_buffers,
    task_to_bytes,
)
from shoal.partitions.pieces import (
    PieceResult,
    PieceRunner,
    PieceTask,
    in_threads,
    in_turn,
    learnt_piece,
    working_state,
)
from shoal.partitions.rounds import assimilate_inplace, learn_in_rounds_inplace
from shoal.partitions.workers import Workers

__all__ = [
    "PASS_ROWS",
    "Batch",
    "PieceResult",
    "PieceRunner",
    "PieceTask",
    "Workers",
    "assimilate_batches_inplace",
    "assimilate_inplace",
    "in_threads",
    "in_turn",
    "learn_in_rounds_inplace",
    "learnt_piece",
    "pieces_version",
    "result_from_bytes",
    "result_to_bytes",
    "task_from_bytes",
    "task_to_buffers",
    "task_to_bytes",
    "working_state",
]
