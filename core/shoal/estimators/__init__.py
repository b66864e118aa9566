"""Scikit-learn estimators. Names load on first use, because a stream needs no sampler."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.estimators.batch import DPMixture
    from shoal.estimators.batch_engines import warm_batch_kernels
    from shoal.estimators.streaming import StreamingDPMixture

__all__ = ["DPMixture", "StreamingDPMixture", "warm_batch_kernels"]

_HOMES = {"DPMixture": "batch", "warm_batch_kernels": "batch_engines", "StreamingDPMixture": "streaming"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"shoal.estimators.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
