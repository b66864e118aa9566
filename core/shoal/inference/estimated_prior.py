"""Estimates of a prior from the components found: empirical Bayes, type II maximum likelihood.

Under a prior, sum_k log m(S_k) is the evidence of the components' points. The estimate is the prior of the same family
with the largest evidence among `prior_choices`. The bound has no penalty for a new prior. So the estimate has few
numbers, and its strength is limited by the number of components.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.families import AnyFamily
from shoal.families.capabilities import fast_log_marginal
from shoal.families.covariance_prior import learned
from shoal.families.prior_choices import LEAST_MASS, Choice, choices, restated

_FEWEST_FOR_PRIOR = 3
"""Fewest components from which the prior is estimated."""
_PRIOR_SWEEPS = 2


def reestimated(family: AnyFamily, stats: Any, least: float) -> AnyFamily:
    """The prior with the largest evidence found for components with statistics `stats` (T rows).

    It is the family itself where no other prior gains more than `least` nats, where components are too few, or where
    the family's hyperparameters are not estimated.
    """
    n_components = int(np.count_nonzero(stats[0] > LEAST_MASS))
    choice = choices(family, stats, n_components) if n_components >= _FEWEST_FOR_PRIOR else None
    if choice is None:
        return family
    found = _climbed(family, choice, stats)
    return found.prior if found.evidence > evidence_under(family, family, stats) + least else family


def reestimated_wholly(family: AnyFamily, stats: Any, least: float) -> AnyFamily:
    """As `reestimated`, followed by the prior of covariances that has the largest evidence (`covariance_prior`).

    It begins from the better of the two priors, the one in force or the one among the choices.
    """

    def evidence(tried: AnyFamily) -> float:
        return evidence_under(tried, family, stats)

    found = learned(reestimated(family, stats, least), stats, evidence)
    return found if evidence(found) > evidence(family) + least else family


def evidence_under(tried: AnyFamily, family: AnyFamily, stats: Any) -> float:
    """sum_k log m(S_k), nats, under the prior `tried`, of statistics computed under `family`."""
    return float(fast_log_marginal(tried, restated(tried, stats, family)).sum())


class _Tried(NamedTuple):
    """A prior that was tried."""

    at: tuple[float, ...]
    """Its coordinates among the choices."""
    prior: AnyFamily
    evidence: float
    """Nats."""


def _climbed(family: AnyFamily, choice: Choice, stats: Any) -> _Tried:
    """Coordinate ascent over the choices: each coordinate moves by steps while the evidence rises, in two sweeps."""

    def tried(*at: float) -> _Tried:
        prior = choice.build(*at)
        return _Tried(at, prior, evidence_under(prior, family, stats))

    best = tried(*choice.start)
    for _ in range(_PRIOR_SWEEPS):
        before = best.evidence
        for axis, values in enumerate(choice.values):
            for step in (1, -1):
                best = _climbed_along(axis, values[::step], best, tried)
        if best.evidence == before:
            break
    return best


def _climbed_along(axis: int, values: Sequence[float], best: _Tried, tried: Callable[..., _Tried]) -> _Tried:
    """The best prior so far, after steps of one coordinate through `values` while the evidence rises."""
    for value in values[values.index(best.at[axis]) + 1 :]:
        one = tried(*best.at[:axis], value, *best.at[axis + 1 :])
        if one.evidence <= best.evidence:
            break
        best = one
    return best
