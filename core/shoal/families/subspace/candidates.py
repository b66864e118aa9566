"""Subspaces and priors to choose among for some rows: their principal components, and what is within a component.

The directions are the principal components of the rows, the noise outside is what they leave (Tipping and Bishop 1999,
eq. 7, with the degrees of freedom that the components take). Along each direction the rows have a variance, of which
some is within components and the rest between them. The choice is the variance within, as a multiple of the noise, and
how firmly it is believed.
"""

from typing import Any

import numpy as np

from shoal.families.prior_choices import LARGEST, SMALLEST
from shoal.points.arrays import Array

_ROWS_A_DIRECTION = 4
_RIDGE = 1e-9
_LEAST_BETWEEN = 1 / 20
"""Least share of the variance that is between components."""
_SHARES, _COARSE_SHARES = tuple(2.0**-j for j in range(7)), tuple(4.0**-j for j in range(4))
"""Variances within, as shares of the variance of all rows along a direction."""
_DOFS, _COARSE_DOFS = (32.0, 128.0), (32.0,)


def principal_directions(rows: Array, rank: int) -> tuple[Array, Array, Array, float]:
    """Mean (D,), directions (D, R), variances along them (R,), and the variance of each direction outside."""
    n, d = rows.shape
    center = rows.mean(axis=0)
    offset = rows - center
    if n < d:
        vectors = offset.T @ np.linalg.eigh(offset @ offset.T)[1][:, ::-1][:, :rank]
    else:
        vectors = np.linalg.eigh(offset.T @ offset)[1][:, ::-1][:, :rank]
    # orthonormal to rounding also where the rows have fewer directions
    directions, triangle = np.linalg.qr(vectors + _RIDGE * np.eye(d, rank) * (np.abs(vectors).max() or 1.0))
    directions = np.ascontiguousarray(directions * np.where(np.diagonal(triangle) < 0.0, -1.0, 1.0))
    total = float(np.einsum("nd,nd->", offset, offset))
    along = np.square(offset @ directions).sum(axis=0)
    unit = total / (max(n - 1, 1) * d) or 1.0  # rows that are all alike say nothing of a scale
    free = (n - 1 - rank) * (d - rank)
    outside = max(total - float(along.sum()), 0.0) / free if free > 0 else unit
    least = _RIDGE * unit
    variances = np.maximum(along / max(n - 1, 1), least)
    # rows are not standardised: a prior has a range of variances
    return center, directions, np.clip(variances, SMALLEST, LARGEST), min(max(outside, least, SMALLEST), LARGEST)


def candidate_priors(rows: Array, thorough: bool, most_directions: int) -> list[tuple[Any, ...]]:
    """Arguments of priors, from weak to strong, for rows (N, D).

    The variance within is the same along all directions, or in proportion to that of all rows.
    """
    n = len(rows)
    rank = min(most_directions, max(1, n // _ROWS_A_DIRECTION))
    center, directions, along, noise = principal_directions(rows, rank)
    shares, dofs = (_SHARES, _DOFS) if thorough else (_COARSE_SHARES, _COARSE_DOFS)
    found = []
    for share in shares:
        for profile in (np.full(rank, along.mean()), along):
            within = np.maximum(share * profile, np.minimum(noise, along))
            between = np.maximum(along - within, _LEAST_BETWEEN * along)
            strength = float(np.clip(within.mean() / between.mean(), 1e-4, 1.0))
            for dof in dofs:
                total, scale = rank + 1.0 + dof, np.diag(dof * within)
                found.append((center, directions, noise, np.zeros(rank), strength, total, scale))
    return found
