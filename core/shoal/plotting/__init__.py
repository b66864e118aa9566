"""Plots of fitted mixtures, in the style of scikit-learn's displays: a display holds what is drawn, `plot` draws it.

    from shoal.plotting import MixtureDisplay

    MixtureDisplay.from_estimator(model, points)

Drawing needs matplotlib: `pip install 'shoal[plot]'`. Names load on first use, and matplotlib with the first drawing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.plotting.bound import BoundDisplay
    from shoal.plotting.colours import N_COLOURS, colour_of
    from shoal.plotting.hierarchy import HierarchyDisplay
    from shoal.plotting.lifelines import LifelineDisplay
    from shoal.plotting.lives import Join, Life, Lives, Mark, Segment, lives_of
    from shoal.plotting.mixture import MixtureDisplay

__all__ = [
    "N_COLOURS",
    "BoundDisplay",
    "HierarchyDisplay",
    "Join",
    "Life",
    "LifelineDisplay",
    "Lives",
    "Mark",
    "MixtureDisplay",
    "Segment",
    "colour_of",
    "lives_of",
]

_HOMES = {
    "BoundDisplay": "bound",
    "HierarchyDisplay": "hierarchy",
    "LifelineDisplay": "lifelines",
    "MixtureDisplay": "mixture",
    "N_COLOURS": "colours",
    "colour_of": "colours",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"shoal.plotting.{_HOMES.get(name, 'lives')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
