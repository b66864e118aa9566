"""A variational fit of a data set that need not fit in memory.

1. A sample is drawn, and all rows are checked. Planes of a tree follow from the sample.
2. Workers sort all points down the planes. The sums of the leaves make the tree (Kurihara, Welling and Vlassis 2006).
3. The search of `fast-vdp` finds components on the tree, in this process. Its bound counts all points.
4. Workers make sweeps over the points, which no longer share responsibilities. Where that shows that cells were too
   coarse, the costliest are divided, and the search continues on the finer tree; the better of both is kept.
5. Sweeps go on until one gains next to nothing.
"""

from typing import Any, NamedTuple

import numpy as np

from shoal.errors import SettingError
from shoal.families import take
from shoal.families.capabilities import working_rows
from shoal.families.natural_statistics import origin_for
from shoal.inference import Model, StickPrior, bound_of, locations_of, stick_posterior, units_of
from shoal.mixture import BatchFit, PlacedPrior, Progress, ProgressCallback
from shoal.offline.passes import (
    CellTask,
    CostTask,
    Rows,
    SweepTask,
    Swept,
    Work,
    leaf_sums,
    leaf_sums_of_block,
    sweep_of_block,
    swept,
    tying_cost,
)
from shoal.points.arrays import Array, IntArray
from shoal.variational import Known, Planes, TreeFit, TreeSearch, fit_tree, planes_of, split_leaves, stick_fit, tree_of

_LEAVES = 2_000
"""Leaves of the first tree."""
_LEAF_ELEMENTS = 1 << 22
"""Most elements of the scatter matrices of all leaves: 32 MiB of sums."""
_SAMPLE_ELEMENTS = 1 << 21
"""Elements of the sample: 16 MiB."""
_SAMPLE_A_LEAF = 8
"""Least points of the sample on each side of a plane that divides a cell."""
_REFINED = 2
"""Times that coarse cells are divided."""
_COARSE = 0.01
"""Nats a point that tying may cost; more, and the costliest cells are divided."""
_LEAST_MASS = 0.5
"""Points below which a component is removed."""
MOST_PROJECTED = 32
"""Most features of a family of counts, beyond which its locations depend on the other points of a block."""


class FitSettings(NamedTuple):
    """Settings of a fit."""

    search: TreeSearch
    sweeps: int | None
    """Most sweeps over the points, of which one is made always; None: until they settle, at most `search.max_iter`."""
    leaf_points: float | None = None
    """Points in a leaf of the first tree; None: a two-thousandth of all, or more where features are many."""


class DatasetFit(NamedTuple):
    """A fit of a data set."""

    fit: BatchFit
    best: IntArray  # (T,) points whose largest responsibility is for a component


def sample_rows(n_features: int) -> int:
    """Rows of the sample."""
    return max(8_000, _SAMPLE_ELEMENTS // n_features)


def fit_dataset(
    work: Work,
    placed: PlacedPrior,
    sample: Array,
    settings: FitSettings,
    rng: np.random.Generator,
    progress: ProgressCallback,
) -> DatasetFit:
    """Fit all points under a prior; `sample` (M, D) are raw rows drawn from them.

    The bound is exact and counts all points with responsibilities of their own; components that have emptied are
    removed. `extra`: `sticks` (T, 2), parameters of q(v); `nodes` (1,), the leaves of the tree; `tying_cost` (1,), the
    nats by which the first sweep over the points exceeds the bound on the leaves. Raises SettingError.
    """
    family = placed.prior
    if family.domain.sparse and family.n_features > MOST_PROJECTED:
        raise SettingError(
            f"the points of family {family.name!r} have {family.n_features} features; a data set on disk may have "
            f"{MOST_PROJECTED} of this family"
        )
    return _Fit(work, placed, sample, settings, rng, progress).run()


class _Kept(NamedTuple):
    """Components after a sweep over the points."""

    swept: Swept
    bound: float

    @property
    def mass(self) -> Array:
        mass: Array = self.swept.stats[0]
        return mass


class _Fit:
    """A fit under way."""

    def __init__(
        self,
        work: Work,
        placed: PlacedPrior,
        sample: Array,
        settings: FitSettings,
        rng: np.random.Generator,
        progress: ProgressCallback,
    ) -> None:
        self.work, self.placed, self.settings, self.rng, self.progress = work, placed, settings, rng, progress
        self.raw = Rows(sample)
        self.sample = working_rows(placed.prior, placed.standardise(placed.prior.domain.convert(sample)))
        self.origin = origin_for(placed.prior, self.sample)
        self.n = work.dataset.n_rows
        self.history: list[float] = []
        self.sweeps = 0

    @property
    def sticks(self) -> StickPrior:
        return self.settings.search.sticks

    @property
    def least(self) -> float:
        """Nats that a last sweep must gain."""
        return 0.1 * self.settings.search.tol * self.n

    def run(self) -> DatasetFit:
        planes = self._planes()
        found = self._searched(planes, None)
        kept = self._sweep(found.params, found.mass)
        tying = kept.bound - found.elbo
        for _ in range(_REFINED):
            finer = self._finer(planes, found, kept)
            if finer is None:
                break
            planes = finer
            found = self._searched(planes, Known(kept.swept.stats, kept.swept.entropy))
            after = self._sweep(found.params, found.mass)
            if after.bound <= kept.bound:
                break
            kept = after
        kept, settled = self._settled(kept)
        converged = found.converged and (settled or self.settings.sweeps is not None)
        return self._result(kept, converged, len(planes.leaves), tying)

    def _planes(self) -> Planes:
        where, n = locations_of(self.placed.prior, self.sample), len(self.sample)
        asked = self.settings.leaf_points
        n_leaves = _LEAVES if asked is None else int(np.ceil(self.n / asked))
        n_leaves = min(n_leaves, self._most_leaves(where.shape[1]), n)
        return planes_of(where, max(1.0, n / n_leaves), self.rng, units_of(self.placed.prior))

    def _most_leaves(self, width: int) -> int:
        return max(2, _LEAF_ELEMENTS // width**2)

    def _searched(self, planes: Planes, known: Known | None) -> TreeFit:
        family, task = self.placed.prior, CellTask(self.placed, planes, self.origin)
        leaf_sums_of_block(task, self._few())  # compile here what all workers are about to use
        tree = tree_of(family, planes, leaf_sums(self.work, task), self.origin)
        found = fit_tree(
            family,
            tree,
            planes,
            self.origin,
            self.settings.search,
            rng=self.rng,
            known=known,
            progress=self._observed(len(self.history)),
        )
        self.history += found.history.tolist()
        return found

    def _sweep(self, params: Any, mass: Array) -> _Kept:
        """A sweep over the points, from parameters and masses (T,)."""
        family, task = self.placed.prior, SweepTask(self.placed, self.sticks, params, mass)
        sweep_of_block(task, self._few())
        found = swept(self.work, task, "sweeping")
        self.sweeps += 1
        bound = bound_of(Model(family, self.sticks), found.stats, found.entropy)
        self.history.append(bound)
        if self.progress is not None:
            self.progress(Progress(len(self.history) - 1, bound, len(mass), "sweeping", None))
        return _Kept(found, bound)

    def _few(self) -> Rows:
        return Rows(self.raw.x[:64])

    def _finer(self, planes: Planes, found: TreeFit, kept: _Kept) -> Planes | None:
        """Planes with the costliest leaves divided; None where tying costs little, or no leaf can be divided."""
        if kept.bound - found.elbo <= _COARSE * self.n:
            return None
        most = min(4 * _LEAVES, self._most_leaves(planes.axis.shape[1]))
        if len(planes.leaves) >= most:
            return None
        cost = tying_cost(self.work, CostTask(CellTask(self.placed, planes, self.origin), found))
        finer = split_leaves(self.placed.prior, planes, self.sample, cost, most, _SAMPLE_A_LEAF)
        return None if finer.n_nodes == planes.n_nodes else finer

    def _settled(self, kept: _Kept) -> tuple[_Kept, bool]:
        """Sweeps until one gains next to nothing; and whether one did."""
        family, most = self.placed.prior, self.settings.sweeps
        while self.sweeps < (self.settings.search.max_iter if most is None else most):
            rows = np.flatnonzero(kept.mass >= _LEAST_MASS)
            rows = rows[np.argsort(-kept.mass[rows], kind="stable")]
            stats = take(kept.swept.stats, rows)
            after = self._sweep(family.posterior(stats), stats[0])
            if after.bound - kept.bound <= self.least:
                return max(kept, after, key=lambda one: one.bound), True
            kept = after
        return kept, False

    def _observed(self, before: int) -> ProgressCallback:
        progress = self.progress
        if progress is None:
            return None
        return lambda at: progress(at._replace(round=before + at.round, message=f"searching, {at.message}"))

    def _result(self, kept: _Kept, converged: bool, nodes: int, tying: float) -> DatasetFit:
        order = np.argsort(-kept.mass, kind="stable")
        stats = take(kept.swept.stats, order)
        sticks = stick_posterior(self.sticks, stats[0], 0.0)
        extra = {"nodes": np.array([float(nodes)]), "tying_cost": np.array([tying])}
        fit = stick_fit(stats, None, sticks, kept.bound, self.history, converged, **extra)
        return DatasetFit(fit, kept.swept.best[order])
