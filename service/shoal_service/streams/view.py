"""Published views: what a stream's readers see, and the answers that are made of it.

A view is read-only. The functions are pure functions of a view and safe in any thread. The columns that they give are
written by `wire`.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.errors import NoPointsError, UnknownComponentError
from shoal_service.errors import LimitError, NoPointsYetError
from shoal_service.streams.learnt_rows import LEARNT, LearntRows
from shoal_service.wire import ComponentColumns, PredictionColumns, Sparse, Table, encode_cursor

if TYPE_CHECKING:
    from shoal.mixture import Lineage, MixtureSnapshot, StreamSettings, TellingFeature

MAX_PAGE_NUMBERS = 4_000_000
"""Most numbers in the moments of one page. A page of wide covariances ends earlier; `next` continues it."""
MAX_COVARIANCE_NUMBERS = 4_000_000
"""Most numbers in one covariance. A covariance of more than 2,000 features is not shown."""
MAX_ANCESTORS = 1_000
"""Most ancestors listed for one component: those that retired last."""


class Score(NamedTuple):
    """Predictive score of a stream: the mean log density of its newest points, each just before it was learnt."""

    mean: float | None = None
    """In nats. None where it is not known."""
    n_points: int = 0


class Summary(NamedTuple):
    """Values of a view that a list of streams shows."""

    status: str
    points_seen: int
    n_components: int
    score: Score
    settings: "StreamSettings | None"
    """With the family that the learner has chosen. None before the first state."""
    newest_time: float | None
    late_points: int
    made_at: float | None


class PublishedView(NamedTuple):
    """A stream as of one entry of its log."""

    stream: str
    incarnation: str
    """Empty for the stream `default` before its first points."""
    seq: int
    """The last entry that the view includes."""
    log_offset: int
    """Points in the log up to and including that entry. Never decreases within an incarnation."""
    points_seen: int
    """Points that the state has learnt. Differs from `log_offset` after a dead letter and after a restore."""
    status: str
    """`empty`, `warming_up` or `live`."""
    snapshot: "MixtureSnapshot | None"
    """None before the first points of the stream `default`."""
    dead_letters: int = 0
    """Dead letters of the stream so far."""
    score: Score = Score()
    newest_time: float | None = None
    """Newest time of a point, in seconds since 1970. None where the stream does not forget by time."""
    late_points: int = 0
    """Points that were late by more than two half-lives."""
    made_at: float | None = None
    """When the view was made, in seconds since 1970, by the clock of the process that made it. None: not known."""

    @property
    def settings(self) -> "StreamSettings | None":
        """The settings of the stream at that entry. None before the first points of the stream `default`."""
        return None if self.snapshot is None else self.snapshot.settings

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features. None where they have none."""
        return None if self.settings is None else self.settings.feature_names

    @property
    def etag(self) -> str:
        """Strong entity tag: equal only for the same entry of the same incarnation."""
        return self.etag_with("")

    def etag_with(self, version: str) -> str:
        """The same for an answer that also depends on something of a version, such as labels. Empty: on nothing."""
        return f'"{self.incarnation}.{self.seq}{"." if version else ""}{version}"'

    def prepare(self) -> None:
        """Compute in advance what the first prediction needs."""
        if self.snapshot is not None and self.snapshot.n_components:
            self.snapshot.predict(self.snapshot.settings.domain.example(self.snapshot.location))


def page_of(
    view: PublishedView, limit: int, after: tuple[float, int] | None, *, covariance: bool
) -> tuple[ComponentColumns, str | None]:
    """Up to `limit` components after the cursor (mass, id), largest first, and the cursor of the next page."""
    snapshot = view.snapshot
    if snapshot is None or snapshot.n_components == 0:
        return _no_columns(), None
    rows = snapshot.largest_first
    if after is not None:
        mass, component = after
        later = (snapshot.masses[rows] < mass) | ((snapshot.masses[rows] == mass) & (snapshot.ids[rows] > component))
        rows = rows[later]
    d = snapshot.location.size
    if covariance and d * d > MAX_COVARIANCE_NUMBERS:
        raise LimitError(
            f"a covariance of {d:,} features has {d * d:,} numbers, at most {MAX_COVARIANCE_NUMBERS:,} are shown; "
            "ask without fields=covariance"
        )
    kept = rows[: max(1, min(limit, MAX_PAGE_NUMBERS // (d * d if covariance else 2 * d)))]
    columns = ComponentColumns(
        snapshot.ids[kept],
        snapshot.weights[kept],
        snapshot.masses[kept],
        snapshot.means[kept],
        snapshot.variances[kept],
        snapshot.born_at[kept],
        snapshot.last_seen_at[kept],
        snapshot.covariances(kept) if covariance else None,
        telling=list(map(_telling, snapshot.telling(kept))),
        levels=snapshot.level_shares(kept) if snapshot.settings.level_names else None,
    )
    if len(kept) == len(rows):
        return columns, None
    return columns, encode_cursor(float(columns.mass[-1]), int(columns.ids[-1]))


def component_of(view: PublishedView, component: int) -> dict[str, Any]:
    """One component by its id, live or retired, with its covariance, its ancestors and its live successors.

    Raises UnknownComponentError for an id that was never assigned, or that is forgotten.
    """
    snapshot = view.snapshot
    if snapshot is None:
        raise UnknownComponentError(f"component {component} is not known; stream {view.stream!r} has no points yet")
    past: dict[str, Any] = {"retired_at": None, "successors": []}
    source: MixtureSnapshot | None = snapshot
    if not np.any(snapshot.ids == component):
        record, source = snapshot.past(component)
        past = {"retired_at": record.retired_at, "successors": list(record.successors)}
        times = {"born_at": record.born_at, "last_seen_at": record.last_seen_at}
    else:
        row = snapshot.row_of(component)
        times = {"born_at": snapshot.born_at[row], "last_seen_at": snapshot.last_seen_at[row]}
    live = past["retired_at"] is None
    lineage = ancestors_of(snapshot.lineage, component)
    told = _telling(snapshot.telling(np.array([snapshot.row_of(component)]))[0]) if live else []
    moments = _moments(source, component)
    found = {"id": component, "live": live, **moments, **times, "telling": told, **past, "lineage": lineage}
    if live and snapshot.settings.level_names:
        found["levels"] = snapshot.level_shares(np.array([snapshot.row_of(component)]))[0]
    return found


def _telling(features: "list[TellingFeature]") -> list[dict[str, Any]]:
    return [{name: value for name, value in one._asdict().items() if value is not None} for one in features]


def predictions_of(view: PublishedView, x: "Table | Sparse") -> PredictionColumns:
    """Predictions for points x (N, D). Raises NoPointsYetError, and ShapeError for another D."""
    if view.snapshot is None:
        raise _no_points(view)
    try:
        prediction = view.snapshot.predict(x)
    except NoPointsError:
        raise _no_points(view) from None
    return PredictionColumns(
        view.snapshot.ids, prediction.component, prediction.log_density, prediction.novelty, prediction.resp
    )


def scores_of(view: PublishedView, x: "Table | Sparse") -> LearntRows:
    """Answers for points x (N, D) as if they were learnt now; the best existing component of each, even where
    it would begin one. Raises as `predictions_of`.
    """
    if view.snapshot is None:
        raise _no_points(view)
    try:
        found = view.snapshot.predict(x, with_resp=False)
    except NoPointsError:
        raise _no_points(view) from None
    scores = np.empty(len(found.component), LEARNT)
    scores["component"], scores["novelty"], scores["log_density"] = found.component, found.novelty, found.log_density
    room = view.snapshot.n_components < view.snapshot.settings.max_components
    scores["born"] = room & (found.novelty > view.snapshot.settings.birth_threshold)
    return scores


def ancestors_of(lineage: "Lineage", component: int) -> list[dict[str, int]]:
    """The retired components whose mass went into this one, earliest retirement first, at most `MAX_ANCESTORS`."""
    record_of = np.repeat(np.arange(lineage.ids.size), np.diff(lineage.links))  # that each successor is in
    found: set[int] = set()
    components = np.array([component])
    while components.size:
        records = np.setdiff1d(record_of[np.isin(lineage.successors, components)], list(found)).tolist()
        found.update(records)
        components = lineage.ids[records]
    return [
        {"id": int(lineage.ids[r]), "born_at": int(lineage.born_at[r]), "retired_at": int(lineage.retired_at[r])}
        for r in sorted(found)[-MAX_ANCESTORS:]
    ]


def _moments(source: "MixtureSnapshot | None", component: int) -> dict[str, Any]:
    """Weight, mass and moments. A retired component has those of its last moment, or None once they are forgotten."""
    if source is None:
        return dict.fromkeys(("weight", "mass", "mean", "variance", "covariance"))
    row, narrow = source.row_of(component), source.location.size**2 <= MAX_COVARIANCE_NUMBERS
    return {
        "weight": source.weights[row],
        "mass": source.masses[row],
        "mean": source.means[row],
        "variance": source.variances[row],
        "covariance": source.covariances(np.array([row]))[0] if narrow else None,
    }


def _no_points(view: PublishedView) -> NoPointsYetError:
    return NoPointsYetError(
        f"stream {view.stream!r} has no points yet, so nothing can be predicted; post some to ingest"
    )


def _no_columns() -> ComponentColumns:
    none, rows = np.zeros(0), np.zeros((0, 0))
    ids = np.zeros(0, dtype=np.int64)
    return ComponentColumns(ids, none, none, rows, rows, ids, ids)


def summary_of(view: PublishedView) -> Summary:
    """Values of a view that a list of streams shows."""
    snapshot = view.snapshot
    n_components, settings = (0, None) if snapshot is None else (snapshot.n_components, snapshot.settings)
    times = (view.newest_time, view.late_points, view.made_at)
    return Summary(view.status, view.points_seen, n_components, view.score, settings, *times)
