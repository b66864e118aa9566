"""The door to the search over one dimension: what the kernel is called with."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from shoal.families import FAMILIES, AnyFamily
from shoal.families.base import LocatedPrior
from shoal.families.predictive_cache import as_kernels_read, empty_work, kernel_prior
from shoal.points.arrays import Array
from shoal.sequential.alone_kernel import most_births, variances_alone
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
    of its priors: `priors`, of a family that stands in for others (`LocatedPrior.stand_in`), in one dimension, has as
    many for each column, one column's after another's."""
    arguments = _arguments(z, priors, concentration, birth_threshold, floor, max_components)
    variances_alone(*arguments)
    variances: Array = arguments[-1]
    return variances


def alone_calls() -> Calls:
    """Calls of the kernel, of the types that every search makes it with."""
    names = {cast(type[LocatedPrior], kind).stand_in for kind in FAMILIES.values() if kind.domain.located}
    priors = [FAMILIES[name].weak(1) for name in sorted(names)]
    return [(variances_alone, _arguments(np.zeros((1, 1)), [prior], 1.0, 0.5, 1e-3, 2)) for prior in priors]


def _arguments(z: Array, priors: Sequence[AnyFamily], *settings: float) -> tuple[Any, ...]:
    concentration, birth_threshold, floor, max_components = settings
    columns = as_kernels_read(z.T[:, :, None])
    empties = [kernel_prior(prior).empty for prior in priors]
    empty = type(empties[0])(*map(np.concatenate, zip(*empties, strict=True)))
    rows = len(priors) // len(columns) * (most_births(int(max_components), columns.shape[1]) + 1)
    room = priors[0].empty_stats(rows), empty_work(priors[0], rows)
    rules = float(concentration), float(birth_threshold), float(floor), int(max_components)
    return (columns, empty, *room, *rules, np.empty(len(columns)))
