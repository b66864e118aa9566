"""Estimates of a prior from the components found: empirical Bayes, type II maximum likelihood.

Under a prior, sum_k log m(S_k) is the evidence of the components' points. The estimate is the prior of the same family
with the largest evidence among `prior_choices`. The bound has no penalty for a new prior. So the estimate has few
numbers, and its strength is limited by the number of components.
"""

from typing import Any

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
    found, evidence = _climbed(family, choice, stats)
    return found if evidence > evidence_under(family, family, stats) + least else family


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


def _climbed(family: AnyFamily, choice: Choice, stats: Any) -> tuple[AnyFamily, float]:
    """Coordinate ascent over the choices: each coordinate moves by steps while the evidence rises, in two sweeps."""
    at = list(choice.start)
    best = choice.build(*at)
    evidence = evidence_under(best, family, stats)
    for _ in range(_PRIOR_SWEEPS):
        before = evidence
        for axis, values in enumerate(choice.values):
            for step in (1, -1):
                place = values.index(at[axis]) + step
                while 0 <= place < len(values):
                    tried = choice.build(*at[:axis], values[place], *at[axis + 1 :])
                    value = evidence_under(tried, family, stats)
                    if value <= evidence:
                        break
                    at[axis], best, evidence = values[place], tried, value
                    place += step
        if evidence == before:
            break
    return best, evidence
