"""Passes over the blocks of a data set by workers, and the sums that they give.

Each pass is a function of one block and of values that all blocks share. Sums over blocks are added in the order of the
blocks, in double precision. So one worker and eight give the same bits.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from shoal.errors import InputError
from shoal.families import FAMILIES
from shoal.families.capabilities import working_rows
from shoal.families.natural_statistics import Origin
from shoal.inference import Model, StickPrior, SweepStart, WindowData, best_entries, no_past, swept_from
from shoal.mixture import PlacedPrior
from shoal.offline.dataset import Block, Dataset, chunks_of
from shoal.points.arrays import Array, IntArray
from shoal.points.domains import Domain
from shoal.runtime.executors import Pool, in_order
from shoal.variational import LeafSums, Planes, TreeFit, added, leaf_log_norms, leaf_sums_of

Observer = Callable[[str, int], None]
"""Receives the name of a pass and the rows that it has done."""
Result = TypeVar("Result")

_SCORE_ELEMENTS = 1 << 22
"""Scores of an E-step at a time: 48 MiB of responsibilities and their places."""


class Work(NamedTuple):
    """A data set, the workers, and who observes them."""

    dataset: Dataset
    pool: Pool
    observe: Observer

    def over_blocks(
        self, stage: str, function: Callable[[Any, Any], Result], shared: Any, items: list[Any] | None = None
    ) -> Iterator[Result]:
        """function(shared, block) of each block, or of an item for each, in order."""
        blocks, done = self.dataset.blocks, 0
        self.observe(stage, 0)
        results = in_order(self.pool, function, shared, blocks if items is None else items)
        for block, result in zip(blocks, results, strict=True):
            done += block.n_rows
            self.observe(stage, done)
            yield result


class Rows(NamedTuple):
    """Rows in memory, as a block."""

    x: Array

    @property
    def n_rows(self) -> int:
        """Rows of the block."""
        return len(self.x)

    def chunks(self, rows: int) -> Iterator[Array]:
        """See `Block`."""
        yield from (self.x[i : i + rows] for i in range(0, len(self.x), rows))


class Fault(NamedTuple):
    """A row of a block that is no point of the family."""

    row: int  # within the block
    error: InputError


def sampled(work: Work, family: str, most: int, rng: np.random.Generator) -> Array:
    """At most `most` rows, drawn from all rows without replacement, in their order; all rows are checked.

    Raises InputError for the first row that is no point of the family.
    """
    n = work.dataset.n_rows
    chosen = np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False, shuffle=False))
    starts = np.append(0, np.cumsum([block.n_rows for block in work.dataset.blocks]))
    places = np.searchsorted(chosen, starts)
    items = [(block, chosen[places[i] : places[i + 1]] - starts[i]) for i, block in enumerate(work.dataset.blocks)]
    found = []
    for i, rows in enumerate(work.over_blocks("reading", _sample_of_block, (family, work.dataset.n_features), items)):
        found.append(without_fault(work.dataset, i, rows))
    return np.concatenate(found)


def without_fault(dataset: Dataset, block: int, result: Result | Fault) -> Result:
    """The result of a block. Raises InputError, with the place of the row and the name of the column, where it is a
    fault."""
    if isinstance(result, Fault):
        words, column = str(result.error), result.error.column
        if column is not None and dataset.names is not None:
            words = words.replace(f"column {column}", f"column {dataset.names[column]!r}", 1)
        raise type(result.error)(f"{dataset.place(block, result.row)}: {words}", row=result.row, column=column)
    return result


def fault_in(domain: Domain, x: Array, n_features: int, done: int) -> Fault | None:
    """The first row of a chunk that is no point of the family; `done` rows of the block come before."""
    try:
        domain.points(x, n_features)
    except InputError as error:
        return Fault(done + (error.row or 0), _of_row(error))
    return None


def _sample_of_block(shared: tuple[str, int], item: tuple[Block, IntArray]) -> Array | Fault:
    family, n_features = shared
    block, chosen = item
    domain = FAMILIES[family].domain
    found, done = [], 0
    for x in chunks_of(block, n_features):
        if (fault := fault_in(domain, x, n_features, done)) is not None:
            return fault
        inside = slice(*np.searchsorted(chosen, [done, done + len(x)]))
        found.append(x[chosen[inside] - done])
        done += len(x)
    if done != block.n_rows:
        raise InputError(f"a block has {done} rows where its file promised {block.n_rows}; was the file changed?")
    return np.concatenate(found)


def _of_row(error: InputError) -> InputError:
    """The error without the number of the row, which is one of the chunk."""
    return type(error)(str(error).replace(f"row {error.row} ", "it ", 1), column=error.column)


class CellTask(NamedTuple):
    """What the pass for the leaves of a tree shares."""

    placed: PlacedPrior
    planes: Planes
    origin: Origin


def leaf_sums(work: Work, task: CellTask) -> LeafSums:
    """Sums of all points by the leaves of the planes."""
    return _added(work.over_blocks("cells", leaf_sums_of_block, task))


def leaf_sums_of_block(task: CellTask, block: Block) -> LeafSums:
    """Sums of the points of a block by leaf."""
    return _added(leaf_sums_of(task.placed.prior, task.planes, z, task.origin)[0] for z in _placed(task.placed, block))


class CostTask(NamedTuple):
    """What the pass for the cost of tying shares."""

    cells: CellTask
    fit: TreeFit


def tying_cost(work: Work, task: CostTask) -> Array:
    """(L,) nats that the bound would gain if the points of a leaf no longer shared responsibilities."""
    free = np.zeros(len(task.fit.leaf_mass))
    for part in work.over_blocks("cost of cells", _log_norms_of_block, task):
        free += part
    return np.maximum(free - task.fit.leaf_mass * task.fit.leaf_log_norm, 0.0)


def _log_norms_of_block(task: CostTask, block: Block) -> Array:
    cells = task.cells
    sums = np.zeros(len(task.fit.leaf_mass))
    for z in _placed(cells.placed, block, len(task.fit.scores[1])):
        sums += leaf_log_norms(cells.placed.prior, cells.planes, z, cells.origin, task.fit)
    return sums


class SweepTask(NamedTuple):
    """What a sweep shares: T components."""

    placed: PlacedPrior
    sticks: StickPrior
    params: Any
    """Posteriors, T rows."""
    mass: Array  # (T,)


class Swept(NamedTuple):
    """Sums of a sweep over the points."""

    stats: Any
    """Statistics, T rows."""
    entropy: float  # of the responsibilities, nats
    best: IntArray  # (T,) points whose largest responsibility is for a component


def swept(work: Work, task: SweepTask, stage: str) -> Swept:
    """One E-step over all points, each with responsibilities of its own, and the sums that the M-step needs."""
    family, total = task.placed.prior, None
    for part in work.over_blocks(stage, sweep_of_block, task):
        total = part if total is None else _both(family, total, part)
    assert total is not None, "a data set has at least one block"
    return total


def sweep_of_block(task: SweepTask, block: Block) -> Swept:
    """The sums of a sweep over the points of a block."""
    family, n_components, total = task.placed.prior, len(task.mass), None
    model = Model(family, task.sticks)
    start = SweepStart(task.params, task.mass, no_past(family, n_components), np.arange(n_components))
    for z in _placed(task.placed, block, n_components):
        state = swept_from(WindowData(z, np.ones(len(z))), model, start)
        best = np.bincount(best_entries(state.resp)[0], minlength=n_components)
        part = Swept(state.stats, state.entropy, best)
        total = part if total is None else _both(family, total, part)
    assert total is not None, "a block has at least one row"
    return total


def _both(family: Any, a: Swept, b: Swept) -> Swept:
    return Swept(family.add(a.stats, b.stats), a.entropy + b.entropy, a.best + b.best)


def _placed(placed: PlacedPrior, block: Block, n_components: int = 1) -> Iterator[Any]:
    """The points of a block in the form in which engines hold them, a few at a time."""
    step = max(256, _SCORE_ELEMENTS // n_components)
    for chunk in chunks_of(block, placed.prior.n_features):
        for start in range(0, len(chunk), step):
            x = placed.prior.domain.convert(chunk[start : start + step])
            yield working_rows(placed.prior, placed.standardise(x))


def _added(parts: Iterator[LeafSums]) -> LeafSums:
    total = next(parts)
    for part in parts:
        total = added(total, part)
    return total
