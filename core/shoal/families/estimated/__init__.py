"""Families without statistics that add, learnt by stochastic gradient."""

from shoal.families.estimated.family import (
    MOST_MOVE,
    STEP_FIELDS,
    EstimatedFamily,
    EstimateStats,
    StepRule,
    checked_step,
    is_conjugate,
)

__all__ = [
    "MOST_MOVE",
    "STEP_FIELDS",
    "EstimateStats",
    "EstimatedFamily",
    "StepRule",
    "checked_step",
    "is_conjugate",
]
