"""The natural statistics of full Gaussians as a table that is not written out: products with it from the points alone.

A row is t(y) = (y, 1, 1, upper triangle of y y', off-diagonal elements doubled), as `statistics` lays it out: with 64
features 2146 numbers for 64. Its product with a slope is a quadratic form, its weighted sums are weighted second
moments, and both are matrix products in blocks that stay in the cache.
"""

from functools import singledispatch
from typing import Any

import numpy as np

from shoal.arrays import Array
from shoal.families import AnyFamily, NormalInverseWishart
from shoal.families.linalg import pack, upper_of
from shoal.families.quadratic import row_blocks
from shoal.variational.vdp_features import Origin, statistics

_BLOCK_ELEMENTS = 1 << 15
"""Features of the rows in a block: 256 KiB."""
_FEW_FEATURES = 3
"""Up to so many features the table has few enough columns to be the faster way."""


class QuadraticRows:
    """Points y (m, D), seen from an origin, as the table of their statistics (m, P): `table @ slope` (P,) and
    `weights @ table` (m,), weights >= 0, alone."""

    __array_ufunc__ = None  # so that NumPy leaves `weights @ table` to this class

    def __init__(self, y: Array) -> None:
        self.y = np.ascontiguousarray(y)

    def __matmul__(self, slope: Array) -> Array:
        """(m,) y'M y + b'y + c."""
        n, d = self.y.shape
        form = upper_of(slope[d + 2 :], d)
        products, scratch = np.empty(n), self._scratch()
        for rows in row_blocks(n, d, _BLOCK_ELEMENTS):
            y = self.y[rows]
            half = np.matmul(y, form, out=scratch[: len(y)])
            half += slope[:d]
            np.einsum("nd,nd->n", half, y, out=products[rows])
        products += slope[d] + slope[d + 1]
        return products

    def __rmatmul__(self, weights: Array) -> Array:
        """(P,) weighted sums."""
        n, d = self.y.shape
        second, root, mass, scratch = np.zeros((d, d)), np.sqrt(weights), weights.sum(), self._scratch()
        for rows in row_blocks(n, d, _BLOCK_ELEMENTS):
            y = np.multiply(self.y[rows], root[rows, None], out=scratch[: rows.stop - rows.start])
            second += y.T @ y
        return np.concatenate([weights @ self.y, [mass, mass], pack(second, with_multiplicity=True)])

    def _scratch(self) -> Array:
        """Room for a block: where a system is slow to hand out memory, new room for each takes longer than the work."""
        n, d = self.y.shape
        return np.empty((min(n, max(1, _BLOCK_ELEMENTS // d)), d))


@singledispatch
def table_of(family: AnyFamily, x: Any, origin: Origin) -> Any:
    """t(x) (m, P) of points x (m, D): what has products with slopes (P,) and with weights (m,)."""
    return statistics(family, x, origin).rows


@table_of.register
def _(family: NormalInverseWishart, x: Array, origin: Origin) -> Any:
    if x.shape[1] <= _FEW_FEATURES:
        return statistics(family, x, origin).rows
    return QuadraticRows(x - origin.point)


def table_elements(family: AnyFamily, x: Any) -> int:
    """Numbers that the table of points x (m, D) holds."""
    if hasattr(x, "nnz"):
        return int(x.nnz)
    n, d = x.shape
    compact = isinstance(family, NormalInverseWishart) and d > _FEW_FEATURES
    return int(n * (d if compact else family.n_free_parameters + 2))
