"""The report of a refinement by an estimator."""

from typing import Any, NamedTuple

from shoal.mixture import Event
from shoal.refinement import Refinement


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
