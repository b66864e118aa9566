"""Predictions of a mixture for points: by a kernel where one is compiled, otherwise by NumPy."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from shoal.families import AnyFamily, concatenated
from shoal.families.holes import marginal_log_predictive, rows_with_holes
from shoal.families.predictive_cache import Call, cache_type, kernel_points, kernel_prior, predicts_by_kernel, refresh
from shoal.mixture.predict_kernel import new_memory, predict_rows
from shoal.points.arrays import Array, BoolArray, IntArray, read_only
from shoal.points.rows import Points, row_elements
from shoal.runtime.compiling import needs_compiler

_CHUNK_ELEMENTS = 1 << 19

_LEAST_MASS = 1e-300
"""Least mass of a component: truncated methods give weight to some without points."""

_compiled: set[type[Any]] = set()
"""Predictive caches whose kernel is known to be compiled."""


class Predicted(NamedTuple):
    """Predictions for N points."""

    row: IntArray  # (N,) of the best component
    log_density: Array  # (N,) nats, in the coordinates of the points
    novelty: Array  # (N,) responsibility of the empty component
    resp: Array  # (N, K) those of the others, or (N, 0) where not requested


class Predictor:
    """Predictions of a mixture of K components of a family and an empty one.

    The choice of kernel or NumPy is made once, at the first call, so that results do not change while kernels compile.
    Both compute log sum_k w_k p(x | k). The kernel's result for a point does not depend on the other points, to the
    bit, and it leaves out components far below the best (`predict_kernel.cut_of`). NumPy differs in the last digits:
    relative to log densities by about 1e-13, and by more for masses of millions. Its sums in BLAS also depend on the
    number of rows.
    """

    def __init__(
        self, family: AnyFamily, stats: Any, log_weight: Array, cache: Any = None, *, holes: bool = False
    ) -> None:
        """Rows of stats and log_weight (K + 1,): the components, then the empty one (see `with_empty`).

        `holes`: points may have NaN for missing values, and are then scored by the others.
        `cache`: their predictive cache, if the learner passed it on; then the kernel computes.
        """
        self._family, self._stats, self._log_weight = family, stats, read_only(log_weight)
        self._given, self._holes = cache, holes

    def __getstate__(self) -> dict[str, Any]:
        """Drop the choice of kernel or NumPy: another process has other kernels compiled."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_asked", "_predictive")}

    def prepare(self) -> None:
        """Compute the values of first use now."""
        if self._asked is None:
            _ = self._predictive

    def predict(self, x: Points, *, with_resp: bool, placed: Any = lambda x: x) -> Predicted:
        """Predictions for points x (N, D). Without `with_resp` it is much faster where K is large.

        `placed` transforms each block of points into the family's coordinates, so that memory is bounded.
        """
        if self._holes and (holed := rows_with_holes(x)).any():
            return self._predict_with_holes(x, holed, with_resp, placed)
        n, k = len(x), self._log_weight.size - 1
        resp = np.zeros((n, k if with_resp else 0))
        whole = Predicted(np.empty(n, np.int64), np.empty(n), np.empty(n), resp)
        asked = self._asked
        beside = 1 if asked is not None else k + 1
        step = max(1, _CHUNK_ELEMENTS // (beside * (row_elements(x) + 4)))
        for start in range(0, n, step):
            part, out = x, whole
            if n > step:
                rows = slice(start, start + step)
                out = Predicted(whole.row[rows], whole.log_density[rows], whole.novelty[rows], resp[rows])
                part = x[rows]
            z = placed(part)
            if asked is None:
                self._predict_by_numpy(z, out)
            else:
                predict_rows(*_arguments(self._family, *asked, self._log_weight, z, out))
        return whole

    def _predict_with_holes(self, x: Points, holed: BoolArray, with_resp: bool, placed: Any) -> Predicted:
        """Complete rows as ever, and the others by the marginal predictives of their observed features."""
        n, k = len(x), self._log_weight.size - 1
        resp = np.zeros((n, k if with_resp else 0))
        whole = Predicted(np.empty(n, dtype=np.int64), np.empty(n), np.empty(n), resp)
        if not holed.all():
            complete = self.predict(x[~holed], with_resp=with_resp, placed=placed)
            for field, found in zip(whole, complete, strict=True):
                field[~holed] = found
        params = self._family.posterior(self._stats)
        rows = np.flatnonzero(holed)
        step = max(1, _CHUNK_ELEMENTS // (k + 1))
        for start in range(0, rows.size, step):
            part = rows[start : start + step]
            out = Predicted(*(np.empty((part.size, *field.shape[1:]), field.dtype) for field in whole))
            _into(marginal_log_predictive(self._family, params, placed(x[part])) + self._log_weight, out)
            for field, found in zip(whole, out, strict=True):
                field[part] = found
        return whole

    def _predict_by_numpy(self, z: Points, out: Predicted) -> None:
        _into(self._family.log_predictive_from(self._predictive, z) + self._log_weight, out)

    @cached_property
    def _asked(self) -> tuple[Any, Any] | None:
        """Predictive cache and statistics for the kernel; None where NumPy computes."""
        if self._given is not None:
            return _read_only(self._given), _read_only(self._stats)
        if not kernel_predicts(self._family):
            return None
        mass = np.maximum(self._stats.mass, _LEAST_MASS)  # mass 0 marks the empty one, the last
        mass[-1] = 0.0
        return _read_only(refresh(self._family, self._stats)), _read_only(self._stats._replace(mass=mass))

    @cached_property
    def _predictive(self) -> Any:
        return self._family.predictive(self._family.posterior(self._stats))


def with_empty(family: AnyFamily, stats: Any) -> Any:
    """A copy of statistics (K rows) with one more row, of an empty component."""
    return concatenated(stats, family.empty_stats(1))


def rows_for_readers(family: AnyFamily, stats: Any, cache: Any) -> tuple[Any, Any] | None:
    """Read-only copies of a learner's statistics and predictive cache (K rows) with an empty row, for `Predictor`.

    None where NumPy computes, which does not use them: also where the kernel is not compiled yet.
    """
    return _copies_with_empty(family, stats, cache) if kernel_predicts(family) else None


def rows_for_learner(family: AnyFamily, stats: Any, cache: Any) -> tuple[Any, Any]:
    """Copies of statistics and predictive cache (K rows) with an empty row, for a `Predictor` that learning reads.

    The kernel computes wherever the family has one, so that what is learnt does not depend on the compiler. Otherwise
    there is no cache (None).
    """
    if predicts_by_kernel(family):
        return _copies_with_empty(family, stats, cache)
    return with_empty(family, stats), None


def _copies_with_empty(family: AnyFamily, stats: Any, cache: Any) -> tuple[Any, Any]:
    return _read_only(with_empty(family, stats)), _read_only(concatenated(cache, kernel_prior(family).empty))


def kernel_predicts(family: AnyFamily) -> bool:
    """Whether the kernel serves this family: it exists and is compiled or cached."""
    form = cache_type(family)
    if form in _compiled:
        return True
    call = predict_call(family)
    if call is None or needs_compiler(*call):
        return False
    _compiled.add(form)
    return True


def predict_call(family: AnyFamily) -> Call | None:
    """The kernel with arguments for one point and one empty component.

    None where NumPy always computes (`families.predictive_cache.predicts_by_kernel`).
    """
    if not predicts_by_kernel(family):
        return None
    stats, out = family.empty_stats(2), Predicted(np.zeros(1, np.int64), np.zeros(1), np.zeros(1), np.zeros((1, 0)))
    mixture = _read_only(refresh(family, stats)), _read_only(stats), read_only(np.zeros(2))
    return predict_rows, _arguments(family, *mixture, np.zeros((1, family.n_features)), out)


def _arguments(
    family: AnyFamily, cache: Any, stats: Any, log_weight: Array, x: Points, out: Predicted
) -> tuple[Any, ...]:
    memory = new_memory(len(log_weight) - 1, family.n_features, len(x))
    return kernel_points(family, x), cache, stats, kernel_prior(family).constants, log_weight, *out, memory


def _read_only(rows: Any) -> Any:
    return type(rows)(*map(read_only, rows))


def _into(log_joint: Array, out: Predicted) -> None:
    """Write the predictions that follow from log w_k p(x | k) (N, K + 1), the empty component last."""
    log_density, resp = _normalised(log_joint)
    out.row[:], out.log_density[:] = log_joint[:, :-1].argmax(axis=1), log_density
    out.novelty[:] = resp[:, -1]
    if out.resp.size:
        out.resp[:] = resp[:, :-1]


def _normalised(log_joint: Array) -> tuple[Array, Array]:
    """Row-wise log sum exp (N,), and responsibilities (N, K + 1); each row has a finite term."""
    top = np.maximum.reduce(log_joint, axis=1, keepdims=True)
    with np.errstate(under="ignore"):
        resp = log_joint - top
        np.exp(resp, out=resp)
        total = np.add.reduce(resp, axis=1, keepdims=True)
        resp /= total
    return (top + np.log(total))[:, 0], resp
