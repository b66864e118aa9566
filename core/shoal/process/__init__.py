"""The Dirichlet process prior: the law of partitions (`crp`), of ordered labels under free sticks (`sticks`), and of
labels when the sticks are cut off (`truncation`)."""

from shoal.process.crp import log_eppf, log_rising, predictive_weights
from shoal.process.sticks import join_label_ceiling, join_label_gain, log_label_prior, log_label_priors
from shoal.process.truncation import (
    default_truncation,
    expected_stick_weights,
    log_truncated_label_prior,
    sample_log_weights,
)

__all__ = [
    "default_truncation",
    "expected_stick_weights",
    "join_label_ceiling",
    "join_label_gain",
    "log_eppf",
    "log_label_prior",
    "log_label_priors",
    "log_rising",
    "log_truncated_label_prior",
    "predictive_weights",
    "sample_log_weights",
]
