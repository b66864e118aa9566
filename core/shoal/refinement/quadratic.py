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

from shoal.arrays import Array, IntArray, SingleArray
from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.families.api_kernel import MOST_WAITING, Waiting
from shoal.families.known_covariance import LOG_2PI
from shoal.families.linalg import cholesky, inverse_lower, log_determinant, multivariate_digamma
from shoal.families.moments import DIRECT_ABOVE, ratio
from shoal.refinement.entries_kernel import find_largest
from shoal.refinement.evidence import as_written
from shoal.refinement.few_features_kernel import sweep_few_features
from shoal.refinement.ground import Ground
from shoal.refinement.lanes_kernel import in_fours, width_of
from shoal.refinement.quadratic_kernel import add_again, bound_scores, sweep_block
from shoal.refinement.tile_kernel import sweep_tiles
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
_MARGIN = 1e-5
"""Rounding of a least singular value's square, relative to itself, and what `cholesky` may have added to a diagonal."""


class Quadratic(NamedTuple):
    """Scores of T components."""

    constant: Array  # (T,)
    centre: Array  # (T, D)
    root: Array  # (T, D, D) lower triangular, or (T, D) the diagonal
    least: Array  # (T,) what |root v|^2 / |v|^2 does not go below


class Screen(NamedTuple):
    """What the scores of T components are bounded by."""

    middle: Array  # (D,) of the centres
    centres: Array  # (D, T) less the middle
    squares: Array  # (T,) of their lengths
    least: Array  # (T,) squares of the least singular values, or a little less
    single: SingleArray | None
    """The centres in single precision; None where that would blur the bounds."""


class Tiles(NamedTuple):
    """What a sweep in tiles reads, beside."""

    centre: Array  # (T, W), zero from D on
    fours: Array  # (T, W / 4, W, 4) the roots as `lanes_kernel` has them
    waiting: Waiting
    """Room for outer products that wait to be added up."""


class _Given(NamedTuple):
    """What all blocks of a sweep have in common."""

    form: Quadratic
    constant: Array  # (T,) of scores and log weights
    log_floor: float
    screen: Screen | None
    tiles: Tiles | None
    likely: IntArray | None  # (N,)


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
    least = np.zeros(len(root)) if d <= _FEW_FEATURES else params.dof / largest_eigenvalues(params.scale)
    return Quadratic(0.5 * constant, params.mean, root, least)


@quadratic_of.register
def _(family: NormalInverseGamma, params: Any) -> Quadratic:
    constant = psi(params.shape) - LOG_2PI - 1.0 / params.mean_strength
    constant = family.n_features * constant - np.log(params.rate).sum(axis=1)
    squares = params.shape[:, None] / params.rate
    return Quadratic(0.5 * constant, params.mean, np.sqrt(squares), squares.min(axis=1))


@quadratic_of.register
def _(family: KnownCovariance, params: Any) -> Quadratic | None:
    if not family.spherical:
        return None
    constant = family.log_det_basis - 0.5 * family.n_features * LOG_2PI - 0.5 * (1.0 / params.precision).sum(axis=1)
    square = 1.0 / float(family.covariance)
    root = np.full(params.mean.shape, np.sqrt(square))
    return Quadratic(constant, params.mean, root, np.full(len(root), square))


def swept(
    ground: Ground,
    family: AnyFamily,
    params: Any,
    log_weight: Array,
    log_floor: float,
    past: Any,
    near: csr_matrix | None = None,
) -> Swept | None:
    """An E- and an M-step with the past's statistics `past` (T rows); None for a family whose scores are not
    quadratic. What `near` (N, T or fewer), responsibilities of a time before, are largest at is where a row is likely
    to belong: that changes no responsibility, but the time, and last digits of sums, which are in another order."""
    form = quadratic_of(family, params)
    if form is None:
        return None
    t, step = len(log_weight), min(max(64, _BLOCK_ELEMENTS // max(form.centre.shape)), ground.n_rows)
    given = _given(form, form.constant + log_weight, log_floor, near)
    sums = Sums(np.zeros(t), np.zeros(form.centre.shape), np.zeros(form.root.shape))
    ends = np.zeros(ground.n_rows + 1, dtype=np.int64)
    filled, entropy, dropped = 0, 0.0, 0.0
    most = step * t + 1
    indices = np.empty(most + _ENTRIES_A_ROW * ground.n_rows, dtype=np.int32)
    resp = np.empty(indices.size)
    for start in range(0, ground.n_rows, step):
        part = slice(start, min(start + step, ground.n_rows))
        if filled + most > indices.size:
            indices, resp = _longer(indices, filled + most), _longer(resp, filled + most)
        n, h, lost = _sweep(ground, given, part, (indices[filled:], resp[filled:], ends[1:][part]), sums)
        ends[1:][part] += filled
        filled, entropy, dropped = filled + n, entropy + h, dropped + lost
    if given.tiles is not None:
        _add_waiting(sums, given.tiles.waiting)
    shares = csr_matrix((resp[:filled], indices[:filled], ends), shape=(ground.n_rows, t))
    return Swept(shares, entropy, dropped, sums.mass, _together(ground, family, form, sums, shares, past))


def _given(form: Quadratic, constant: Array, log_floor: float, near: csr_matrix | None) -> _Given:
    screen, tiles = _screen_of(form), _tiles_of(form)
    likely = None if tiles is None or near is None else np.minimum(_likely(near), len(constant) - 1)
    return _Given(form, constant, log_floor, screen, tiles, likely)


def _sweep(
    ground: Ground, given: _Given, part: slice, entries: tuple[Any, ...], sums: Sums
) -> tuple[int, float, float]:
    """A block of rows divided and added up, by the kernel that suits their features."""
    x, form, tiles = np.ascontiguousarray(ground.x[part]), given.form, given.tiles
    what = (ground.weights[part], given.log_floor, *entries, *sums)
    if given.screen is None:
        done = sweep_few_features(x, given.constant, form.centre, form.root, *what)
    elif tiles is None:
        done = sweep_block(x, _upper(x, given.screen, given.constant), given.constant, form.centre, form.root, *what)
    else:
        upper = _upper(x, given.screen, given.constant)
        guess = upper.argmax(axis=1) if given.likely is None else given.likely[part]
        done = sweep_tiles(x, upper, guess, tiles.waiting, given.constant, tiles.centre, tiles.fours, *what)
    n, entropy, dropped = done
    return n, entropy, dropped


def _tiles_of(form: Quadratic) -> Tiles | None:
    """What a sweep in tiles reads; None where it is another kernel's."""
    t, d = form.centre.shape
    if form.root.ndim == 2 or d <= _FEW_FEATURES:
        return None
    centre = np.zeros((t, width_of(d)))
    centre[:, :d] = form.centre
    return Tiles(centre, in_fours(form.root), Waiting(np.empty((t, MOST_WAITING, d)), np.zeros(t, dtype=np.int64)))


def _likely(near: csr_matrix) -> IntArray:
    """(N,) the component that each row had most of; the first for a row that had none, all its scores being -inf."""
    best, largest = np.empty(near.shape[0], dtype=np.int64), np.empty(near.shape[0])
    find_largest(near.indptr, near.indices, near.data, best, largest)
    return best


def _add_waiting(sums: Sums, waiting: Waiting) -> None:
    """Add up the outer products that still wait."""
    left = np.flatnonzero(waiting.filled)
    waits = np.arange(MOST_WAITING) < waiting.filled[left, None]
    vectors = np.where(waits[:, :, None], waiting.vectors[left], 0.0)
    sums.second[left] += vectors.transpose(0, 2, 1) @ vectors


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
    squares, least = np.einsum("kd,kd->k", centres, centres), form.least * (1.0 - _MARGIN)
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


def largest_eigenvalues(matrices: Array) -> Array:
    """(T,) what the largest eigenvalues of positive definite matrices (T, D, D) do not exceed, by less than half as a
    rule.

    Mean m and deviation s of a matrix's eigenvalues, which trace and sum of squares give, bound the largest by
    m + s sqrt(D - 1) (Wolkowicz and Styan 1980): that of the fourth power, whose root is the closer. It takes a third
    of the time of a spectrum.
    """
    d, size = matrices.shape[1], np.trace(matrices, axis1=1, axis2=2)
    power = matrices / size[:, None, None]
    power = power @ power
    power = power @ power
    middle = np.trace(power, axis1=1, axis2=2) / d
    spread = np.sqrt(np.maximum(np.einsum("kde,kde->k", power, power) / d - middle**2, 0.0))
    return np.asarray(size * (middle + spread * np.sqrt(d - 1.0)) ** 0.25)


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
