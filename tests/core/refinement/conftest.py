"""A stream that is refined as it goes, with its rows at hand: what the estimator does, in the open."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from shoal.mixture import Event, MixtureState, StreamSettings
from shoal.points.arrays import Array
from shoal.refinement import (
    Refinement,
    adopt_inplace,
    points_until_refinement,
    postponed,
    refine,
    refinement_due,
    window_start,
)
from shoal.sequential import assimilate_inplace, initial_state


class RefinedRun(NamedTuple):
    """A stream that was fed to the end."""

    state: MixtureState
    events: tuple[Event, ...]
    made: list[Refinement]
    """The refinements, worth it or not."""
    reasons: list[str]
    """Why each was due."""


def window_of(state: MixtureState, x: Array) -> Array:
    """The window's rows, x (N, D) being all rows of the stream up to now."""
    start = window_start(state)
    assert start is not None
    return x[start : state.points_seen]


def refined_once(state: MixtureState, x: Array, **how: Any) -> tuple[MixtureState, Refinement, tuple[Event, ...]]:
    """One refinement now, adopted where it is worth it."""
    found = refine(state, window_of(state, x), **how)
    if not found.worthwhile:
        return postponed(state, found), found, ()
    state, info = adopt_inplace(state, found)
    return state, found, info.events


def run(settings: StreamSettings, x: Array) -> RefinedRun:
    """Learn x with the refinements that fall due."""
    state = initial_state(settings)
    events: list[Event] = []
    made: list[Refinement] = []
    reasons: list[str] = []
    start = 0
    while start < len(x):
        until = points_until_refinement(state)
        stop = min(len(x), start + until)
        state, info = assimilate_inplace(state, x[start:stop])
        events.extend(info.events)
        due = refinement_due(state) if stop - start == until else None
        if due is not None:
            state, found, told = refined_once(state, x)
            events.extend(told)
            made.append(found)
            reasons.append(due.why)
        start = stop
    return RefinedRun(state, tuple(events), made, reasons)


def two_clusters(n: int, separation: float, share: float = 0.5, seed: int = 0) -> tuple[Array, Array]:
    """n points of two unit Gaussians in the plane, the second with that share of them."""
    rng = np.random.default_rng(seed)
    z = (rng.random(n) < share).astype(np.int64)
    x = rng.normal(size=(n, 2))
    x[:, 0] += separation * z
    return x, z


@pytest.fixture(scope="session")
def refining() -> SimpleNamespace:
    """The helpers above, as `refining.run(...)` and so on: test modules cannot import one another."""
    return SimpleNamespace(run=run, once=refined_once, window_of=window_of, two=two_clusters)
