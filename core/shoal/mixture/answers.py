"""The door to the kernel of predictions: what it needs of a mixture, made once, and whether it can be called."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from shoal._compiling import needs_compiler
from shoal.arrays import Array, IntArray
from shoal.families import AnyFamily
from shoal.families.estimated import EstimatedFamily, NoWork
from shoal.families.working import kernel_points, kernel_prior, refresh
from shoal.mixture.predict_kernel import predict_rows

_at_hand: set[Hashable] = set()


class Asked(NamedTuple):
    """A mixture of K components as the kernel reads it."""

    family: AnyFamily
    work: Any  # K + 1 rows, the last the empty component's
    stats: Any  # likewise
    log_weight: Array  # (K + 1,)


def kernel_answers(family: AnyFamily) -> bool:
    """Whether the kernel can answer for this family without being compiled: this process has called it, or the folder
    of compiled kernels holds it."""
    form = type(family), getattr(family, "spherical", None)
    if form in _at_hand:
        return True
    call = answer_call(family)
    if call is None or needs_compiler(*call):
        return False
    _at_hand.add(form)
    return True


def answer_call(family: AnyFamily) -> tuple[Any, tuple[Any, ...]] | None:
    """The kernel, and what it is called with, for one point and one component that has seen nothing; None where the
    family has no working form."""
    if isinstance(family, EstimatedFamily) and family.work_kind is NoWork:
        return None
    mixture = asked(family, family.empty_stats(1), np.zeros(2))
    out = (np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1), np.zeros((1, 0)))
    return predict_rows, _arguments(mixture, np.zeros((1, family.n_features)), *out)


def asked(family: AnyFamily, stats: Any, log_weight: Array) -> Asked:
    """The mixture of components (K rows) with these logarithms of their weights (K + 1,), the empty one's last."""
    whole = type(stats)(*(np.concatenate(rows) for rows in zip(stats, family.empty_stats(1), strict=True)))
    return Asked(family, refresh(family, whole), whole, log_weight)


def answer_into(mixture: Asked, x: Any, row: IntArray, log_density: Array, novelty: Array, resp: Array) -> None:
    """Write, for points x (N, D), standardised, the row of the best component and the log density, in nats and in these
    coordinates (N,), what belongs to none (N,), and the shares of all (N, K), zeros before, or into (N, 0) nothing."""
    predict_rows(*_arguments(mixture, x, row, log_density, novelty, resp))


def _arguments(mixture: Asked, x: Any, *out: Array | IntArray) -> tuple[Any, ...]:
    constants = kernel_prior(mixture.family).constants
    return kernel_points(mixture.family, x), mixture.work, mixture.stats, constants, mixture.log_weight, *out
