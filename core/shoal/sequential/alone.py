"""The door to the search over one dimension: what the kernel is called with."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.families.base import AnyFamily
from shoal.families.diagonal import NormalInverseGamma
from shoal.families.predictive_cache import DiagonalWork, as_kernels_read, kernel_prior
from shoal.points.arrays import Array
from shoal.sequential.alone_kernel import variances_alone
from shoal.sequential.calls import Calls


def pooled_variances(
    z: Array,
    priors: Sequence[AnyFamily],
    concentration: float,
    birth_threshold: float,
    floor: float,
    max_components: int,
) -> Array:
    """Variance (D,) of each column of z (N, D) within the components that one pass over it alone finds, under the best
    of its priors: `priors`, of the family `diagonal` in one dimension, has as many for each column, one column's after
    another's."""
    arguments = _arguments(z, priors, concentration, birth_threshold, floor, max_components)
    variances_alone(*arguments)
    variances: Array = arguments[-1]
    return variances


def alone_calls() -> Calls:
    """A call of the kernel, of the types that every search makes it with."""
    return [(variances_alone, _arguments(np.zeros((1, 1)), [NormalInverseGamma.weak(1)], 1.0, 0.5, 1e-3, 2))]


def _arguments(z: Array, priors: Sequence[AnyFamily], *settings: float) -> tuple[Any, ...]:
    concentration, birth_threshold, floor, max_components = settings
    columns = as_kernels_read(z.T[:, :, None])
    empty = DiagonalWork(*map(np.concatenate, zip(*(kernel_prior(prior).empty for prior in priors), strict=True)))
    rules = float(concentration), float(birth_threshold), float(floor), int(max_components)
    return (columns, empty, *rules, np.empty(len(columns)))
