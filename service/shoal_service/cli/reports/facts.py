"""Contents of a report: the fit of a file, in values that the page and the pictures read."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.errors import NoPointsError
from shoal_service.cli.exits import CommandError
from shoal_service.cli.fit_batch import fit_file
from shoal_service.cli.fit_stream import learn_file, open_rows_of_model
from shoal_service.cli.reports.scan import Scan, scan_file

if TYPE_CHECKING:
    from shoal.clusters import Clustering, Hierarchy
    from shoal.mixture import MixtureSnapshot, TellingFeature
    from shoal_service.cli.readers import ReadOptions

FEWEST_FOR_STABILITY = 20
MOST_SCORES = 200


class ClusterChoice(NamedTuple):
    """The clusters that were asked for; by default as many as the data show."""

    n: int | None = None
    resolution: float | None = None


class Source(NamedTuple):
    """The file."""

    name: str
    n_bytes: int
    sha256: str


class Agreement(NamedTuple):
    """Two fits, each of every second point."""

    clusters: float
    components: float
    n_clusters: tuple[int, int]


class Facts(NamedTuple):
    """Everything that a report tells."""

    source: Source
    n_points: int
    model: Any
    """The fitted estimator."""
    settings: dict[str, Any]
    """The parameters that it was made with."""
    mixture: "MixtureSnapshot"
    hierarchy: "Hierarchy"
    clustering: "Clustering"
    telling: dict[int, list["TellingFeature"]]
    """Of each component."""
    cluster_telling: dict[int, list["TellingFeature"]]
    scan: Scan
    course: list[tuple[int, float]]
    """Of a stream: points seen, and the mean log density of the newest of them before they were learnt."""
    agreement: Agreement | None
    stability_wanted: bool

    @property
    def streamed(self) -> bool:
        """Whether the file was learnt in one pass."""
        return hasattr(self.model, "events_")

    def feature_name(self, feature: str | int) -> str:
        """The name of a feature; its number where the file names none."""
        if isinstance(feature, str):
            return feature
        return f"feature {feature}" if self.scan.names is None else self.scan.names[feature]


def facts_of(
    file: str,
    read: "ReadOptions",
    settings: dict[str, Any],
    *,
    streamed: bool,
    choice: ClusterChoice,
    stability: bool,
    most_anomalies: int,
) -> Facts:
    """Fit a file and gather what there is to tell. The file is read twice, three times with stability.

    Raises CommandError, SettingError.
    """
    from shoal.clusters import cut, hierarchy_of, telling_of_clusters
    from shoal.estimators import mixture_of

    source = _source(file)
    scores: list[tuple[int, float]] = []
    if streamed:

        def score(before: Any, x: Any) -> None:
            if settings.get("family") != "auto" or before.family_reason_ is not None:  # before, another family scores
                scores.append((len(x), before.score(x)))

        model, n_points = learn_file(file, read, settings, before=score, most_rows=read.chunk_rows)
    else:
        model = fit_file(file, read, settings)
        n_points = len(model.labels_)
    mixture = mixture_of(model)
    hierarchy = hierarchy_of(mixture)
    clustering = cut(hierarchy, choice.n, choice.resolution)
    return Facts(
        source,
        n_points,
        model,
        settings,
        mixture,
        hierarchy,
        clustering,
        dict(zip(mixture.ids.tolist(), mixture.telling(), strict=True)),
        telling_of_clusters(mixture, clustering),
        scan_file(file, read, mixture, n_points, most_anomalies),
        _course(n_points, scores),
        _agreement(model, file, read, n_points, choice) if stability else None,
        stability,
    )


def _source(file: str) -> Source:
    path = Path(file)
    try:
        with path.open("rb") as data:
            digest = hashlib.file_digest(data, "sha256").hexdigest()
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror or error}") from error
    return Source(path.name, path.stat().st_size, digest)


def _course(n_points: int, scores: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most so many values, each the mean of neighbouring chunks. The first chunk has no score."""
    step = max(1, -(-len(scores) // MOST_SCORES))
    found, seen = [], n_points - sum(n for n, _ in scores)
    for start in range(0, len(scores), step):
        some = scores[start : start + step]
        n = sum(rows for rows, _ in some)
        seen += n
        found.append((seen, sum(rows * score for rows, score in some) / n))
    return found


def _agreement(model: Any, file: str, read: "ReadOptions", n_points: int, choice: ClusterChoice) -> Agreement | None:
    """None for too few points, or too few that are kept."""
    if n_points < FEWEST_FOR_STABILITY:
        return None
    if hasattr(model, "stability"):
        try:
            found = model.stability(choice.n, resolution=choice.resolution)
        except NoPointsError:  # methods without refinements keep no window
            return None
        return Agreement(found.agreement, found.component_agreement, found.n_clusters)
    from sklearn.base import clone

    from shoal.points.agreement import adjusted_rand_index
    from shoal.points.rows import stacked

    with open_rows_of_model(file, read, model.family) as points:
        x = stacked(list(points))
    components, clusters, numbers = [], [], []
    for first in (0, 1):
        half = clone(model).set_params(callback=None).fit(x[first::2])
        labels, live = half.predict(x), int(half.labels_.max()) + 1
        found = half.clusters(None if choice.n is None else min(choice.n, live), resolution=choice.resolution)
        labels[labels >= live] = 0  # a component without points of its own, which a truncated model may have
        components.append(labels)
        clusters.append(found.of_components(labels))
        numbers.append(found.n_clusters)
    return Agreement(adjusted_rand_index(*clusters), adjusted_rand_index(*components), (numbers[0], numbers[1]))
