"""A prior of covariances that all components share and that is learned from them: its scale and degrees of freedom.

Empirical Bayes for a hierarchical model: the covariances S_k of components are drawn from one inverse Wishart
distribution IW(dof, scale), whose parameters maximise the evidence of the components' points. Under fixed degrees of
freedom the maximum over the scale is found by EM with the S_k as missing data: the inverse of scale / dof becomes the
mean of E[S_k^-1]. The degrees of freedom follow by a line search along which scale / dof stays. So the evidence rises
in every round.

`prior_choices` has few numbers to choose, and a diagonal scale; this has D (D + 1) / 2 + 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from shoal.families.base import AnyFamily
from shoal.families.prior_choices import LEAST_MASS, STRENGTHS
from shoal.points.arrays import Array

_ROUNDS, _LEAST_RISE = 60, 1e-4
"""Rounds at most, and the nats a component that a round must gain for another."""
_FACTORS = tuple(2.0 ** (j / 4) for j in range(-8, 9))
"""Factors on the degrees of freedom beyond the least, tried in each round."""
MOST_DOF = 1e6
FEWEST_COMPONENTS = 3


class LearnsCovariancePrior(Protocol):
    """A family whose components have covariances under a prior that can be learned."""

    def with_learned_covariance(self, stats: Any) -> AnyFamily:
        """See `learned`."""

    def with_mean_strength(self, strength: float) -> AnyFamily:
        """The same prior, whose mean is worth so many points."""


class CovariancePrior(NamedTuple):
    """A prior of covariances, and the evidence of the components under it up to a constant."""

    scale: Array
    dof: float
    evidence: float


def can_learn_covariance(family: Any) -> bool:
    """Whether a family (class or prior) has a covariance prior that can be learned."""
    return hasattr(family, "with_learned_covariance")


def learned(family: AnyFamily, stats: Any, evidence: Callable[[AnyFamily], float]) -> AnyFamily:
    """The prior with the covariance prior and the strength of the mean that components with statistics `stats` (T rows)
    suggest; the family itself for too few components.

    `evidence` gives the evidence of the components under a prior, nats.
    """
    if np.count_nonzero(stats[0] > LEAST_MASS) < FEWEST_COMPONENTS:
        return family
    best = cast(LearnsCovariancePrior, family).with_learned_covariance(stats)
    tried = [cast(LearnsCovariancePrior, best).with_mean_strength(strength) for strength in STRENGTHS]
    return max([best, *tried], key=evidence)


def maximised(
    scale: Array,
    dof: float,
    least_dof: float,
    n_components: int,
    evidence: Callable[[Array, float], float],
    expectation: Callable[[Array, float], Array],
) -> CovariancePrior:
    """The prior of largest evidence that rounds from (scale, dof) lead to.

    `expectation` (scale, dof) gives the inverse of the mean of E[S_k^-1]; `evidence` (scale, dof) the evidence, nats.
    """
    best = CovariancePrior(scale, dof, evidence(scale, dof))
    for _ in range(_ROUNDS):
        before, unit = best.evidence, expectation(best.scale, best.dof)
        best = max(best, _tried(unit, best.dof, evidence), key=lambda tried: tried.evidence)
        unit = best.scale / best.dof
        for factor in _FACTORS:
            now = min(least_dof + max(best.dof - least_dof, 1e-2) * factor, MOST_DOF)
            tried = _tried(unit, now, evidence)
            best = tried if tried.evidence > best.evidence else best
        if best.evidence - before <= _LEAST_RISE * n_components:
            break
    return best


def _tried(unit: Array, dof: float, evidence: Callable[[Array, float], float]) -> CovariancePrior:
    return CovariancePrior(dof * unit, dof, evidence(dof * unit, dof))
