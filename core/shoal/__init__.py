"""Streaming clustering with Dirichlet process mixtures: one pass, no number of clusters to choose, stable ids.

    from shoal import StreamingDPMixture

    model = StreamingDPMixture().partial_fit(first).partial_fit(more)
    model.predict(points)         # stable component ids
    model.score_samples(points)   # log predictive density
    model.novelty(points)         # probability of belonging to nothing seen yet

    DPMixture(method="vdp").fit(points).labels_     # all points at once

Names load on first use: importing the package alone imports neither numba nor scipy nor scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shoal.errors import (
    InputError,
    NoPointsError,
    NotFiniteError,
    NotNumericError,
    OutsideDomainError,
    SettingError,
    ShapeError,
    ShoalError,
    SnapshotDamagedError,
    SnapshotError,
    SnapshotVersionError,
    UnknownComponentError,
)

if TYPE_CHECKING:
    from shoal import families
    from shoal.estimators import DPMixture, StreamingDPMixture

__all__ = [
    "DPMixture",
    "InputError",
    "NoPointsError",
    "NotFiniteError",
    "NotNumericError",
    "OutsideDomainError",
    "SettingError",
    "ShapeError",
    "ShoalError",
    "SnapshotDamagedError",
    "SnapshotError",
    "SnapshotVersionError",
    "StreamingDPMixture",
    "UnknownComponentError",
    "families",
]


def __getattr__(name: str) -> Any:
    if name in ("DPMixture", "StreamingDPMixture"):
        return getattr(import_module("shoal.estimators"), name)
    if name == "families":
        return import_module("shoal.families")
    if name == "__version__":
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    """The installed distribution's; `unknown` in a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("shoal")
    except PackageNotFoundError:
        return "unknown"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
