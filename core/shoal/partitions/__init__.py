"""One stream learnt by several partitions: rounds at fixed offsets, and the sum of their contributions."""

from shoal.partitions.rounds import Tasks, assimilate_inplace, in_turn, learn_in_rounds_inplace

__all__ = ["Tasks", "assimilate_inplace", "in_turn", "learn_in_rounds_inplace"]
