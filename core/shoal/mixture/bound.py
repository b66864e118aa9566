"""The lower bound on the evidence by which moves are judged, in closed form, with all constants.

At the best q(sticks) and q(parameters) for given responsibilities (ERRATA 0.3, free sticks, descending order):

    elbo = sum_k log m(S_k) + L(masses) + H(responsibilities)                                  in nats

with m the marginal likelihood of the (weighted) points of a component, carrier included. With hard responsibilities it
is exactly log p(x, z) (ERRATA 0.2). It never exceeds the evidence of the Dirichlet process mixture (ERRATA 0.1).
"""

from typing import Any

import numpy as np
from scipy.special import xlogy

from shoal.families import AnyFamily, log_marginal
from shoal.points.arrays import Array
from shoal.process import log_label_prior


def entropy(resp: Array) -> float:
    """H of responsibilities (N, K), in nats: -sum r log r, with 0 log 0 = 0."""
    return -float(xlogy(resp, resp).sum())


def evidence_bound(family: AnyFamily, stats: Any, concentration: float, resp_entropy: float = 0.0) -> float:
    """The bound of components with statistics `stats` whose responsibilities have entropy `resp_entropy` (0: hard)."""
    mass = stats[0]
    return float(np.sum(log_marginal(family, stats))) + log_label_prior(mass, concentration) + resp_entropy


def bound_of_responsibilities(family: AnyFamily, x: Array, resp: Array, concentration: float) -> float:
    """The bound of points x (N, D) under responsibilities (N, K) whose rows sum to one."""
    return evidence_bound(family, family.suffstats(x, resp), concentration, entropy(resp))
