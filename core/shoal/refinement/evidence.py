"""The evidence of components' points, as `families.log_marginal` has it, by kernels where there are some."""

from functools import singledispatch
from typing import Any

import numpy as np

from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart, log_marginal
from shoal.kernels.cholesky import FEW_FEATURES
from shoal.points.arrays import Array
from shoal.refinement.evidence_kernel import diagonal_evidence, gaussian_evidence, known_evidence


def as_written(stats: Any) -> Any:
    """Statistics as kernels take them, of one type: in C order and writable; copies only where they must be."""
    return (
        stats
        if all(field.flags.carray for field in stats)
        else type(stats)(*(np.array(field, order="C") for field in stats))
    )


@singledispatch
def log_evidence(family: AnyFamily, stats: Any) -> Array:
    """log m(S_k) (T,), nats, of statistics (T rows): `log_marginal` to rounding."""
    return log_marginal(family, stats)


@log_evidence.register
def _(family: KnownCovariance, stats: Any) -> Array:
    if not family.spherical:
        return log_marginal(family, stats)
    out = np.empty(len(stats.mass))
    known_evidence(*as_written(stats), family.mean, float(family.prior_precision[0]), float(family.covariance), out)
    return out


@log_evidence.register
def _(family: NormalInverseGamma, stats: Any) -> Array:
    out = np.empty(len(stats.mass))
    diagonal_evidence(*as_written(stats), family.mean, family.mean_strength, family.shape, family.rate, out)
    return out


@log_evidence.register
def _(family: NormalInverseWishart, stats: Any) -> Array:
    out = np.empty(len(stats.mass))
    if family.n_features <= FEW_FEATURES:
        given = (family.mean, family.mean_strength, family.dof, family.scale_matrix)
        if gaussian_evidence(*as_written(stats), *given, out):
            return out
    return log_marginal(family, stats)
