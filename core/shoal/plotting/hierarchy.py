"""The tree of a mixture's components as a dendrogram, with the cut that gives the clusters."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shoal.clusters import Clustering, Hierarchy, cut, hierarchy_of
from shoal.estimators import mixture_of
from shoal.plotting.colours import colour_of
from shoal.plotting.estimator import clusters_by_component
from shoal.plotting.figures import inks_of, literal, new_axes, plain
from shoal.points.arrays import Array, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMES = 60


class HierarchyDisplay:
    """A dendrogram of components, coloured by cluster. Made by `from_estimator`.

    The height of a join is that of `hierarchy.linkage`. Joins above the dashed line are undone by the cut.

    Parameters
    ----------
    hierarchy : Hierarchy
    clustering : Clustering
        A cut of it.
    labels : mapping from component to text

    Attributes
    ----------
    figure_, ax_ : matplotlib's Figure and Axes
    joins_ : list of Line2D, one for each row of `hierarchy.linkage`
    cut_ : Line2D or None
        The line of the cut; None where it undoes no join or every join.
    cut_height_ : float or None
    leaves_ : (K,) ids from left to right
    """

    def __init__(
        self, hierarchy: Hierarchy, clustering: Clustering, *, labels: Mapping[int, str] | None = None
    ) -> None:
        self.hierarchy = hierarchy
        self.clustering = clustering
        self.labels = dict(labels or {})

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        n_clusters: int | None = None,
        resolution: float | None = None,
        labels: Mapping[int, str] | None = None,
        ax: "Axes | None" = None,
        **style: Any,
    ) -> Self:
        """Draw the tree of a fitted `StreamingDPMixture` or `DPMixture`; the cut is that of `clusters`.

        `style`: options of `plot`. Raises SettingError for a cut out of range.
        """
        hierarchy = hierarchy_of(mixture_of(estimator))
        return cls(hierarchy, cut(hierarchy, n_clusters, resolution), labels=labels).plot(ax=ax, **style)

    def plot(self, ax: "Axes | None" = None, *, names: bool = True) -> Self:
        """Draw into `ax`, or into a new figure. `names`: whether leaves carry their label or id."""
        k = len(self.hierarchy.ids)
        self.figure_, self.ax_ = new_axes(ax, (min(max(0.22 * k + 2.0, 6.0), 14.0), 4.2))
        inks = inks_of(self.ax_)
        order, middle = _positions(self.hierarchy.linkage, k)
        self.leaves_ = self.hierarchy.ids[order]
        heights = np.append(np.zeros(k), self.hierarchy.linkage[:, 2])
        groups = _groups(self.hierarchy, clusters_by_component(self.clustering))
        self.joins_ = []
        for row, (left, right) in enumerate(self.hierarchy.linkage[:, :2].astype(np.int64).tolist()):
            at, group = float(heights[k + row]), groups[k + row]
            self.joins_ += self.ax_.plot(
                [middle[left], middle[left], middle[right], middle[right]],
                [heights[left], at, at, heights[right]],
                color=inks.faint if group is None else colour_of(group, dark=inks.dark),
                linewidth=1.6 if k <= 200 else 0.8,
                solid_joinstyle="miter",
            )
        colours = [colour_of(groups[leaf], dark=inks.dark) for leaf in order.tolist()]
        self.ax_.scatter(np.arange(k), np.zeros(k), c=colours, s=18 if k <= 200 else 4, zorder=3, clip_on=False)
        self._draw_cut(inks.ink)
        self._name_leaves(names, colours)
        self.ax_.set_ylabel("height of the join")
        self.ax_.set_ylim(bottom=0.0)
        self.ax_.set_xlim(-0.7, max(k, 1) - 0.3)
        plain(self.ax_, ("top", "right", "bottom"))
        return self

    def _draw_cut(self, ink: str) -> None:
        self.cut_height_ = _cut_height(self.hierarchy.linkage, self.clustering.n_clusters)
        self.cut_ = None
        if self.cut_height_ is not None:
            self.cut_ = self.ax_.axhline(self.cut_height_, color=ink, linewidth=0.9, linestyle=(0, (5, 3)))
            self.ax_.annotate(
                f"{self.clustering.n_clusters} clusters", (1.0, self.cut_height_), xycoords=("axes fraction", "data"),
                xytext=(0, 3), textcoords="offset points", ha="right", fontsize="small", color=ink,
            )  # fmt: skip

    def _name_leaves(self, names: bool, colours: list[str]) -> None:
        if not names or len(self.leaves_) > MOST_NAMES:
            self.ax_.set_xticks([])
            self.ax_.set_xlabel(f"{len(self.leaves_)} components")
            return
        texts = [literal(self.labels.get(one, str(one))) for one in self.leaves_.tolist()]
        turned = max(map(len, texts), default=0) > 3
        self.ax_.set_xticks(np.arange(len(texts)), texts, rotation=90 if turned else 0, fontsize="small")
        self.ax_.tick_params(axis="x", length=0.0)
        self.ax_.set_xlabel("component")


def _positions(linkage: Array, k: int) -> tuple[IntArray, Array]:
    """Leaves (K,) from left to right, and the horizontal place (2 K - 1,) of every node."""
    sides = linkage[:, :2].astype(np.int64)
    order: list[int] = []
    waiting = [2 * k - 2] if k else []
    while waiting:
        node = waiting.pop()
        if node < k:
            order.append(node)
        else:
            waiting += reversed(sides[node - k].tolist())
    middle = np.zeros(max(2 * k - 1, 0))
    middle[order] = np.arange(k)
    for row, (left, right) in enumerate(sides.tolist()):
        middle[k + row] = 0.5 * (middle[left] + middle[right])
    return np.array(order, dtype=np.int64), middle


def _groups(hierarchy: Hierarchy, cluster_of: Mapping[int, int]) -> list[int | None]:
    """(2 K - 1,) the cluster of every node; None above the cut, where clusters are joined."""
    groups: list[int | None] = [cluster_of[one] for one in hierarchy.ids.tolist()]
    for left, right in hierarchy.linkage[:, :2].astype(np.int64).tolist():
        groups.append(groups[left] if groups[left] == groups[right] else None)
    return groups


def _cut_height(linkage: Array, n_clusters: int) -> float | None:
    """The middle between the highest join that is kept and the lowest that is undone."""
    kept = len(linkage) + 1 - n_clusters
    if not 0 < kept < len(linkage):
        return None
    return float(0.5 * (linkage[kept - 1, 2] + linkage[kept, 2]))
