"""Dividing components between two children each, every one for itself and all at once.

A component's part of the rows is divided by rounds of its two children alone. Everything is linear in the natural
statistics t(x) of the rows, so that a round is two products with their table; what the family and the labels ask of a
round is worked out for all components together. Gaussians of few features have a kernel that makes all rounds of a
component in one call (`division_kernel`), where NumPy's calls would take longer than their work.

Where the part stands for more rows than it has, its gain flatters: children fitted to m rows are worth about one nat a
parameter less on m others (Akaike 1974), and a row of weight u speaks for u - 1 others. A division that does not gain
more than that on its part does not gain on all rows, and is not looked for further.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import psi

from shoal.families import AnyFamily
from shoal.families.capabilities import SplitPrior, split_prior
from shoal.families.natural_statistics import Origin, has_location
from shoal.kernels.distances import row_blocks
from shoal.points.arrays import Array
from shoal.process import log_label_priors
from shoal.refinement.divide_kernel import divide_in_two
from shoal.refinement.division_kernel import divide_part
from shoal.refinement.problem import Rows
from shoal.refinement.quadratic_rows import table_elements, table_of
from shoal.refinement.sweeps import Model, State

_ROUNDS = 30
TOLERANCE = 1e-4
"""Nats a point of a local round below which it stops."""
_PATIENCE, _EARLY_PATIENCE = 20, 100
"""Given up when so many more rounds like the last would not gain anything: after the third rise by the first, before by
the second if it falls short by `_FAR`. Rounds that begin at a plane of symmetry pass a saddle: they gain well, then
little, then more and more. (With a patience of twenty one in forty pairs of Gaussians about one point was lost.)"""
_FAR = 150.0
"""Nats that a division of a few dozen rows may be short by, hardly gain for a round or two, and gain after all, as rows
change sides one by one."""
_DEAD = 1e-6
"""Share of a component below which a child has died."""
_BATCH_ELEMENTS = 1 << 22
_STEP_ELEMENTS = 1 << 15
"""Parameters that are worked on at once: temporaries of twice as much are fresh memory each time, at several times the
cost."""


class Part(NamedTuple):
    """Rows that a division is looked for in, with weights that sum to the component's mass in the window."""

    x: Rows
    weight: Array  # (m,)


class Divided(NamedTuple):
    """A division of a part."""

    p: Array  # (m,) share of the first child
    gain: float  # nats


class _Alone(NamedTuple):
    """A component as its part of the rows has it, without a past, in natural statistics about its own mean."""

    rows: Any  # (m, P) t(x): an array, or what has the same products
    weight: Array  # (m,)
    whole: Array  # (P,) weighted sum
    prior: Array  # (P,) natural parameters
    others: Array  # (T - 1,) masses of the other components in the window
    evidence: float  # log partition function of the parent and of the prior: what the children's are measured against
    labels: float  # label term before
    flattery: float  # nats by which a gain on the part is likely to exceed that on all rows


@dataclass
class _Search:
    """A division under way."""

    alone: _Alone
    p: Array  # (m,)
    mass: tuple[float, float]
    entropy: float = 0.0
    gain: float = -np.inf
    alive: bool = True

    def divide(self, slope: Array, log_odds: float) -> None:
        """An E-step."""
        p = np.empty(len(self.p))
        *mass, self.entropy = divide_in_two(self.alone.rows @ slope, log_odds, self.alone.weight, p)
        self.p, self.mass = p, (mass[0], mass[1])


def best_divisions(
    model: Model, state: State, rows: Sequence[int], parts: Sequence[Part], starts: Sequence[Sequence[Array]]
) -> list[Divided | None]:
    """For each component `rows[i]` the best division of its part that rounds from its starts, sides (m,), lead to.

    None where a child died from every start, or none gains more than its part flatters. The gain is that of the
    window's rows alone.
    """
    prior = split_prior(model.family)
    if prior is not None:
        given = zip(rows, parts, starts, strict=True)
        return [_divided_at_once(model, state, prior, row, part, own) for row, part, own in given]
    found: list[Divided | None] = []
    for batch in _batches(model, parts):
        alone = _alone(model, state, [parts[i] for i in batch], [rows[i] for i in batch])
        searches = [[_started(one, start) for start in starts[i]] for i, one in zip(batch, alone, strict=True)]
        _run(model, [search for own in searches for search in own])
        for own in searches:
            best = max((s for s in own if s.alive), key=lambda s: s.gain, default=None)
            gains = best is not None and best.gain > best.alone.flattery
            found.append(Divided(best.p, best.gain) if best is not None and gains else None)
    return found


def _divided_at_once(
    model: Model, state: State, prior: SplitPrior, row: int, part: Part, starts: Sequence[Array]
) -> Divided | None:
    """The best division of one component's part, by one call of the kernel."""
    origin, others = state.stats.mean[row], np.sort(np.delete(state.window_mass, row))
    shares, gains = np.array(starts, dtype=np.float64), np.empty(len(starts))
    limits = (_ROUNDS, TOLERANCE, float(_PATIENCE), float(_EARLY_PATIENCE), _FAR, _DEAD)
    about = (prior.mean - origin, prior.strength, prior.dof, prior.scale)
    flattery = divide_part(
        np.ascontiguousarray(part.x - origin), part.weight, *about, others, model.concentration, limits, shares, gains
    )
    best = int(np.argmax(gains))
    return Divided(shares[best], float(gains[best])) if gains[best] > flattery else None


def _batches(model: Model, parts: Sequence[Part]) -> Iterator[list[int]]:
    """Runs of parts whose tables fit in the memory set aside for them, one at least."""
    batch: list[int] = []
    elements = 0
    for i, part in enumerate(parts):
        own = table_elements(model.family, part.x)
        if batch and elements + own > _BATCH_ELEMENTS:
            yield batch
            batch, elements = [], 0
        batch.append(i)
        elements += own
    if batch:
        yield batch


def _alone(model: Model, state: State, parts: Sequence[Part], rows: Sequence[int]) -> list[_Alone]:
    """The components as their parts have them, without a past: label terms too are those of the window's masses."""
    family, n = model.family, len(rows)
    located = has_location(family)
    points = state.stats.mean[rows] if located else np.zeros((n, parts[0].x.shape[1]))
    priors = _priors(family, points, located)
    tables = [table_of(family, part.x, Origin(point, located)) for part, point in zip(parts, points, strict=True)]
    wholes = np.stack([part.weight @ table for part, table in zip(parts, tables, strict=True)])
    natural = np.concatenate([priors + wholes, priors])
    evidence = _by_blocks(family, "log_partition", natural).reshape(2, n).sum(axis=0)
    others = np.stack([np.delete(state.window_mass, row) for row in rows])
    own = np.array([part.weight.sum() for part in parts])
    labels = log_label_priors(np.column_stack([others, own]), model.concentration)
    return [
        _Alone(table, part.weight, whole, prior, other, parent, label, _flattery(family, part.weight, whole))
        for table, part, whole, prior, other, parent, label in zip(
            tables, parts, wholes, priors, others, evidence.tolist(), labels.tolist(), strict=True
        )
    ]


def _priors(family: AnyFamily, points: Array, located: bool) -> Array:
    """Natural parameters (R, P) of the prior, seen from each of the points (R, D)."""
    empty = family.empty_stats(len(points))
    prior = family.posterior(empty)
    if located:
        prior = family.relative(prior, to=empty._replace(mean=points))
    return np.asarray(family.natural(prior))


def _flattery(family: AnyFamily, weight: Array, whole: Array) -> float:
    """A parameter that no row of the part tells of does not flatter."""
    parameters = min(family.n_free_parameters, int(np.count_nonzero(whole)))
    return parameters * max(float(weight @ weight / weight.sum()) - 1.0, 0.0)


def _started(alone: _Alone, side: Array) -> _Search:
    first = float(alone.weight @ side)
    return _Search(alone, side, (first, float(alone.weight.sum()) - first))


def _run(model: Model, searches: list[_Search]) -> None:
    """Rounds of all the searches, each until it rests, gives up or loses a child."""
    going = searches
    for done in range(_ROUNDS):
        for search in going:
            search.alive = min(search.mass) > _DEAD * sum(search.mass)
        going = [search for search in going if search.alive]
        if not going:
            break
        natural, evidence = _evidence(model, going)
        over = _noted(going, evidence, done)
        on = [i for i, rests in enumerate(over) if not rests]
        if done == _ROUNDS - 1 or not on:
            break
        going = [going[i] for i in on]
        for search, slope, odds in zip(going, *_sides(model, going, natural[:, on]), strict=True):
            search.divide(slope, odds)


def _evidence(model: Model, going: list[_Search]) -> tuple[Array, Array]:
    """Natural parameters (2, S, P) of the children of S searches, and their log partition functions and label terms
    (S,), nats."""
    first = np.stack([(search.alone.weight * search.p) @ search.alone.rows for search in going])
    prior, whole = (np.stack([getattr(search.alone, name) for search in going]) for name in ("prior", "whole"))
    natural = np.stack([prior + first, prior + whole - first])
    evidence = _by_blocks(model.family, "log_partition", natural.reshape(-1, prior.shape[1])).reshape(2, -1).sum(axis=0)
    mass, others = _masses(going)
    return natural, evidence + log_label_priors(np.column_stack([others, mass]), model.concentration)


def _sides(model: Model, going: list[_Search], natural: Array) -> tuple[Array, list[float]]:
    """Slopes (S, P) and odds of S searches: the log odds of the first child are slope . t(x) + odds."""
    one, two = _by_blocks(model.family, "mean_params", natural.reshape(-1, natural.shape[2])).reshape(natural.shape)
    mass, others = _masses(going)
    behind = np.where(others < mass.min(axis=1)[:, None], others, 0.0).sum(axis=1)
    return one - two, log_odds(model.concentration, mass, behind).tolist()


def _masses(going: list[_Search]) -> tuple[Array, Array]:
    """Of the children (S, 2), and of the components beside them (S, T - 1)."""
    return np.array([search.mass for search in going]), np.stack([search.alone.others for search in going])


def _by_blocks(family: AnyFamily, function: str, natural: Array) -> Array:
    """A function of the family for natural parameters (R, P)."""
    found = [
        getattr(family, function)(family.from_natural(natural[rows]))
        for rows in row_blocks(len(natural), natural.shape[1], _STEP_ELEMENTS)
    ]
    return np.concatenate(found)


def _noted(going: list[_Search], evidence: Array, done: int) -> list[bool]:
    """Write the gains down; for each search whether it is over."""
    over = []
    for search, value in zip(going, evidence.tolist(), strict=True):
        gain = value - search.alone.evidence - search.alone.labels + search.entropy
        rise, search.gain = gain - search.gain, gain
        short = search.alone.flattery - gain
        late = done > 2
        hopeless = done > 0 and short > (_PATIENCE if late else _EARLY_PATIENCE) * rise and (late or short > _FAR)
        over.append(rise <= TOLERANCE * sum(search.mass) or hopeless)
    return over


def log_odds(concentration: float, mass: Array, after: Array) -> Array:
    """E log pi (R,) of the first child less that of the second, masses (R, 2), next to each other on the stick, the
    heavier first, `after` (R,) being the mass behind them."""
    big, small = mass.max(axis=1), mass.min(axis=1)
    behind = concentration + after
    odds = psi(1.0 + big) - psi(behind + small) - psi(1.0 + small) + psi(1.0 + small + behind)
    return np.asarray(np.where(mass[:, 0] >= mass[:, 1], odds, -odds))
