"""Samplers over the labels of a Dirichlet process mixture: collapsed Gibbs, blocked Gibbs, split-merge."""

from shoal.mixture import component_stats, log_joint
from shoal.sampling.blocked import fit_blocked_gibbs
from shoal.sampling.chain import Chain, start_chain, sweep_inplace
from shoal.sampling.ess import effective_sample_size
from shoal.sampling.gibbs import fit_gibbs
from shoal.sampling.pooling import pool_samples
from shoal.sampling.runs import FUNCTIONS
from shoal.sampling.split_merge import fit_split_merge

__all__ = [
    "FUNCTIONS",
    "Chain",
    "component_stats",
    "effective_sample_size",
    "fit_blocked_gibbs",
    "fit_gibbs",
    "fit_split_merge",
    "log_joint",
    "pool_samples",
    "start_chain",
    "sweep_inplace",
]
