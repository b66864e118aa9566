"""What readers ask of a published view: pages of components, one component with its past, predictions.

Pure functions of a view, safe in any thread. Columns go to `wire.output`, which writes them.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import NoPointsError, UnknownComponentError
from shoal_service.errors import LimitError, NoPointsYetError
from shoal_service.streams.published import PublishedView
from shoal_service.wire import ComponentColumns, PredictionColumns, Sparse, Table, encode_cursor

if TYPE_CHECKING:
    from shoal.mixture import Lineage, MixtureSnapshot

MAX_PAGE_NUMBERS = 4_000_000
"""Most numbers in the moments of one page: a page of wide covariances ends earlier, and `next` goes on."""
MAX_COVARIANCE_NUMBERS = 4_000_000
"""Most numbers in one covariance: that of more than 2,000 features is not shown."""
MAX_ANCESTORS = 1_000
"""Most ancestors told of one component: those that retired last."""


def page_of(
    view: PublishedView, limit: int, after: tuple[float, int] | None, *, covariance: bool
) -> tuple[ComponentColumns, str | None]:
    """Up to `limit` components, largest first, those after the cursor (mass, id), and the cursor of the next page."""
    snapshot = view.snapshot
    if snapshot is None or snapshot.n_components == 0:
        return _columns_of_nothing(), None
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
    )
    if len(kept) == len(rows):
        return columns, None
    return columns, encode_cursor(float(columns.mass[-1]), int(columns.ids[-1]))


def component_of(view: PublishedView, component: int) -> dict[str, Any]:
    """One component by its id, live or not, with its covariance, its ancestors, and the live ids that it lives on in.

    Raises UnknownComponentError for an id that was never given out, or is forgotten.
    """
    snapshot = view.snapshot
    if snapshot is None:
        raise UnknownComponentError(f"component {component} is not known; stream {view.stream!r} has no points yet")
    past: dict[str, Any] = {"retired_at": None, "successors": []}
    shown: MixtureSnapshot | None = snapshot
    if not np.any(snapshot.ids == component):
        record, shown = snapshot.past(component)
        past = {"retired_at": record.retired_at, "successors": list(record.successors)}
        times = {"born_at": record.born_at, "last_seen_at": record.last_seen_at}
    else:
        row = snapshot.row_of(component)
        times = {"born_at": snapshot.born_at[row], "last_seen_at": snapshot.last_seen_at[row]}
    live = past["retired_at"] is None
    lineage = ancestors_of(snapshot.lineage, component)
    return {"id": component, "live": live, **_moments(shown, component), **times, **past, "lineage": lineage}


def predictions_of(view: PublishedView, x: "Table | Sparse") -> PredictionColumns:
    """Predictions for points x (N, D). Raises NoPointsYetError, and ShapeError for another D."""
    if view.snapshot is None:
        raise _nothing_to_predict_with(view)
    try:
        prediction = view.snapshot.predict(x)
    except NoPointsError:
        raise _nothing_to_predict_with(view) from None
    return PredictionColumns(
        view.snapshot.ids, prediction.component, prediction.log_density, prediction.novelty, prediction.resp
    )


def ancestors_of(lineage: "Lineage", component: int) -> list[dict[str, int]]:
    """The retired components that live on in this one, earliest retirement first; of a long lineage the latest part."""
    heir_of = np.repeat(np.arange(lineage.ids.size), np.diff(lineage.links))
    found: set[int] = set()
    heirs = np.array([component])
    while heirs.size:
        records = np.setdiff1d(heir_of[np.isin(lineage.successors, heirs)], list(found)).tolist()
        found.update(records)
        heirs = lineage.ids[records]
    return [
        {"id": int(lineage.ids[r]), "born_at": int(lineage.born_at[r]), "retired_at": int(lineage.retired_at[r])}
        for r in sorted(found)[-MAX_ANCESTORS:]
    ]


def _moments(shown: "MixtureSnapshot | None", component: int) -> dict[str, Any]:
    """Weight, mass and moments; of a retired component those it had at the end, None once they are forgotten."""
    if shown is None:
        return dict.fromkeys(("weight", "mass", "mean", "variance", "covariance"))
    row, narrow = shown.row_of(component), shown.location.size**2 <= MAX_COVARIANCE_NUMBERS
    return {
        "weight": shown.weights[row],
        "mass": shown.masses[row],
        "mean": shown.means[row],
        "variance": shown.variances[row],
        "covariance": shown.covariances(np.array([row]))[0] if narrow else None,
    }


def _nothing_to_predict_with(view: PublishedView) -> NoPointsYetError:
    return NoPointsYetError(
        f"stream {view.stream!r} has no points yet, so nothing can be predicted; post some to ingest"
    )


def _columns_of_nothing() -> ComponentColumns:
    none, rows = np.zeros(0), np.zeros((0, 0))
    ids = np.zeros(0, dtype=np.int64)
    return ComponentColumns(ids, none, none, rows, rows, ids, ids)
