"""A batch fit under its prior, in the units of the data: the best of several starts, with its predictions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import SettingError, did_you_mean
from shoal.estimators.batch_engines import check_family, run_engine
from shoal.families import FAMILIES, family_exists, take
from shoal.mixture import (
    BatchFit,
    MixtureSnapshot,
    Moments,
    PlacedPrior,
    Predicted,
    Predictor,
    Progress,
    ProgressCallback,
    StreamSettings,
    TellingFeature,
    empty_lineage,
    log_density,
    predictor_of,
    telling_features,
)
from shoal.points.arrays import Array, IntArray, read_only
from shoal.points.levels import LevelNames
from shoal.points.rows import Points
from shoal.sampling import pool_samples
from shoal.sequential.prior import choose_prior

MOST_ROWS = 1_000
"""Most rows, drawn at random, for an automatic prior; as in a stream."""


def check_family_exists(family: Any) -> None:
    """Raise SettingError for what is neither the name of a family nor a prior of one."""
    if family_exists(family if isinstance(family, str) else getattr(type(family), "name", None)):
        return
    if isinstance(family, str):
        raise SettingError(
            f"family is {family!r}; {did_you_mean(family, FAMILIES)}choose one of {', '.join(FAMILIES)}, or give a "
            "prior object"
        )
    raise SettingError(f"family is {family!r}; give one of {', '.join(FAMILIES)}, or a prior from shoal.families")


def place_prior(family: Any, x: Points, concentration: float, rng: np.random.Generator) -> PlacedPrior:
    """The prior for points x (N, D), N >= 1.

    A prior object applies to the points as they are: location 0, scale 1. For a family's name the prior is made from
    the data, as in a stream (`sequential.prior`). Columns are standardised (a constant one by the median deviation of
    the others). The within-component variance and its weight are those that best predict 1,000 random rows, each from
    the rows before it in one pass. The evidence is then that of a prior chosen from the same data. It is comparable
    between methods and truncations under one random_state, and optimistic beside that of a prior chosen without the
    data. Raises SettingError.
    """
    check_family_exists(family)
    if isinstance(family, str):
        rows = x[rng.permutation(len(x))[:MOST_ROWS]]
        settings = StreamSettings(family=family, n_features=x.shape[1], concentration=concentration)
        chosen = choose_prior(rows, settings)
        return PlacedPrior(chosen.location, chosen.scale, chosen.prior, learned=True)
    d = x.shape[1]
    if family.n_features != d:
        raise SettingError(
            f"family is a prior for {family.n_features} features, but the points have {d}; give a prior for {d}"
        )
    return PlacedPrior(np.zeros(d), np.ones(d), family)


class FittedBatch(NamedTuple):
    """A fit with components in the order for users."""

    placed: PlacedPrior
    fit: BatchFit
    """Its statistics are of standardised points, its bounds in the units of the data; it has no `resp`."""
    density: BatchFit
    """The mixture for densities: `fit`, or the average of the samples."""
    labels: IntArray | None
    """(N,) 0..K-1, all in use; None of a data set on disk."""
    sizes: IntArray
    """(T,) training points whose best component each is."""
    predictor: Predictor
    """Predictions of `fit`."""

    def predict(self, x: Points, *, with_resp: bool) -> Predicted:
        """Predictions for points x (N, D); log densities are those of standardised points."""
        return self.predictor.predict(x, with_resp=with_resp, placed=self.placed.standardise)

    def log_density(self, x: Points) -> Array:
        """(N,) log predictive density of points x (N, D), nats."""
        standardised = self.placed.standardise(x)
        return log_density(self.placed.prior, self.density, standardised) - self.placed.log_volume

    def snapshot(
        self,
        concentration: float,
        names: tuple[str, ...] | None,
        level_names: LevelNames | None = None,
        *,
        with_unused: bool = False,
    ) -> MixtureSnapshot:
        """The components with an assigned training point as a snapshot: ids are their numbers, and all are equally old.

        `names`: of the features; `level_names`: of the levels of categories. Weights stay as they are, so that
        `new_weight` is that of everything else. `with_unused`: also the components that are the best of no point, so
        that the density is that of the fit.
        """
        placed, used = self.placed, len(self.sizes) if with_unused else int(np.count_nonzero(self.sizes))
        stats = take(self.fit.stats, slice(0, used))
        weights, zeros = np.exp(self.fit.log_weight[:used]), read_only(np.zeros(used, dtype=np.int64))
        return MixtureSnapshot(
            settings=StreamSettings(
                family=type(placed.prior).name,
                n_features=len(placed.location),
                concentration=concentration,
                prior="auto" if placed.learned else placed.prior,
                feature_names=names,
                level_names=level_names,
            ),
            status="live",
            points_seen=int(self.sizes.sum()),
            decayed_count=float(self.sizes.sum()),
            pruned_mass=0.0,
            births_refused=0,
            ids=read_only(np.arange(used)),
            masses=stats[0],
            born_at=zeros,
            last_seen_at=zeros,
            weights=read_only(weights),
            new_weight=max(1.0 - float(weights.sum()), 0.0),
            location=placed.location,
            scale=placed.scale,
            prior=placed.prior,
            stats=stats,
            lineage=empty_lineage(),
        )

    @property
    def means(self) -> Array:
        """(T, D) means of the posterior predictives."""
        family, placed = self.placed.prior, self.placed
        return family.predictive_mean(family.posterior(self.fit.stats)) * placed.scale + placed.location

    def telling(
        self, names: Sequence[str] | None, n: int, level_names: LevelNames | None = None
    ) -> list[list[TellingFeature]]:
        """The features that tell most of each component, at most `n` each."""
        family, scale = self.placed.prior, self.placed.scale
        variances = family.predictive_variance(family.posterior(self.fit.stats)) * scale**2
        moments = Moments(self.fit.stats, self.fit.stats[0], self.means, variances)
        return telling_features(family, moments, names, np.arange(len(moments.masses)), n, level_names)

    def covariances(self) -> Array:
        """(T, D, D) covariances of the posterior predictives."""
        family, scale = self.placed.prior, self.placed.scale
        return family.predictive_covariance(family.posterior(self.fit.stats)) * np.outer(scale, scale)


def fit_batch(
    family: Any,
    method: str,
    x: Points,
    *,
    concentration: float,
    settings: dict[str, Any],
    n_init: int,
    rng: np.random.Generator,
    callback: ProgressCallback,
) -> FittedBatch:
    """Fit raw points x (N, D) `n_init` times under one prior and keep the fit with the best bound."""
    check_family(method, family)
    placed = place_prior(family, x, concentration, rng)
    z = placed.standardise(x)
    volume = len(x) * placed.log_volume
    best: BatchFit | None = None
    for start in range(n_init):
        progress = _scaled(callback, start, n_init, volume)
        fit = run_engine(method, placed.prior, z, concentration, settings, rng, progress)
        best = fit if best is None or fit.elbo > best.elbo else best
    assert best is not None, "n_init is at least one"
    density = pool_samples(placed.prior, z, best) if "samples" in best.extra else None
    labels = _labels_of(best)
    fit, rank, sizes = presented(best, np.bincount(labels, minlength=len(best.stats[0])), volume)
    density = fit if density is None else density._replace(extra={})
    return FittedBatch(placed, fit, density, rank[labels], sizes, predictor_of(placed.prior, fit))


def _labels_of(fit: BatchFit) -> IntArray:
    """(N,) the best component of each point."""
    if fit.resp is None and "labels" in fit.extra:
        return np.asarray(fit.extra["labels"], dtype=np.int64)
    if fit.resp is None:
        return np.asarray(fit.extra["samples"][int(fit.extra["best"])], dtype=np.int64)
    return np.asarray(fit.resp.argmax(axis=1), dtype=np.int64)


def presented(fit: BatchFit, sizes: IntArray, volume: float) -> tuple[BatchFit, IntArray, IntArray]:
    """The fit in the units of the data, components with points first, then empty ones, by mass.

    `sizes` (T,) are the points whose best component each is. Returns the ranks (T,) of the components and their sizes
    in the new order, too.
    """
    order = np.lexsort((-fit.stats[0], sizes == 0))
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    extra = dict(fit.extra)
    for name in ("log_joint", "trace", "exact_elbo"):
        if name in extra:
            extra[name] = extra[name] - volume
    fit = fit._replace(
        stats=take(fit.stats, order),
        resp=None,
        log_weight=fit.log_weight[order],
        elbo=fit.elbo - volume,
        elbo_history=fit.elbo_history - volume,
        extra=extra,
    )
    return fit, rank, sizes[order]


def _scaled(callback: ProgressCallback, start: int, n_init: int, volume: float) -> ProgressCallback:
    """A callback for an engine that reports bounds in the units of the data and fractions of all starts."""
    if callback is None:
        return None

    def report(progress: Progress) -> None:
        message, fraction = progress.message, progress.fraction
        if n_init > 1:
            message = f"start {start + 1} of {n_init}: {message}"
            fraction = None if fraction is None else (start + fraction) / n_init
        callback(progress._replace(elbo=progress.elbo - volume, message=message, fraction=fraction))

    return report
