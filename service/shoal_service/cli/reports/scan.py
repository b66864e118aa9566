"""A pass over a file after the fit: what each point belongs to, the least probable points, and points to be drawn."""

import heapq
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal_service.cli.output import progress_bar

if TYPE_CHECKING:
    from shoal.mixture import MixtureSnapshot
    from shoal_service.cli.readers import Chunk, ReadOptions

MOST_DRAWN = 1_500
MOST_UNUSUAL = 3


class Unusual(NamedTuple):
    """A feature of a point."""

    feature: int
    value: float
    deviations: float
    """Distance from the mean of the point's component, in its standard deviations."""


class Anomaly(NamedTuple):
    """A point of low density."""

    log_density: float
    place: str
    """Where it stands in the file."""
    key: str | None
    novelty: float
    component: int
    unusual: list[Unusual]
    """The features that lie farthest from their component's mean; empty where points are no places."""


class Scan(NamedTuple):
    """Result of the pass."""

    counts: dict[int, int]
    """Points of each component."""
    mean_log_density: float
    anomalies: list[Anomaly]
    """Least probable first; equals in the order of the file."""
    drawn: Any
    """(n, D) points at equal distances, or None where points are no places."""
    names: list[str] | None
    """Names of the columns, where the file has them."""


def scan_file(file: str, read: "ReadOptions", mixture: "MixtureSnapshot", n_points: int, most: int) -> Scan:
    """Predict every point of a file by a mixture, chunk by chunk; keep the `most` least probable ones."""
    from shoal.estimators.level_numbers import with_level_numbers
    from shoal_service.cli.fit_stream import open_rows_of_model

    settings = mixture.settings
    located, levels = settings.domain.located, settings.level_names or {}
    step = max(1, -(-n_points // MOST_DRAWN))
    counts: dict[int, int] = dict.fromkeys(mixture.ids.tolist(), 0)
    lowest: list[tuple[float, int, Anomaly]] = []
    drawn: list[Any] = []
    names: Any = None
    total, done = 0.0, 0
    rows = open_rows_of_model(file, read, settings.family, holes=settings.takes_holes)
    with rows as points, progress_bar("look", points) as advance:
        for given in points.chunks():
            chunk = given
            if given.points.dtype.kind == "O":
                holes = settings.takes_holes
                numbers, _ = with_level_numbers(given.points, settings.family, levels, extend=False, holes=holes)
                chunk = given._replace(points=numbers.astype(np.float64))
            found = mixture.predict(chunk.points, with_resp=False)
            for component, n in zip(*np.unique(found.component, return_counts=True), strict=True):
                counts[int(component)] += int(n)
            total += float(found.log_density.sum())
            for i in np.argsort(found.log_density, kind="stable")[:most].tolist():
                rank = (-float(found.log_density[i]), -(done + i))
                if len(lowest) < most or rank > lowest[0][:2]:
                    entry = (*rank, _anomaly(mixture, chunk, i, found, located))
                    (heapq.heappush if len(lowest) < most else heapq.heapreplace)(lowest, entry)
            if located:
                some = np.asarray(chunk.points, dtype=np.float64)[-done % step :: step]
                drawn.append(some[~np.isnan(some).any(axis=1)])
            names = chunk.names if names is None else names
            done += len(chunk.points)
            advance(done)
    anomalies = [entry[-1] for entry in sorted(lowest, reverse=True)]
    return Scan(
        counts,
        total / max(done, 1),
        anomalies,
        np.concatenate(drawn) if drawn else None,
        names and list(map(str, names)),
    )


def _anomaly(mixture: "MixtureSnapshot", chunk: "Chunk", i: int, found: Any, located: bool) -> Anomaly:
    component, keys = int(found.component[i]), chunk.fields.keys
    return Anomaly(
        float(found.log_density[i]),
        str(chunk.place(i)),
        None if keys is None or keys[i] is None else str(keys[i]),
        float(found.novelty[i]),
        component,
        _unusual(mixture, np.asarray(chunk.points[i], dtype=np.float64), component) if located else [],
    )


def _unusual(mixture: "MixtureSnapshot", x: Any, component: int) -> list[Unusual]:
    row = mixture.row_of(component)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(x - mixture.means[row]) / np.sqrt(mixture.variances[row])
    apart = np.nan_to_num(apart, nan=0.0, posinf=np.finfo(float).max)
    order = np.argsort(-apart, kind="stable")[:MOST_UNUSUAL]
    return [Unusual(int(d), float(x[d]), float(apart[d])) for d in order if apart[d] >= 2.0]
