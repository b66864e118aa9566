"""Families whose log densities are quadratic, for a sweep in one pass over the rows.

E log p(x | k) = constant_k - |A_k (x - centre_k)|^2 / 2. Where components lie apart most of these are never worked out:
with s_k the least singular value of A_k, the score is at most constant_k - s_k^2 |x - centre_k|^2 / 2, and all the
|x - centre_k| come from one matrix product.
"""

from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import psi

from shoal.arrays import Array, SingleArray
from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.families.known_covariance import LOG_2PI
from shoal.families.linalg import cholesky, inverse_lower, log_determinant, multivariate_digamma
from shoal.families.moments import DIRECT_ABOVE, ratio
from shoal.refinement.evidence import as_written
from shoal.refinement.few_features_kernel import sweep_few_features
from shoal.refinement.ground import Ground
from shoal.refinement.quadratic_kernel import add_again, bound_scores, sweep_block
from shoal.refinement.together_kernel import diagonal_together, gaussian_together, known_together

_BLOCK_ELEMENTS = 1 << 18
_ENTRIES_A_ROW = 4
"""Responsibilities of a row that there is room for at first."""
_FEW_FEATURES = 4
"""Up to so many features a distance costs no more than its bound."""
_SLACK = 1e-12
"""As `_single_slack`, in double precision."""
_LARGEST_SINGLE = 1e30
"""Squares of lengths up to which nothing overflows in single precision."""
_MOST_BLUR = 10.0
"""Nats by which single precision may weaken the bounds of a component like most."""
_MARGIN = 1e-9
"""Rounding of an eigenvalue, relative to itself: roots whose eigenvalues span more than 1e6 are screened by less."""


class Quadratic(NamedTuple):
    """Scores of T components."""

    constant: Array  # (T,)
    centre: Array  # (T, D)
    root: Array  # (T, D, D) lower triangular, or (T, D) the diagonal


class Screen(NamedTuple):
    """What the scores of T components are bounded by."""

    middle: Array  # (D,) of the centres
    centres: Array  # (D, T) less the middle
    squares: Array  # (T,) of their lengths
    least: Array  # (T,) squares of the least singular values, or a little less
    single: SingleArray | None
    """The centres in single precision; None where that would blur the bounds."""


class Sums(NamedTuple):
    """What the rows of each component come to, about its centre."""

    mass: Array  # (T,)
    first: Array  # (T, D)
    second: Array  # (T, D, D), the lower triangle, or (T, D)


class Swept(NamedTuple):
    """What a sweep gives."""

    resp: csr_matrix  # (N, T)
    entropy: float  # weighted, nats
    dropped: float  # weighted points that the floor moved
    mass: Array  # (T,) of the rows, weighted
    stats: Any
    """Statistics of the rows and of the past together, T rows."""


@singledispatch
def quadratic_of(family: AnyFamily, params: Any) -> Quadratic | None:
    """The scores of a family as quadratic forms; None where they are none."""
    return None


@quadratic_of.register
def _(family: NormalInverseWishart, params: Any) -> Quadratic:
    d, factors = family.n_features, cholesky(params.scale)
    constant = multivariate_digamma(params.dof / 2.0, d) + d * np.log(2.0) - log_determinant(factors)
    constant -= d * (LOG_2PI + 1.0 / params.mean_strength)
    root = inverse_lower(factors) * np.sqrt(params.dof)[:, None, None]
    return Quadratic(0.5 * constant, params.mean, root)


@quadratic_of.register
def _(family: NormalInverseGamma, params: Any) -> Quadratic:
    constant = psi(params.shape) - LOG_2PI - 1.0 / params.mean_strength
    constant = family.n_features * constant - np.log(params.rate).sum(axis=1)
    return Quadratic(0.5 * constant, params.mean, np.sqrt(params.shape[:, None] / params.rate))


@quadratic_of.register
def _(family: KnownCovariance, params: Any) -> Quadratic | None:
    if not family.spherical:
        return None
    constant = family.log_det_basis - 0.5 * family.n_features * LOG_2PI - 0.5 * (1.0 / params.precision).sum(axis=1)
    root = np.full(params.mean.shape, 1.0 / np.sqrt(float(family.covariance)))
    return Quadratic(constant, params.mean, root)


def swept(
    ground: Ground, family: AnyFamily, params: Any, log_weight: Array, log_floor: float, past: Any
) -> Swept | None:
    """An E- and an M-step with the past's statistics `past` (T rows); None for a family whose scores are not
    quadratic."""
    form = quadratic_of(family, params)
    if form is None:
        return None
    constant, t = form.constant + log_weight, len(log_weight)
    screen = _screen_of(form)
    sums = Sums(np.zeros(t), np.zeros(form.centre.shape), np.zeros(form.root.shape))
    ends = np.zeros(ground.n_rows + 1, dtype=np.int64)
    filled, entropy, dropped = 0, 0.0, 0.0
    step = min(max(64, _BLOCK_ELEMENTS // max(t, ground.x.shape[1])), ground.n_rows)
    most = step * t + 1
    indices = np.empty(most + _ENTRIES_A_ROW * ground.n_rows, dtype=np.int32)
    resp = np.empty(indices.size)
    for start in range(0, ground.n_rows, step):
        part = slice(start, min(start + step, ground.n_rows))
        x = np.ascontiguousarray(ground.x[part])
        if filled + most > indices.size:
            indices, resp = _longer(indices, filled + most), _longer(resp, filled + most)
        entries = (indices[filled:], resp[filled:], ends[1:][part])
        given = (constant, form.centre, form.root, ground.weights[part], log_floor, *entries, *sums)
        if screen is None:
            n, h, lost = sweep_few_features(x, *given)
        else:
            n, h, lost = sweep_block(x, _upper(x, screen, constant), *given)
        ends[1:][part] += filled
        filled, entropy, dropped = filled + n, entropy + h, dropped + lost
    shares = csr_matrix((resp[:filled], indices[:filled], ends), shape=(ground.n_rows, t))
    return Swept(shares, entropy, dropped, sums.mass, _together(ground, family, form, sums, shares, past))


def _longer(values: Any, least: int) -> Any:
    """A copy with room for half as many again, and for `least`."""
    longer = np.empty(max(least, values.size + values.size // 2), dtype=values.dtype)
    longer[: values.size] = values
    return longer


def _screen_of(form: Quadratic) -> Screen | None:
    """What scores are bounded by; None in few dimensions, where it is cheaper to work them all out."""
    if form.centre.shape[1] <= _FEW_FEATURES:
        return None
    middle = form.centre.mean(axis=0)
    centres = form.centre - middle
    squares, least = np.einsum("kd,kd->k", centres, centres), least_squares_of(form.root)
    blur = _single_slack(len(middle)) * float(np.median(least) * squares.mean())
    single = centres.T.astype(np.float32) if squares.max() <= _LARGEST_SINGLE and blur <= _MOST_BLUR else None
    return Screen(middle, centres.T, squares, least, single)


def _single_slack(d: int) -> float:
    """Rounding of a squared distance in d dimensions that is taken by a product in single precision, relative to the
    squares that it is the difference of: of both factors and of d sums (Higham 2002, section 3.1)."""
    return (d + 8) * 2.0**-24


def _upper(x: Array, screen: Screen, constant: Array) -> Array:
    """(n, T) values that the scores do not exceed."""
    rows = x - screen.middle
    own = np.einsum("nd,nd->n", rows, rows)
    if screen.single is not None and own.max() <= _LARGEST_SINGLE:
        product, slack = rows.astype(np.float32) @ screen.single, _single_slack(rows.shape[1])
    else:
        product, slack = rows @ screen.centres, _SLACK
    upper = np.empty(product.shape)
    bound_scores(own, product, constant, screen.squares, screen.least, slack, upper)
    return upper


def least_squares_of(root: Array) -> Array:
    """(T,) squares of the least singular values of `root`, or a little less."""
    if root.ndim == 2:
        return np.asarray(np.square(root).min(axis=1))
    least = np.linalg.eigvalsh(root.transpose(0, 2, 1) @ root)[:, 0]
    return np.asarray(np.maximum(least * (1.0 - _MARGIN), 0.0))


def _together(ground: Ground, family: AnyFamily, form: Quadratic, sums: Sums, shares: csr_matrix, past: Any) -> Any:
    """Statistics of the rows and of the past."""
    stats, given, before = family.empty_stats(len(sums.mass)), (form.centre, *sums, DIRECT_ABOVE), as_written(past)
    match family:
        case KnownCovariance():
            done = known_together(*given, float(family.covariance), *before, *stats)
        case NormalInverseGamma():
            done = diagonal_together(*given, *before, *stats)
        case NormalInverseWishart():
            done = gaussian_together(*given, *before, *stats)
        case _:
            done = False
    return stats if done else family.add(_statistics(ground, family, form, sums, shares), past)


def _statistics(ground: Ground, family: AnyFamily, form: Quadratic, sums: Sums, shares: csr_matrix) -> Any:
    """Statistics about each component's own mean; added up about it once more where the centre was too far away."""
    mean, scatter, raw, left = _centred(form.centre, sums)
    lost = np.flatnonzero(np.any(raw > DIRECT_ABOVE * left, axis=1))
    if lost.size:
        place = np.full(len(sums.mass), -1)
        place[lost] = np.arange(lost.size)
        again = Sums(sums.mass[lost], np.zeros(mean[lost].shape), np.zeros(sums.second[lost].shape))
        entries = (shares.indptr, shares.indices, shares.data)
        add_again(np.ascontiguousarray(ground.x), *entries, ground.weights, place, mean[lost], *again[1:])
        mean[lost], scatter[lost], _, _ = _centred(mean[lost], again)
        if scatter.ndim == 2:
            np.maximum(scatter, 0.0, out=scatter)
    return family.empty_stats(len(sums.mass))._replace(mass=sums.mass, mean=mean, scatter=_as_held(family, scatter))


def _centred(centre: Array, sums: Sums) -> tuple[Array, Array, Array, Array]:
    """Means (T, D) and scatter about them, of sums about other centres; and of every feature the two sums of squares,
    about those and about the means."""
    shift = ratio(sums.first, sums.mass[:, None])
    mean = np.where(sums.mass[:, None] > 0.0, centre + shift, 0.0)
    if sums.second.ndim == 2:
        scatter = sums.second - shift * sums.first
        return mean, scatter, sums.second, scatter
    second = np.tril(sums.second) + np.tril(sums.second, -1).transpose(0, 2, 1)
    scatter = second - shift[:, :, None] * sums.first[:, None, :]
    raw, left = np.diagonal(second, axis1=1, axis2=2), np.diagonal(scatter, axis1=1, axis2=2)
    return mean, scatter, raw, left


def _as_held(family: AnyFamily, scatter: Array) -> Array:
    """As the family's statistics hold it."""
    if isinstance(family, KnownCovariance):
        return np.asarray(scatter.sum(axis=1) / float(family.covariance))
    return scatter
