"""Scikit-learn estimators. Names load on first use, because a stream needs no sampler."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.estimators.batch import DPMixture
    from shoal.estimators.batch_engines import warm_batch_kernels
    from shoal.estimators.streaming import StreamingDPMixture
    from shoal.estimators.views import mixture_of

__all__ = ["DPMixture", "StreamingDPMixture", "mixture_of", "warm_batch_kernels"]

_HOMES = {
    "DPMixture": "batch",
    "StreamingDPMixture": "streaming",
    "mixture_of": "views",
    "warm_batch_kernels": "batch_engines",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"shoal.estimators.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
