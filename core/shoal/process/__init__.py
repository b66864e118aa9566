"""The Dirichlet process prior: the law of partitions (`crp`) and of ordered labels under free sticks (`sticks`)."""

from shoal.process.crp import log_eppf, predictive_weights
from shoal.process.sticks import join_label_ceiling, join_label_gain, log_label_prior

__all__ = ["join_label_ceiling", "join_label_gain", "log_eppf", "log_label_prior", "predictive_weights"]
