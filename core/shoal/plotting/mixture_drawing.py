"""Drawing of a mixture: ellipses, densities, and bars of telling features."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.errors import SettingError
from shoal.mixture import TellingFeature
from shoal.plotting.colours import colour_of
from shoal.plotting.figures import inks_of, literal, plain, short
from shoal.points.arrays import Array, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMES = 40
MOST_LISTED = 10
FEW_POINTS = 20
MOST_LETTERS, MOST_AXIS_LETTERS = 22, 60


class Places(NamedTuple):
    """Components as places in two coordinates, in the order of `ids`."""

    means: Array  # (K, 2), NaN where a mean does not exist
    covariances: Array  # (K, 2, 2), NaN likewise
    axis_names: tuple[str, str]
    points: Array | None = None  # (N, 2)


class Densities(NamedTuple):
    """Components as densities of one feature."""

    grid: Array  # (G,)
    density: Array  # (K, G) weight times predictive density, per unit of the feature
    new: Array  # (G,) the same of a new component
    axis_name: str
    points: Array | None = None  # (N,)


class Look(NamedTuple):
    """What is common to all drawings of a mixture."""

    ids: IntArray
    weights: Array
    group_of: Mapping[int, int]
    grouped_by: str
    labels: Mapping[int, str]
    names: bool
    legend: bool

    @property
    def largest_first(self) -> IntArray:
        """(K,) rows by falling weight."""
        return np.lexsort((self.ids, -self.weights))

    def name(self, component: int) -> str:
        """The label of a component, or its id."""
        return self.labels.get(component, str(component))

    def colour(self, component: int, dark: bool) -> str:
        """The colour of a component's group."""
        return colour_of(self.group_of.get(component), dark=dark)

    def shares(self) -> list[tuple[int, float]]:
        """Groups and their shares, largest first."""
        sums: dict[int, float] = {}
        for component, weight in zip(self.ids.tolist(), self.weights.tolist(), strict=True):
            group = self.group_of[component]
            sums[group] = sums.get(group, 0.0) + weight
        return sorted(sums.items(), key=lambda one: (-one[1], one[0]))


class Drawn(NamedTuple):
    """Artists of a map."""

    ellipses: dict[int, Any]
    points: Any


def draw_ellipses(
    ax: "Axes", places: Places, point_components: IntArray | None, look: Look, deviations: float
) -> Drawn:
    """Points, then an ellipse around each mean: half axes are `deviations` roots of the covariance's eigenvalues."""
    from matplotlib.patches import Ellipse

    inks = inks_of(ax)
    points = None
    if places.points is not None and point_components is not None:
        colours = [look.colour(int(one), inks.dark) for one in point_components]
        size = 5.0 if len(colours) > 1_200 else 10.0
        points = ax.scatter(
            places.points[:, 0], places.points[:, 1], s=size, c=colours, alpha=0.55, linewidths=0.0, zorder=1
        )
    found: dict[int, Any] = {}
    for row in look.largest_first[::-1].tolist():
        component, (mean, covariance) = int(look.ids[row]), (places.means[row], places.covariances[row])
        if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
            continue
        values, vectors = np.linalg.eigh(covariance)
        minor, major = 2.0 * deviations * np.sqrt(np.maximum(values, 0.0))
        angle = math.degrees(math.atan2(vectors[1, 1], vectors[0, 1]))
        found[component] = ax.add_patch(
            Ellipse(
                (float(mean[0]), float(mean[1])), float(major), float(minor), angle=angle, fill=False,
                edgecolor=look.colour(component, inks.dark), linewidth=1.6 if len(look.ids) <= 300 else 0.9, zorder=2,
            )
        )  # fmt: skip
    if look.names and len(look.ids):
        for row in look.largest_first[:MOST_NAMES].tolist():
            _name(ax, places.means[row], look.name(int(look.ids[row])), inks)
    _set_extent(ax, places, found)
    ax.set_xlabel(_cut(places.axis_names[0], MOST_AXIS_LETTERS))
    ax.set_ylabel(_cut(places.axis_names[1], MOST_AXIS_LETTERS))
    plain(ax)
    if look.legend:
        _list_groups(ax, look)
    return Drawn(found, points)


def draw_densities(ax: "Axes", densities: Densities, look: Look) -> dict[int, Any]:
    """A histogram of the points, the density of each component times its weight, and the sum of all."""
    inks = inks_of(ax)
    if densities.points is not None and len(densities.points):
        bins = min(60, max(10, round(math.sqrt(len(densities.points)))))
        span = (float(densities.grid[0]), float(densities.grid[-1]))
        ax.hist(densities.points, bins=bins, range=span, density=True, color=inks.faint, alpha=0.3, label="points")
    found: dict[int, Any] = {}
    for row in look.largest_first[::-1].tolist():
        component, colour = int(look.ids[row]), look.colour(int(look.ids[row]), inks.dark)
        (found[component],) = ax.plot(densities.grid, densities.density[row], color=colour, linewidth=1.6)
        peak = int(densities.density[row].argmax())
        if look.names and len(look.ids) <= MOST_NAMES:
            _name(ax, np.array([densities.grid[peak], densities.density[row, peak]]), look.name(component), inks)
    whole = densities.density.sum(axis=0) + densities.new
    ax.plot(densities.grid, whole, color=inks.ink, linewidth=0.9, linestyle=(0, (4, 2)), label="all components")
    ax.set_xlabel(_cut(densities.axis_name, MOST_AXIS_LETTERS))
    ax.set_ylabel("density")
    ax.set_ylim(bottom=0.0)
    plain(ax)
    if look.legend:
        _list_groups(ax, look, *ax.get_legend_handles_labels())
    return found


def draw_terms(
    ax: "Axes", telling: list[list[TellingFeature]], shown: IntArray, columns: int, look: Look, own_scales: bool = False
) -> list[Any]:
    """The telling features of each component in axes of its own, within the place of `ax`.

    `own_scales`: a bar is full at the larger of its two values, and at 1 where it is the probability of a level. The
    value is beside it.
    """
    place, figure = ax.get_subplotspec(), ax.get_figure()
    if place is None or figure is None:
        raise SettingError("bars need axes of a grid; give axes from pyplot.subplots, or none")
    inks = inks_of(ax)
    ax.set_axis_off()
    grid = place.subgridspec(max(1, -(-len(shown) // max(columns, 1))), max(columns, 1))
    found = []
    for number, row in enumerate(shown.tolist()):
        component, features = int(look.ids[row]), telling[row]
        axes = figure.add_subplot(grid[number // columns, number % columns])
        found.append(axes)
        colour = look.colour(component, inks.dark)
        heights = np.arange(len(features))
        full = np.array([_full(one) if own_scales else 1.0 for one in features])
        axes.barh(heights, np.array([one.value for one in features]) / full, height=0.66, color=colour)
        axes.scatter(
            np.array([one.rest for one in features]) / full, heights, marker="|", s=90, color=inks.ink, zorder=3
        )
        axes.set_yticks(heights, [_cut(term_name(one)) for one in features])
        axes.set_ylim(max(len(features), 1) - 0.4, -0.6)
        name = look.labels.get(component, f"component {component}")
        axes.set_title(f"{_cut(name)} · {_percent(look.weights[row])}", loc="left", fontsize="medium")
        axes.tick_params(axis="y", length=0.0)
        if own_scales:
            for height, one in enumerate(features):
                axes.text(1.06, height, _value(one), va="center", fontsize="small", color=inks.ink)
            axes.set_xticks([])
            axes.set_xlim(min(0.0, axes.get_xlim()[0]), 1.5)
            plain(axes, ("top", "right", "left", "bottom"))
        else:
            axes.locator_params(axis="x", nbins=3)
            axes.margins(x=0.08)
            plain(axes, ("top", "right", "left"))
    if found:
        found[-1].set_xlabel("bar: mean · line: elsewhere", fontsize="small", color=inks.faint)
    return found


def _full(one: TellingFeature) -> float:
    """What a full bar means."""
    return 1.0 if one.level is not None else max(abs(one.value), abs(one.rest)) or 1.0


def _value(one: TellingFeature) -> str:
    return short(one.value) if one.level is None else _percent(one.value)


def term_name(one: TellingFeature) -> str:
    """`colour = 2` for a level of a category, else the name or the number of the feature."""
    name = f"feature {one.feature}" if isinstance(one.feature, int) else one.feature
    return name if one.level is None else f"{name} = {one.level}"


def _set_extent(ax: "Axes", places: Places, found: dict[int, Any]) -> None:
    """Show the middle 99 % of the points, or the ellipses where there are few points, and all finite means."""
    x = places.means[np.isfinite(places.means).all(axis=1)]
    if places.points is not None and len(places.points) >= FEW_POINTS:
        cut = 0.005 if len(places.points) >= 200 else 0.0
        x = np.quantile(places.points, [cut, 1.0 - cut], axis=0)
    elif found:
        corners = [one.get_extents().get_points() for one in found.values()]
        x = np.vstack([x, ax.transData.inverted().transform(np.vstack(corners))])
    if len(x):
        low, high = x.min(axis=0), x.max(axis=0)
        room = np.where(high > low, 0.08 * (high - low), 0.5 * np.maximum(np.abs(low), 1.0))
        ax.set_xlim(float(low[0] - room[0]), float(high[0] + room[0]))
        ax.set_ylim(float(low[1] - room[1]), float(high[1] + room[1]))


def _list_groups(ax: "Axes", look: Look, handles: Any = (), texts: Any = ()) -> None:
    """A legend with the largest groups and their shares, beside the axes, and what else has a handle."""
    from matplotlib.lines import Line2D

    inks, shares = inks_of(ax), look.shares()
    handles, texts = list(handles), list(texts)
    for group, share in shares[:MOST_LISTED]:
        handles.append(Line2D([], [], marker="o", linestyle="", color=colour_of(group, dark=inks.dark)))
        texts.append(f"{_cut(look.name(group))} · {_percent(share)}")
    if len(shares) > MOST_LISTED:
        handles.append(Line2D([], [], linestyle=""))
        texts.append(f"and {len(shares) - MOST_LISTED} more")
    if handles:
        ax.legend(
            handles, texts, title=f"{look.grouped_by}s", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False,
            fontsize="small", alignment="left", handletextpad=0.4,
        )  # fmt: skip


def _name(ax: "Axes", at: Array, text: str, inks: Any) -> None:
    from matplotlib.patheffects import withStroke

    if np.isfinite(at).all():
        halo = [withStroke(linewidth=2.5, foreground=inks.page)]
        ax.text(
            float(at[0]), float(at[1]), _cut(text), ha="center", va="center", fontsize="small", fontweight="bold",
            color=inks.ink, path_effects=halo, clip_on=True, zorder=4,
        )  # fmt: skip


def _percent(share: float) -> str:
    """Whole percent of a large share, tenths of a small one."""
    percent = 100.0 * share
    if percent >= 9.95:
        return f"{percent:.0f} %"
    return f"{percent:.1f} %" if percent >= 0.05 or percent == 0.0 else "< 0.1 %"


def _cut(text: str, most: int = MOST_LETTERS) -> str:
    return literal(text if len(text) <= most else f"{text[: most - 1]}…")
