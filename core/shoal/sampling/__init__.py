"""Samplers over the labels of a Dirichlet process mixture: collapsed Gibbs, to judge the other engines by."""

from shoal.sampling.chain import Chain, log_joint, start_chain, sweep_inplace
from shoal.sampling.gibbs import fit_gibbs
from shoal.sampling.pooling import component_stats, pool_samples

__all__ = ["Chain", "component_stats", "fit_gibbs", "log_joint", "pool_samples", "start_chain", "sweep_inplace"]
