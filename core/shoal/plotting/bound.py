"""Quality of a fit over its course: the bound of a batch fit, or the predictive score of a stream."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone

from shoal.errors import NoPointsError, SettingError
from shoal.estimators import DPMixture, StreamingDPMixture, mixture_of
from shoal.plotting.colours import colour_of
from shoal.plotting.figures import inks_of, new_axes, plain
from shoal.points.arrays import Array, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHUNKS = 100
"""Number of chunks in which a stream is learnt for its score."""
REFINED = ("refined", "split")
MOST_RISES = 200


class BoundDisplay:
    """A value over the course of a fit. Made by `from_estimator` or `from_stream`.

    Of a batch fit: the bound on the log evidence, or for samplers and search the log joint, after each round. Of a
    stream: the mean log density of the points of each chunk, just before they were learnt.

    Parameters
    ----------
    at, value : (M,) arrays
        Rounds or points, ascending, and the value in nats.
    rises : (R,) int array
        Indices of the values that are marked. Of a batch fit: where the bound rose by more than `min_rise` nats a
        point.
    marks : (L,) int array
        Points at which refinements changed the mixture of a stream.
    at_name, value_name : str
        Names of the axes.

    Attributes
    ----------
    figure_, ax_ : matplotlib's Figure and Axes
    line_ : Line2D of the values
    rises_ : Line2D of the marked values, or None
    marks_ : list of Line2D
    """

    def __init__(
        self,
        at: Array,
        value: Array,
        *,
        rises: IntArray | None = None,
        marks: IntArray | None = None,
        at_name: str = "round",
        value_name: str = "bound on the log evidence, nats",
    ) -> None:
        self.at = np.asarray(at)
        self.value = np.asarray(value)
        self.rises = np.zeros(0, dtype=np.int64) if rises is None else rises
        self.marks = np.zeros(0, dtype=np.int64) if marks is None else marks
        self.at_name = at_name
        self.value_name = value_name

    @classmethod
    def from_estimator(cls, estimator: Any, *, min_rise: float = 1e-5, ax: "Axes | None" = None, **style: Any) -> Self:
        """Draw the bound of a fitted `DPMixture` over its rounds, from `elbo_history_`.

        Rounds in which the bound rose by more than `min_rise` nats a point are marked, unless there are more than 200.
        The record of vdp and fast-vdp holds the best bound so far. So these are splits and joins that were accepted,
        and the rounds that settled them.

        Raises SettingError for a `StreamingDPMixture`, whose course needs its points: `from_stream`.
        """
        if isinstance(estimator, StreamingDPMixture):
            raise SettingError(
                "a StreamingDPMixture keeps no bound; give its points to BoundDisplay.from_stream(estimator, X)"
            )
        mixture = mixture_of(estimator)
        assert isinstance(estimator, DPMixture)
        history = np.asarray(estimator.elbo_history_, dtype=np.float64).reshape(-1)
        rises = np.flatnonzero(np.diff(history) > min_rise * mixture.points_seen) + 1
        sampled = hasattr(estimator, "samples_") or hasattr(estimator, "log_joint_")
        display = cls(
            np.arange(len(history), dtype=np.float64),
            history,
            rises=rises if len(rises) <= MOST_RISES and not sampled else None,
            at_name="sweep" if hasattr(estimator, "samples_") else "round",
            value_name="log joint of points and partition, nats" if sampled else "bound on the log evidence, nats",
        )
        return display.plot(ax=ax, **style)

    @classmethod
    def from_stream(
        cls, estimator: Any, X: Any, *, chunk: int | None = None, ax: "Axes | None" = None, **style: Any
    ) -> Self:
        """Learn rows X (N, D) in their order by a fresh copy of a `StreamingDPMixture`, and draw its running score.

        A value is the mean log density of `chunk` rows before they were learnt; None: of a hundredth of X, at least 10.
        The first chunk has no value.

        Costs about as much as learning X. Raises NoPointsError for fewer rows than two chunks, SettingError.
        """
        if not isinstance(estimator, StreamingDPMixture):
            raise SettingError(f"{type(estimator).__name__} is no stream; give a StreamingDPMixture, or from_estimator")
        n = int(X.shape[0]) if hasattr(X, "shape") else len(X)
        step = max(10, -(-n // CHUNKS)) if chunk is None else int(chunk)
        if step < 1 or n < 2 * step:
            raise NoPointsError(f"{n} points give no running score in chunks of {step}; give more points")
        rows = X.iloc if hasattr(X, "iloc") else X if hasattr(X, "shape") else np.asarray(X)
        learner: StreamingDPMixture = clone(estimator)
        learner.fit(rows[:step])
        at, value = [], []
        for start in range(step, n, step):
            part = rows[start : start + step]
            at.append(min(start + step, n))
            value.append(learner.score(part))
            learner.partial_fit(part)
        marks = sorted({event.offset for event in learner.events_ if event.kind in REFINED})
        display = cls(
            np.array(at),
            np.array(value),
            marks=np.array(marks, dtype=np.int64),
            at_name="points of the stream",
            value_name="log density before learning, nats",
        )
        return display.plot(ax=ax, **style)

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw into `ax`, or into a new figure."""
        self.figure_, self.ax_ = new_axes(ax, (7.0, 3.6))
        inks = inks_of(self.ax_)
        colour = colour_of(0, dark=inks.dark)
        self.marks_ = [
            self.ax_.axvline(int(at), color=inks.faint, linewidth=0.8, alpha=0.7, zorder=0) for at in self.marks
        ]
        alone = "o" if len(self.value) == 1 else ""  # a line needs two
        (self.line_,) = self.ax_.plot(self.at, self.value, color=colour, linewidth=1.5, marker=alone)
        self.rises_: Any = None
        if len(self.rises):
            (self.rises_,) = self.ax_.plot(
                self.at[self.rises], self.value[self.rises], linestyle="", marker="o", markersize=4.5,
                color=colour_of(1, dark=inks.dark), label=f"the bound rose ({len(self.rises)} rounds)",
            )  # fmt: skip
        if self.marks_:
            self.marks_[0].set_label(f"refinement changed components ({len(self.marks)})")
        if self.rises_ is not None or self.marks_:
            self.ax_.legend(frameon=False, fontsize="small", loc="lower right")
        self.ax_.set_xlabel(self.at_name)
        self.ax_.set_ylabel(self.value_name)
        self.ax_.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        self.ax_.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        plain(self.ax_)
        return self
