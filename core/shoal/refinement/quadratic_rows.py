"""The natural statistics of full Gaussians as a table that is not written out: products with it from the points alone.

A row is t(y) = (y, 1, 1, upper triangle of y y', off-diagonal elements doubled), as `statistics` lays it out: with 64
features 2146 numbers for 64. Its product with a slope is a quadratic form, its weighted sums are weighted second
moments: a kernel each.
"""

from typing import Any

import numpy as np

from shoal.families import AnyFamily
from shoal.families.capabilities import reads_all_products
from shoal.families.natural_statistics import Origin, statistics
from shoal.kernels.linalg import pack, upper_of
from shoal.points.arrays import Array
from shoal.refinement.lanes_kernel import in_fours, in_tiles
from shoal.refinement.quadratic_rows_kernel import quadratic_forms, weighted_moments

_FEW_FEATURES = 3
"""Up to so many features the table has few enough columns to be the faster way."""


class QuadraticRows:
    """Points y (m, D), seen from an origin, as the table of their statistics (m, P): `table @ slope` (P,) and
    `weights @ table` (m,) alone."""

    __array_ufunc__ = None  # so that NumPy leaves `weights @ table` to this class

    def __init__(self, y: Array) -> None:
        self.n, self.d = y.shape
        self.tiles = in_tiles(y)

    def __matmul__(self, slope: Array) -> Array:
        """(m,) y'M y + b'y + c."""
        d = self.d
        linear, products = np.zeros(self.tiles.shape[1]), np.empty(self.n)
        linear[:d] = slope[:d]
        fours = in_fours(upper_of(slope[d + 2 :], d).T[None])[0]
        quadratic_forms(self.tiles, fours, linear, float(slope[d] + slope[d + 1]), products)
        return products

    def __rmatmul__(self, weights: Array) -> Array:
        """(P,) weighted sums."""
        d, width = self.d, self.tiles.shape[1]
        first, second, mass = np.zeros(width), np.zeros((width, width)), weights.sum()
        weighted_moments(self.tiles, np.ascontiguousarray(weights), first, second)
        return np.concatenate([first[:d], [mass, mass], pack(second[:d, :d].T, with_multiplicity=True)])


def table_of(family: AnyFamily, x: Any, origin: Origin) -> Any:
    """t(x) (m, P) of points x (m, D): an object with products with slopes (P,) and with weights (m,)."""
    return QuadraticRows(x - origin.point) if _is_compact(family, x) else statistics(family, x, origin).rows


def _is_compact(family: AnyFamily, x: Any) -> bool:
    return reads_all_products(family) and x.shape[1] > _FEW_FEATURES


def table_elements(family: AnyFamily, x: Any) -> int:
    """Numbers that the table of points x (m, D) holds."""
    if hasattr(x, "nnz"):
        return int(x.nnz)
    n, d = x.shape
    return int(n * (d if _is_compact(family, x) else family.n_free_parameters + 2))
