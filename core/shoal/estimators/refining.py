"""The report of a refinement by an estimator, and the seed of its randomness."""

from typing import Any, NamedTuple

import numpy as np

from shoal.errors import SettingError
from shoal.mixture import Event
from shoal.refinement import Refinement

MOST_SEED = 1 << 53


class RefinementReport(NamedTuple):
    """A refinement that was made, and what became of it."""

    adopted: bool
    """Whether the mixture is the refined one now."""
    reason: str
    """Why, or why not."""
    offset: int
    """Points learnt when it was made."""
    method: str
    window_rows: int
    """Rows that were divided anew."""
    bound_before: float
    """Nats: the lower bound on the evidence of all points, before."""
    bound_after: float
    """The same after."""
    components_before: int
    components_after: int
    events: tuple[Event, ...]
    """Changes of identity."""
    details: dict[str, Any]
    """What the search tells of its moves."""


_NAMED = ("method", "window_rows", "bound_before", "bound_after", "components_before", "components_after")


def report_of(refinement: Refinement, events: tuple[Event, ...]) -> RefinementReport:
    """The report of a refinement that was adopted, where it was worth it, with these events."""
    named = {name: refinement.report[name] for name in _NAMED}
    details = {name: value for name, value in refinement.report.items() if name not in named}
    return RefinementReport(
        refinement.worthwhile, refinement.reason, refinement.base_offset, events=events, details=details, **named
    )


def seed_of(random_state: Any, held: int | None) -> int:
    """The seed, 0..2^53, of what scikit-learn takes as `random_state`; None is 0.

    A generator is drawn from where no seed is `held`, of a stream that goes on. Raises SettingError.
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
