"""Figures and axes for the displays. The only module that imports matplotlib's drawing interface."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.plotting.colours import NONE_DARK, NONE_LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Inks(NamedTuple):
    """Colours of everything that has no id."""

    ink: str
    """Of text and strong lines."""
    faint: str
    """Of lines in the background."""
    page: str
    """Of the background."""
    dark: bool


def require_matplotlib() -> Any:
    """The module `matplotlib`. Raises ImportError with the name of the extra where it is not installed."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ImportError("plots need matplotlib; install it with: pip install 'shoal[plot]'") from error
    return mpl


def new_axes(ax: "Axes | None", size: tuple[float, float]) -> tuple["Figure", "Axes"]:
    """The given axes and their figure; without axes a new figure of `size` in inches."""
    require_matplotlib()
    if ax is None:
        from matplotlib import pyplot

        figure, ax = pyplot.subplots(figsize=size, layout="constrained")
        return figure, ax
    owner = ax.get_figure(root=True)
    assert owner is not None, "axes belong to a figure"
    return owner, ax


def inks_of(ax: "Axes") -> Inks:
    """Colours that can be read on the axes' background, which matplotlib's style sets."""
    from matplotlib.colors import to_hex, to_rgb

    rcParams = require_matplotlib().rcParams
    background: Any = ax.get_facecolor()
    page = background if background[3] > 0.0 else to_rgb(rcParams["figure.facecolor"])
    red, green, blue = page[:3]
    dark = 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.4
    return Inks(to_hex(rcParams["text.color"]), NONE_DARK if dark else NONE_LIGHT, to_hex(page), dark)


def plain(ax: "Axes", sides: Iterable[str] = ("top", "right")) -> None:
    """Remove lines of the frame that hold no scale."""
    for side in sides:
        ax.spines[side].set_visible(False)


def short(value: float) -> str:
    """A number in about four characters: `0.31`, `12,400`, `2.1e-05`."""
    if value == 0.0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:.1e}"


def literal(text: str) -> str:
    """The text as it stands: dollars would begin a formula."""
    return text.replace("$", r"\$")
