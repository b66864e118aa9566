"""Unit vectors: von Mises-Fisher components of known concentration, learnt by stochastic gradient."""

from shoal.families.von_mises_fisher.prior import VonMisesFisher, VonMisesFisherCache

__all__ = ["VonMisesFisher", "VonMisesFisherCache"]
