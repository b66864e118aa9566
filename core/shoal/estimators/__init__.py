"""The library as scikit-learn estimators."""

from shoal.estimators.batch import DPMixture
from shoal.estimators.streaming import StreamingDPMixture

__all__ = ["DPMixture", "StreamingDPMixture"]
