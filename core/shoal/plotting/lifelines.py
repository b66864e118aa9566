"""Life lines: every component as a line over the stream, from its birth to its end."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from shoal.estimators import mixture_of
from shoal.plotting.colours import colour_of
from shoal.plotting.estimator import grouping_of
from shoal.plotting.figures import Inks, inks_of, literal, new_axes, plain
from shoal.plotting.lives import Life, Lives, lives_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKED = {"pruned": "x", "returned": "^"}
MOST_NAMES = 60


class LifelineDisplay:
    """Components as lines over the points of a stream. Made by `from_estimator` or `from_events`.

    A dot is a birth, a cross a retirement, a triangle a return under the old id. A thin line across joins two
    components where mass went from one to the other, by a merge, a split or a refinement. Living components have the
    colour of their cluster, and a width by their share. A vertical line is a moment of the whole stream. A dotted line
    began earlier than any known event.

    Parameters
    ----------
    lives : Lives
    group_of : mapping from living component to the id by which it is coloured
    weights : mapping from living component to its share
    labels : mapping from component to text

    Attributes
    ----------
    figure_, ax_ : matplotlib's Figure and Axes
    lines_ : dict from component to a list of Line2D, one for each segment of its life
    joins_ : list of Line2D, in the order of `lives.joins`, without those within a lane
    marks_ : list of Line2D, in the order of `lives.marks`
    """

    def __init__(
        self,
        lives: Lives,
        *,
        group_of: Mapping[int, int] | None = None,
        weights: Mapping[int, float] | None = None,
        labels: Mapping[int, str] | None = None,
    ) -> None:
        self.lives = lives
        self.group_of = dict(group_of or {})
        self.weights = dict(weights or {})
        self.labels = dict(labels or {})

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        color_by: str = "cluster",
        n_clusters: int | None = None,
        resolution: float | None = None,
        labels: Mapping[int, str] | None = None,
        ax: "Axes | None" = None,
        **style: Any,
    ) -> Self:
        """Draw the lives of the components of a fitted `StreamingDPMixture`, from its `events_`.

        `color_by`, `n_clusters` and `resolution` are those of `MixtureDisplay`; `style` those of `plot`. An estimator
        that was loaded knows the events since then, and of each living component its birth.
        """
        mixture = mixture_of(estimator)
        ids = mixture.ids.tolist()
        born = dict(zip(ids, mixture.born_at.tolist(), strict=True))
        display = cls(
            lives_of(getattr(estimator, "events_", ()), born, mixture.points_seen),
            group_of=grouping_of(mixture, color_by, n_clusters, resolution).group_of,
            weights=dict(zip(ids, mixture.weights.tolist(), strict=True)),
            labels=labels,
        )
        return display.plot(ax=ax, **style)

    @classmethod
    def from_events(
        cls,
        events: Iterable[Any],
        *,
        born_at: Mapping[int, int] | None = None,
        points_seen: int | None = None,
        group_of: Mapping[int, int] | None = None,
        weights: Mapping[int, float] | None = None,
        labels: Mapping[int, str] | None = None,
        ax: "Axes | None" = None,
        **style: Any,
    ) -> Self:
        """Draw lives from events, oldest first: those of an estimator, or those of a service's feed.

        `born_at` and `points_seen` are those of `lives_of`. Components without a group are coloured by their own id.
        """
        lives = lives_of(events, born_at, points_seen)
        own = {one: one for one in lives.lives}
        return cls(lives, group_of=own | dict(group_of or {}), weights=weights, labels=labels).plot(ax=ax, **style)

    def plot(self, ax: "Axes | None" = None, *, names: bool = True, legend: bool = True) -> Self:
        """Draw into `ax`, or into a new figure. `names`: whether living components carry their label or id."""
        height = min(max(0.2 * self.lives.lanes + 1.4, 3.0), 14.0)
        self.figure_, self.ax_ = new_axes(ax, (8.0, height))
        inks = inks_of(self.ax_)
        room = self.ax_.get_window_extent().height * 72.0 / self.figure_.dpi / max(self.lives.lanes, 1)
        lives = self.lives.lives
        self.marks_ = [self._mark(one.at, one.kind, inks) for one in self.lives.marks]
        self.joins_ = [
            self.ax_.plot(
                [join.at, join.at], [lives[join.source].lane, lives[join.target].lane],
                color=inks.faint, linewidth=0.8, alpha=0.7, zorder=1, solid_capstyle="butt",
            )[0]
            for join in self.lives.joins
            if lives[join.source].lane != lives[join.target].lane
        ]  # fmt: skip
        self.lines_ = {life.id: self._life(life, inks, room) for life in lives.values()}
        if names and sum(life.alive for life in lives.values()) <= MOST_NAMES:
            self._name_living(inks)
        self.ax_.set_xlim(self.lives.first, max(self.lives.last, self.lives.first + 1))
        self.ax_.set_ylim(self.lives.lanes - 0.3, -0.7)
        self.ax_.set_yticks([])
        self.ax_.set_xlabel("points of the stream")
        self.ax_.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        plain(self.ax_, ("top", "right", "left"))
        if legend:
            self._legend(inks)
        return self

    def _life(self, life: Life, inks: Inks, room: float) -> list[Any]:
        colour = colour_of(self.group_of.get(life.id), dark=inks.dark) if life.alive else inks.faint
        share = self.weights.get(life.id, 0.0)
        width = min(1.6 + 8.0 * share**0.5, 0.7 * room) if life.alive else min(1.2, 0.5 * room)
        drawn = []
        for segment in life.segments:
            end = self.lives.last if segment.end is None else segment.end
            style = "-" if segment.known else (0, (1, 1.5))
            drawn += self.ax_.plot(
                [segment.start, end], [life.lane, life.lane],
                color=colour, linewidth=max(width, 0.4), linestyle=style, solid_capstyle="butt", zorder=2,
            )  # fmt: skip
        size = min(4.0, 0.8 * room)
        first = life.segments[0]
        if first.known and not life.parents:
            self._symbol(first.start, life.lane, "o", colour, size)
        for segment in life.segments[1:]:
            self._symbol(segment.start, life.lane, MARKED["returned"], colour, size + 1.0)
        for at in _retirements(self.lives, life):
            self._symbol(at, life.lane, MARKED["pruned"], colour, size)
        return drawn

    def _symbol(self, at: int, lane: int, marker: str, colour: str, size: float) -> None:
        self.ax_.plot([at], [lane], marker=marker, color=colour, markersize=size, linestyle="", clip_on=False, zorder=3)

    def _mark(self, at: int, kind: str, inks: Inks) -> Any:
        solid = kind in ("adopted", "prior")
        return self.ax_.axvline(
            at, color=inks.ink, alpha=0.35, linewidth=0.8, linestyle="-" if solid else (0, (4, 3)), zorder=0
        )

    def _name_living(self, inks: Inks) -> None:
        for life in self.lives.lives.values():
            if life.alive:
                self.ax_.annotate(
                    literal(self.labels.get(life.id, str(life.id))), (self.lives.last, life.lane), xytext=(5, 0),
                    textcoords="offset points", va="center", fontsize="x-small", color=inks.ink, annotation_clip=False,
                )  # fmt: skip

    def _legend(self, inks: Inks) -> None:
        """Only what occurs is explained."""
        from matplotlib.lines import Line2D

        every = list(self.lives.lives.values())
        known = {
            "born": ("o", any(life.segments[0].known and not life.parents for life in every)),
            "retired": (MARKED["pruned"], any(_retirements(self.lives, life) for life in every)),
            "returned": (MARKED["returned"], any(len(life.segments) > 1 for life in every)),
            "merged or split": ("|", bool(self.joins_)),
        }
        handles = [
            Line2D([], [], marker=marker, linestyle="", color=inks.faint, markersize=6, label=name)
            for name, (marker, occurs) in known.items()
            if occurs
        ]
        if self.marks_:
            kinds = ", ".join(dict.fromkeys(one.kind for one in self.lives.marks))
            handles.append(Line2D([], [], color=inks.ink, alpha=0.35, label=kinds))
        if handles:
            self.ax_.legend(
                handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(handles), frameon=False,
                fontsize="small", borderaxespad=0.2, handletextpad=0.4, columnspacing=1.2,
            )  # fmt: skip


def _retirements(lives: Lives, life: Life) -> list[int]:
    """Where a life, or a part of it before a return, ended without passing its mass on."""
    passed_on = {join.at for join in lives.joins if join.source == life.id}
    ends = [one.end for one in life.segments if one.end is not None and one.end not in passed_on]
    return ends[:-1] if life.ended == "unknown" else ends
