"""Learning in one pass: a state, points, and the state after them."""

from shoal.sequential.assimilate import (
    AssimilateInfo,
    apply_settings_inplace,
    assimilate_inplace,
    assimilate_together_inplace,
    initial_state,
    live_labels,
    timed,
    weighted_as_learnt,
)
from shoal.sequential.learn import PrequentialScores
from shoal.sequential.stream_kernels import compile_kernels, kernels_ready, warm_kernels

__all__ = [
    "AssimilateInfo",
    "PrequentialScores",
    "apply_settings_inplace",
    "assimilate_inplace",
    "assimilate_together_inplace",
    "compile_kernels",
    "initial_state",
    "kernels_ready",
    "live_labels",
    "timed",
    "warm_kernels",
    "weighted_as_learnt",
]
