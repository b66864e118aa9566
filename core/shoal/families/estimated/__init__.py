"""Families without a conjugate prior, learnt by stochastic gradient."""

from shoal.families.estimated.family import (
    MOST_MOVE,
    STEP_FIELDS,
    EstimatedFamily,
    EstimateStats,
    NoWork,
    StepRule,
    checked_step,
    is_conjugate,
)

__all__ = [
    "MOST_MOVE",
    "STEP_FIELDS",
    "EstimateStats",
    "EstimatedFamily",
    "NoWork",
    "StepRule",
    "checked_step",
    "is_conjugate",
]
