"""Upper bounds on a point's predictive density under a block that may still grow: what makes a score admissible.

Daume (2007) bounds the rest of the evidence by 1 a point (eq. 7), which densities exceed (ERRATA 4.6), or by the
predictive after copies of the point (section 3.3), which is no bound: other points can help more than copies, by
cancelling what the block holds (ERRATA 4.8). Here the bound on a point under block S and any further points, at most r
of them, is

    gaussian, diagonal    the peak of the Student t with S's own scale, mean_strength and dof raised by r: the scale
                          only grows with further points, and the peak falls with it
    known_covariance      the peak of the normal with the precision raised by r
    bernoulli             each feature at its odds with r more points on its side
    multinomial, poisson  the probability under the parameter that suits the point best

each exact algebra, for all points that there could be. Families register here; a family without a bound cannot be
searched by a score that needs one.
"""

from functools import singledispatch
from typing import Any

import numpy as np
from scipy.special import gammaln, xlogy

from shoal.errors import SettingError
from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.families.bernoulli import BetaBernoulli
from shoal.families.multinomial import DirichletMultinomial
from shoal.families.poisson import GammaPoisson
from shoal.kernels import linalg
from shoal.points.arrays import Array
from shoal.points.rows import Points, SparseRows

_LOG_PI = float(np.log(np.pi))
_LOG_2PI = float(np.log(2.0 * np.pi))


@singledispatch
def log_caps(family: Any, stats: Any, x: Points, further: Array) -> Array:
    """(N, K): no less than log p(x_n | S_k and any points, at most further_n of them), nats.

    x (N, D), statistics of K blocks, further (N,) >= 0. Raises SettingError for a family that has no such bound.
    """
    name = getattr(family, "name", type(family).__name__)
    raise SettingError(f"family {name!r} has no bound for this score; choose search_score='inadmissible'")


@log_caps.register
def _gaussian(family: NormalInverseWishart, stats: Any, x: Points, further: Array) -> Array:
    d, params = family.n_features, family.posterior(stats)
    log_det = linalg.log_determinant(linalg.cholesky(params.scale))
    strength, dof = params.mean_strength + further[:, None], params.dof + further[:, None]
    shape = linalg.log_gamma_ratio((dof - d + 1.0) / 2.0, d / 2.0)
    return np.asarray(shape - 0.5 * d * (np.log1p(1.0 / strength) + _LOG_PI) - 0.5 * log_det)


@log_caps.register
def _diagonal(family: NormalInverseGamma, stats: Any, x: Points, further: Array) -> Array:
    d, params = family.n_features, family.posterior(stats)
    strength, shape = params.mean_strength + further[:, None], params.shape + 0.5 * further[:, None]
    per_feature = linalg.log_gamma_ratio(shape, 0.5) - 0.5 * (_LOG_2PI + np.log1p(1.0 / strength))
    return np.asarray(d * per_feature - 0.5 * np.log(params.rate).sum(axis=1))


@log_caps.register
def _known_covariance(family: KnownCovariance, stats: Any, x: Points, further: Array) -> Array:
    precision = family.posterior(stats).precision + further[:, None, None]
    spread = np.log1p(1.0 / precision).sum(axis=2)
    return np.asarray(family.log_det_basis - 0.5 * (family.n_features * _LOG_2PI + spread))


@log_caps.register
def _multinomial(family: DirichletMultinomial, stats: Any, x: Points, further: Array) -> Array:
    """At theta = x / n: a mixture of probabilities is at most the largest of them."""
    rows = SparseRows.of(x)
    lengths = np.asarray(rows.sum(axis=1))
    terms = SparseRows((xlogy(rows.data, rows.data) - gammaln(rows.data + 1.0), rows.indices, rows.indptr), rows.shape)
    best = gammaln(lengths + 1.0) - xlogy(lengths, lengths) + np.asarray(terms.sum(axis=1))
    return np.repeat(best[:, None], len(stats[0]), axis=1)


@log_caps.register
def _poisson(family: GammaPoisson, stats: Any, x: Points, further: Array) -> Array:
    """At the rate x, feature by feature; one where x is zero."""
    rows = SparseRows.of(x)
    terms = xlogy(rows.data, rows.data) - rows.data - gammaln(rows.data + 1.0)
    best = np.asarray(SparseRows((terms, rows.indices, rows.indptr), rows.shape).sum(axis=1))
    return np.repeat(best[:, None], len(stats[0]), axis=1)


@log_caps.register
def _bernoulli(family: BetaBernoulli, stats: Any, x: Points, further: Array) -> Array:
    """Every further point as x is: (a + r) / (a + b + r) rises with r."""
    params = family.posterior(stats)
    both = params.a + params.b
    out = np.empty((x.shape[0], len(stats[0])))
    for row, r, point in zip(out, further, SparseRows.of(x).toarray(), strict=True):
        row[:] = np.log((np.where(point > 0.0, params.a, params.b) + r) / (both + r)).sum(axis=1)
    return out


def log_caps_alone(family: AnyFamily, x: Points) -> Array:
    """(N,): caps under any block that the points before each may form."""
    return log_caps(family, family.empty_stats(1), x, np.arange(x.shape[0], dtype=np.float64))[:, 0]
