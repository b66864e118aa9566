"""Code that the families of counts share."""

from shoal.families.counts.additive import (
    AdditiveFamily,
    in_columns,
    linear_scores,
    log_factorial_sums,
    log_rise_over_factorial,
    log_rises,
    mean_log_rises,
    row_sums,
    term_scores,
    weighted_sums,
)
from shoal.families.counts.beta import BetaFamily, BetaParams
from shoal.families.counts.rows import CountRows, kernel_rows

__all__ = [
    "AdditiveFamily",
    "BetaFamily",
    "BetaParams",
    "CountRows",
    "in_columns",
    "kernel_rows",
    "linear_scores",
    "log_factorial_sums",
    "log_rise_over_factorial",
    "log_rises",
    "mean_log_rises",
    "row_sums",
    "term_scores",
    "weighted_sums",
]
