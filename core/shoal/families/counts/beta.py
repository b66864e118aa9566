"""Families whose features have independent beta priors: both natural parameters are counts, of either outcome."""

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, psi

from shoal.families.counts.additive import AdditiveFamily
from shoal.points.arrays import Array

_LARGE = 1e12
"""Sum of counts from which psi(b) and psi(a + b) share too many digits: times a count, the rest errs by 0.01 nats."""


class BetaParams(NamedTuple):
    """theta_d ~ Beta(a_d, b_d)."""

    a: Array  # (K, D) > 0
    b: Array  # (K, D) > 0


class BetaFamily(AdditiveFamily):
    """Mixin: theta_d ~ Beta(a_d, b_d), an exponential family in log theta_d and log(1 - theta_d)."""

    a: Array
    b: Array

    @property
    def n_features(self) -> int:
        """D."""
        return self.a.size

    @property
    def n_free_parameters(self) -> int:
        """A probability a feature."""
        return self.n_features

    def natural(self, params: BetaParams) -> Array:
        """(K, 2 D): a, b."""
        return np.hstack([params.a, params.b])

    def from_natural(self, natural: Array) -> BetaParams:
        """Inverse of `natural`."""
        d = self.n_features
        return BetaParams(natural[:, :d].copy(), natural[:, d:].copy())

    def log_partition(self, params: BetaParams) -> Array:
        """A (K,)."""
        result: Array = betaln(params.a, params.b).sum(axis=1)
        return result

    def mean_params(self, params: BetaParams) -> Array:
        """(K, 2 D): E log theta, E log(1 - theta)."""
        both = psi(params.a + params.b)
        failure = psi(params.b) - both
        large = params.b >= _LARGE
        failure[large] = -_psi_rise(params.b[large], params.a[large])
        return np.hstack([psi(params.a) - both, failure])


def _psi_rise(start: Array, step: Array) -> Array:
    """psi(start + step) - psi(start) for a large start, by the series log x - 1 / (2 x) - ... of both (DLMF 5.11.2)."""
    return np.asarray(np.log1p(step / start) + 0.5 * step / (start * (start + step)))
