"""Colours of clusters and components: functions of the id alone, and the same as in the dashboard.

Eight hues that people with any kind of colour vision can tell apart (Okabe and Ito 2008, with the yellow darkened for a
light page), in three lightnesses. They repeat after 24 ids.
"""

LIGHT = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#56b4e9", "#e69f00", "#cc6677", "#7a6a00")
DARK = ("#4ea3dd", "#ff8a3d", "#2fc79a", "#d98cc9", "#8accf2", "#f2b840", "#ee9aa8", "#c9bb55")
LIGHT_STEPS = (0.0, 0.3, 0.5)
DARK_STEPS = (0.0, 0.3, 0.15)
NONE_LIGHT = "#7b8088"
NONE_DARK = "#8a8f98"

N_COLOURS = len(LIGHT) * len(LIGHT_STEPS)
"""Number of different colours."""


def colour_of(id_: int | None, *, dark: bool = False) -> str:
    """The colour of a cluster or component, as `#rrggbb`; grey for None and for negative ids.

    `dark`: the colours for a dark background.
    """
    if id_ is None or id_ < 0:
        return NONE_DARK if dark else NONE_LIGHT
    slot = int(id_) % N_COLOURS
    hues, steps = (DARK, DARK_STEPS) if dark else (LIGHT, LIGHT_STEPS)
    return _darkened(hues[slot % len(hues)], steps[slot // len(hues)])


def _darkened(colour: str, share: float) -> str:
    """A colour nearer to black, by a share of 0 to 1."""
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    # Half is rounded up, as browsers do; Python's round would take the even neighbour.
    return "#" + "".join(f"{int(value * (1 - share) + 0.5):02x}" for value in parts)
