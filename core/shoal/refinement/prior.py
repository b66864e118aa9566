"""The prior, estimated from what the components turn out to be (empirical Bayes, type II maximum likelihood).

Under a prior, sum_k log m(S_k) is the evidence of the components' points; among priors of the same family the one that
raises it is taken (`prior_choices`). The bound before a refinement and the bound after are then each under their own
prior, and both are bounds on the log evidence of the same points, so that one may be set against the other; the new
prior costs nothing in it, so it is kept to few numbers, and may be no firmer than the number of components supports.
"""

from typing import Any

import numpy as np

from shoal.families import AnyFamily
from shoal.families.capabilities import fast_log_marginal
from shoal.families.prior_choices import LEAST_MASS, Choice, choices, restated

_FEWEST = 3
"""Components needed to tell anything about what they are drawn from."""
_SWEEPS = 2


def reestimated(family: AnyFamily, stats: Any, least: float) -> AnyFamily:
    """The prior under which components with statistics `stats` (T rows) have the largest evidence that was found.

    The family itself where another would not raise it by more than `least` nats, where components are too few, or
    where its hyperparameters are not estimated.
    """
    n_components = int(np.count_nonzero(stats[0] > LEAST_MASS))
    choice = choices(family, stats, n_components) if n_components >= _FEWEST else None
    if choice is None:
        return family
    found, evidence = _climbed(family, choice, stats)
    return found if evidence > evidence_under(family, family, stats) + least else family


def evidence_under(tried: AnyFamily, family: AnyFamily, stats: Any) -> float:
    """sum_k log m(S_k), nats, under the prior `tried`, of statistics that were made under `family`."""
    return float(fast_log_marginal(tried, restated(tried, stats, family)).sum())


def _climbed(family: AnyFamily, choice: Choice, stats: Any) -> tuple[AnyFamily, float]:
    """Coordinate after coordinate, from where each stands outwards while the evidence rises; twice."""
    at = list(choice.start)
    best = choice.build(*at)
    evidence = evidence_under(best, family, stats)
    for _ in range(_SWEEPS):
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
