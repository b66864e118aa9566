"""The library as scikit-learn estimators."""

from shoal.estimators.batch import DPMixture
from shoal.estimators.batch_warm import warm_batch_kernels
from shoal.estimators.streaming import StreamingDPMixture

__all__ = ["DPMixture", "StreamingDPMixture", "warm_batch_kernels"]
