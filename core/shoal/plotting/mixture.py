"""The components of a mixture: ellipses in a plane, densities of one feature, or telling features as bars."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shoal.errors import SettingError, ShapeError
from shoal.estimators import mixture_of
from shoal.families import shown_family
from shoal.mixture import MixtureSnapshot, Plane, TellingFeature, ellipses, feature_plane, principal_plane
from shoal.plotting.estimator import evenly, grouping_of
from shoal.plotting.figures import new_axes
from shoal.plotting.mixture_drawing import Densities, Look, Places, draw_densities, draw_ellipses, draw_terms
from shoal.points.arrays import Array, IntArray, as_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 5_000
GRID_POINTS = 400


class MixtureDisplay:
    """The components of a mixture. Made by `from_estimator`.

    Points of real vectors are shown in two coordinates, with an ellipse for each component. Points of one feature have
    the density of each component in place of ellipses. Counts and other points that are no places are shown by the
    telling features of each component: the value as a bar, that of the rest as a mark.

    Parameters
    ----------
    ids, weights : (K,) array
        Components in the order of all that follows, and their shares.
    group_of : mapping from component to the id by which it is coloured
    grouped_by : {"cluster", "component"}
    content : Places, Densities, or a list of the telling features of each component
    point_components : (N,) array or None
        The component of each point shown; None without points.
    labels : mapping from component to text, or None
        Names in place of ids.
    own_scales : bool
        Whether each telling feature has a scale of its own, because columns of several families have no common unit.

    Attributes
    ----------
    figure_, ax_ : matplotlib's Figure and Axes
    axes_ : list of Axes
        One for each component whose features are shown as bars; otherwise `[ax_]`.
    ellipses_ : dict from component to Ellipse
    lines_ : dict from component to Line2D, of densities
    points_ : PathCollection or None
    """

    def __init__(
        self,
        *,
        ids: IntArray,
        weights: Array,
        group_of: Mapping[int, int],
        content: Places | Densities | list[list[TellingFeature]],
        grouped_by: str = "cluster",
        point_components: IntArray | None = None,
        labels: Mapping[int, str] | None = None,
        own_scales: bool = False,
    ) -> None:
        self.ids = ids
        self.weights = weights
        self.group_of = group_of
        self.content = content
        self.grouped_by = grouped_by
        self.point_components = point_components
        self.labels = dict(labels or {})
        self.own_scales = own_scales

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        dims: Sequence[int | str] | None = None,
        color_by: str = "cluster",
        n_clusters: int | None = None,
        resolution: float | None = None,
        labels: Mapping[int, str] | None = None,
        feature_names: Sequence[str] | None = None,
        max_points: int = MOST_POINTS,
        ax: "Axes | None" = None,
        **style: Any,
    ) -> Self:
        """Draw the components of a fitted `StreamingDPMixture` or `DPMixture`.

        Points `X` (N, D) are shown with the colours of their components, at most `max_points` of them at equal
        distances. `dims` are two features by number or name; None: the two directions in which the means of the
        components differ most. `color_by` is "cluster" or "component", and `n_clusters` and `resolution` choose the
        clusters as in `StreamingDPMixture.clusters`. `labels` stand in place of ids. `feature_names` (D) are for a
        model that was fitted without a data frame. `style`: options of `plot`.

        Raises ShapeError for another number of names, SettingError for features that do not exist, NotFittedError, and
        ImportError without matplotlib.
        """
        mixture = _named(mixture_of(estimator), feature_names)
        grouping = grouping_of(mixture, color_by, n_clusters, resolution)
        points = None if X is None or not mixture.has_places else _rows(X, max_points)
        display = cls(
            ids=mixture.ids,
            weights=mixture.weights,
            group_of=grouping.group_of,
            content=_content(mixture, points, dims),
            grouped_by=grouping.by,
            point_components=None if points is None else np.asarray(estimator.predict(points)),
            labels=labels,
            own_scales=isinstance(shown_family(mixture.settings.family), dict),
        )
        return display.plot(ax=ax, **style)

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        deviations: float = 2.0,
        names: bool = True,
        legend: bool = True,
        max_components: int = 12,
    ) -> Self:
        """Draw into `ax`, or into a new figure.

        `deviations`: half of an ellipse's axis, in standard deviations of the predictive. `names`: whether components
        carry their label or id. `legend`: whether clusters are listed with their shares. `max_components`: most
        components that are shown as bars, the largest first.
        """
        look = Look(self.ids, self.weights, self.group_of, self.grouped_by, self.labels, names, legend)
        self.ellipses_: dict[int, Any] = {}
        self.lines_: dict[int, Any] = {}
        self.points_: Any = None
        if isinstance(self.content, Places):
            self.figure_, self.ax_ = new_axes(ax, (7.0, 5.2))
            drawn = draw_ellipses(self.ax_, self.content, self.point_components, look, deviations)
            self.ellipses_, self.points_, self.axes_ = drawn.ellipses, drawn.points, [self.ax_]
        elif isinstance(self.content, Densities):
            self.figure_, self.ax_ = new_axes(ax, (7.0, 4.2))
            self.lines_, self.axes_ = draw_densities(self.ax_, self.content, look), [self.ax_]
        else:
            shown = look.largest_first[: max(1, max_components)]
            columns = min(3, len(shown))
            most = max((len(self.content[row]) for row in shown), default=1)
            self.figure_, self.ax_ = new_axes(ax, (3.4 * columns, (0.9 + 0.24 * most) * -(-len(shown) // columns)))
            self.axes_ = draw_terms(self.ax_, self.content, shown, columns, look, self.own_scales)
        return self


def _rows(X: Any, most: int) -> Any:
    """At most `most` rows, of a data frame too, so that names of columns reach the estimator's own checks."""
    kept = evenly(len(X), most)
    return X.iloc[kept] if hasattr(X, "iloc") else as_points(X)[kept]


def _named(mixture: MixtureSnapshot, names: Sequence[str] | None) -> MixtureSnapshot:
    """The mixture with names of its features."""
    if names is None:
        return mixture
    if len(names) != len(mixture.location):
        raise ShapeError(
            f"{len(names)} feature names are given for {len(mixture.location)} features; give one for each"
        )
    return replace(mixture, settings=replace(mixture.settings, feature_names=tuple(map(str, names))))


def _content(
    mixture: MixtureSnapshot, points: Any, dims: Sequence[int | str] | None
) -> Places | Densities | list[list[TellingFeature]]:
    if mixture.n_components == 0 or not mixture.has_places:
        if dims is not None:
            raise SettingError(f"family {mixture.settings.family!r} has no coordinates; leave dims out")
        return mixture.telling()
    x = None if points is None else np.asarray(points, dtype=np.float64)
    if len(mixture.location) == 1:
        return _densities(mixture, x)
    plane, names = _plane(mixture, dims)
    coordinates = None if x is None else plane.coordinates(x)
    rows = np.arange(mixture.n_components)
    return Places(plane.coordinates(mixture.means), ellipses(mixture, plane, rows), names, coordinates)


def _plane(mixture: MixtureSnapshot, dims: Sequence[int | str] | None) -> tuple[Plane, tuple[str, str]]:
    """The plane, and the names of its axes."""
    names = mixture.settings.feature_names
    if dims is None:
        plane = principal_plane(mixture)
        return plane, (_direction("first", plane, 0, mixture), _direction("second", plane, 1, mixture))
    if len(dims) != 2:
        raise SettingError(f"dims has {len(dims)} features; give two, by number or name")
    first, second = (_feature(one, names) for one in dims)
    plane = feature_plane(len(mixture.location), first, second)
    return plane, (feature_name(first, names), feature_name(second, names))


def _feature(one: int | str, names: tuple[str, ...] | None) -> int:
    if not isinstance(one, str):
        return int(one)
    if names is None or one not in names:
        known = "the features have no names" if names is None else f"the features are {', '.join(names)}"
        raise SettingError(f"feature {one!r} does not exist; {known}")
    return names.index(one)


def feature_name(feature: int, names: Sequence[str] | None) -> str:
    """The name of a feature; without names `feature 3`."""
    return f"feature {feature}" if names is None else names[feature]


def _direction(which: str, plane: Plane, axis: int, mixture: MixtureSnapshot) -> str:
    """`first direction: mostly width and height`, by the loadings on standardised features."""
    loading = np.abs(plane.axes[axis] * mixture.scale)
    if not loading.any():
        return f"{which} direction"
    order = np.argsort(-loading, kind="stable")[:3]
    told = [
        feature_name(int(i), mixture.settings.feature_names) for i in order if loading[i] >= 0.5 * loading[order[0]]
    ]
    words = told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"
    return f"{which} direction: mostly {words}"


def _densities(mixture: MixtureSnapshot, x: Array | None) -> Densities:
    """Weight times predictive density of each component, from the posterior probabilities on a grid."""
    deviation = np.sqrt(mixture.variances[:, 0])
    usable = np.isfinite(deviation) & np.isfinite(mixture.means[:, 0])
    ends = [mixture.means[usable, 0] - 4.0 * deviation[usable], mixture.means[usable, 0] + 4.0 * deviation[usable]]
    if x is not None:
        ends = [np.quantile(x[:, 0], [0.0, 1.0])]
    every = np.concatenate([*ends, mixture.location])
    low, high = float(every.min()), float(every.max())
    room = 0.05 * (high - low) or 1.0
    grid = np.linspace(low - room, high + room, GRID_POINTS)
    found = mixture.predict(grid[:, None])
    whole = np.exp(found.log_density)
    name = feature_name(0, mixture.settings.feature_names)
    points = None if x is None else x[:, 0]
    return Densities(grid, found.resp.T * whole, found.novelty * whole, name, points)
