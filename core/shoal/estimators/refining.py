"""The report of a refinement by an estimator, and the seed of its randomness."""

from typing import Any, NamedTuple

import numpy as np

from shoal.errors import SettingError
from shoal.mixture import Event
from shoal.refinement import Refinement

MOST_SEED = 1 << 53


class RefinementReport(NamedTuple):
    """A refinement and its outcome."""

    adopted: bool
    """Whether the refined mixture was adopted."""
    reason: str
    """The reason, in words."""
    offset: int
    """Points learnt before it."""
    method: str
    window_rows: int
    """Rows of the window."""
    bound_before: float
    """Lower bound on the evidence of all points before it, nats."""
    bound_after: float
    """The bound after it, nats."""
    components_before: int
    components_after: int
    events: tuple[Event, ...]
    """Changes of identity."""
    details: dict[str, Any]
    """Counts of the search's moves."""


_NAMED = ("method", "window_rows", "bound_before", "bound_after", "components_before", "components_after")


def report_of(refinement: Refinement, events: tuple[Event, ...]) -> RefinementReport:
    """The report of a refinement, with the events of its adoption."""
    named = {name: refinement.report[name] for name in _NAMED}
    details = {name: value for name, value in refinement.report.items() if name not in named}
    return RefinementReport(
        refinement.worthwhile, refinement.reason, refinement.base_offset, events=events, details=details, **named
    )


def seed_of(random_state: Any, held: int | None) -> int:
    """The seed, 0..2^53, from a `random_state` of scikit-learn; None is 0.

    `held` is the seed of a stream in progress. Where it is None, a generator draws a new one. Raises SettingError.
    """
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState | np.random.Generator):
        if held is not None:
            return held
        return int.from_bytes(random_state.bytes(6))
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state) % MOST_SEED
    raise SettingError(f"random_state is {random_state!r}; give an integer from 0, a generator or None")
