"""Learning in one pass: a state, points, and the state after them."""

from shoal.sequential.assimilate import (
    AssimilateInfo,
    apply_settings_inplace,
    assimilate_inplace,
    initial_state,
    publish,
)
from shoal.sequential.one_pass import warm_kernels

__all__ = [
    "AssimilateInfo",
    "apply_settings_inplace",
    "assimilate_inplace",
    "initial_state",
    "publish",
    "warm_kernels",
]
