"""The log partition function of the conjugate prior of Dirichlet components, by Laplace's method, and its gradient.

With u = log alpha, alpha_0 = sum alpha, and the prior of `prior`, the integrand of A(S, n) is exp f(u) du,

    f = c'u + S'alpha - n sum log G(alpha_d) + Q(alpha_0),
    Q = (a - sum c) log alpha_0 - a alpha_0 / g + n log G(alpha_0),

c being the pseudo counts, g the mean precision and a the shape of its gamma prior. At the mode -f'' is h - Q'' alpha
alpha' with the diagonal h_d = c_d + n alpha_d^2 psi'(alpha_d), so that mode and determinant cost O(D).

Laplace's method takes the integrand as a Gaussian in u. Of one gamma variable in u it misses Stirling's remainder
e(shape) = log G(shape) - ((shape - 1/2) log shape - shape + log(2 pi) / 2). So e is added for each shape there is.

It also takes the width of the mean as fixed while the precision varies. But where alpha is large, the width falls with
the precision, and the mode is at a precision above where the mass lies: for few points, many features and a wide prior
by tens of nats. So the integral over the precision has a closed form here. Given the best mean the integrand is about
a gamma density of the precision, of the shape k that has the curvature at the mode; the width of the mean falls as the
precision to the power -b; and the integral of their product is that of a gamma density of the shape s = k - b:

    A = f(mode) + D / 2 log(2 pi) - 1/2 log det(-f'') + sum e(h_d) - e(sum c + n) + E,
    E = log G(s) - s log k + k - 1/2 log(2 pi / k),   k = (1 - Q'' v) alpha_0^2 / v,   v = sum alpha_d^2 / h_d,
    b = 1/2 sum (1 - alpha_d / alpha_0) d log h_d / du_d.

s is at least half of k, or of a where that is less. This is exact without points, and where all alpha are small: then
alpha / alpha_0 is Dirichlet and alpha_0 gamma. It is exact in the limit of many points. Everything that engines ask is
derived from A itself, whose exact gradient is given here: evidence, joins and predictive densities agree with one
another, and bounds rise, as A is convex.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, polygamma, psi

from shoal.points.arrays import Array

LOG_2PI = float(np.log(2.0 * np.pi))

MOST_MOVE = 2.0
"""Of log alpha in one step."""

CLOSE = 1e-5
"""Newton's method doubles digits: after a step of this size ten are right, and the integrand is flat there."""

MOST_STEPS = 60

REMAINDER_SERIES_FROM = 10.0

FLATTEST = 0.25
"""Of the shape a: the least k. For a fraction of a point under a wide prior f may have two modes, or one without
curvature."""


class Prior(NamedTuple):
    """The prior as the functions here read it."""

    pseudo_counts: Array  # (D,) c
    strength: float  # sum of c
    shape: float  # a
    precision: float  # g
    log_front: float  # minus the log of the integral of exp f without points


def prior_of(pseudo_counts: Array, precision: float, shape: float) -> Prior:
    """The prior of these hyperparameters."""
    strength = float(pseudo_counts.sum())
    front = gammaln(strength) - gammaln(pseudo_counts).sum() + shape * np.log(shape / precision) - gammaln(shape)
    return Prior(pseudo_counts, strength, shape, precision, float(front))


def remainder(shape: Array) -> Array:
    """Stirling's remainder e(shape)."""
    near = np.minimum(shape, REMAINDER_SERIES_FROM)
    exact = gammaln(near) - ((near - 0.5) * np.log(near) - near + 0.5 * LOG_2PI)
    far = np.maximum(shape, REMAINDER_SERIES_FROM)
    r = 1.0 / (far * far)
    series = (1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r * (1.0 / 1680.0 - r / 1188.0)))) / far
    return np.where(shape < REMAINDER_SERIES_FROM, exact, series)


def start(prior: Prior, total: Array, mass: Array) -> Array:
    """(M, D): where the search for the mode begins: the mean precision, and means between prior and points."""
    points = total / np.maximum(mass, 1e-300)[:, None]
    mean = np.exp(points - points.max(axis=1, keepdims=True))
    mean /= mean.sum(axis=1, keepdims=True)
    share = (mass / (mass + 1.0))[:, None]
    return np.asarray(prior.precision * ((1.0 - share) * prior.pseudo_counts / prior.strength + share * mean))


def mode(prior: Prior, total: Array, mass: Array, begin: Array | None = None) -> Array:
    """(M, D): alpha at the mode, by Newton's method with the matrix that -f'' is at the mode."""
    alpha = start(prior, total, mass) if begin is None else np.array(begin)
    left = np.arange(len(mass))
    for _ in range(MOST_STEPS):
        move = _newton_step(prior, total[left], mass[left], alpha[left])
        alpha[left] *= np.exp(np.clip(move, -MOST_MOVE, MOST_MOVE))
        left = left[np.abs(move).max(axis=1) > CLOSE]
        if not left.size:
            break
    return alpha


def _newton_step(prior: Prior, total: Array, mass: Array, alpha: Array) -> Array:
    """(M, D) change of log alpha."""
    n, c = mass[:, None], prior.pseudo_counts
    whole = alpha.sum(axis=1, keepdims=True)
    own = (prior.strength - prior.shape) / whole
    slope = -own - prior.shape / prior.precision + n * psi(whole)
    gradient = c + alpha * (total + slope) - n * times_digamma(alpha)
    weight = alpha / (c + n * times_trigamma(alpha))
    bend = own / whole + n * times_trigamma(whole) / (whole * whole)
    spread = (alpha * weight).sum(axis=1, keepdims=True)
    rest = 1.0 - bend * spread
    convex = rest <= 0.0  # far from the mode: keep what is concave
    least = np.minimum(own / whole, 0.0)
    bend, rest = np.where(convex, least, bend), np.where(convex, 1.0 - least * spread, rest)
    rest = np.maximum(rest, FLATTEST * prior.shape * spread / (whole * whole))
    along = (weight * gradient).sum(axis=1, keepdims=True)
    return np.asarray(weight * (gradient / alpha + bend * along / rest))


def times_digamma(a: Array) -> Array:
    """a psi(a), also where psi(a) is beyond the largest float."""
    return np.asarray(a * psi(a + 1.0) - 1.0)


def times_trigamma(a: Array) -> Array:
    """a^2 psi'(a)."""
    return np.asarray(1.0 + a * a * polygamma(1, a + 1.0))


def _times_tetragamma(a: Array) -> Array:
    """a^3 psi''(a)."""
    return np.asarray(a**3 * polygamma(2, a + 1.0) - 2.0)


def _times_pentagamma(a: Array) -> Array:
    """a^4 psi'''(a)."""
    return np.asarray(a**4 * polygamma(3, a + 1.0) + 6.0)


def log_gamma(a: Array) -> Array:
    """log G(a)."""
    return np.asarray(gammaln(a + 1.0) - np.log(a))


class Curvature(NamedTuple):
    """-f'' at the mode: diag(diagonal) - bend alpha alpha'."""

    whole: Array  # (M,) alpha_0
    diagonal: Array  # (M, D) h
    bend: Array  # (M,) Q''
    spread: Array  # (M,) sum alpha^2 / h
    rest: Array  # (M,) det(-f'') over the product of h


def curvature(prior: Prior, mass: Array, alpha: Array) -> Curvature:
    """-f'' where alpha is at the mode."""
    whole = alpha.sum(axis=1)
    diagonal = prior.pseudo_counts + mass[:, None] * times_trigamma(alpha)
    bend = (prior.strength - prior.shape + mass * times_trigamma(whole)) / (whole * whole)
    spread = (alpha * alpha / diagonal).sum(axis=1)
    rest = np.maximum(1.0 - bend * spread, FLATTEST * prior.shape * spread / (whole * whole))
    return Curvature(whole, diagonal, bend, spread, rest)


def log_beta(alpha: Array) -> Array:
    """log B(alpha) (M,), the log normaliser of a Dirichlet distribution."""
    return np.asarray(log_gamma(alpha).sum(axis=1) - log_gamma(alpha.sum(axis=1)))


class Precision(NamedTuple):
    """The integral over the precision."""

    turn: Array  # (M, D) dh / du
    fall: Array  # (M,) b
    peak: Array  # (M,) k
    shape: Array  # (M,) s
    free: Array  # (M,) whether s is k - b


def _precision(prior: Prior, mass: Array, alpha: Array, at: Curvature) -> Precision:
    turn = mass[:, None] * (2.0 * times_trigamma(alpha) + _times_tetragamma(alpha))
    share = 1.0 - alpha / at.whole[:, None]
    fall = 0.5 * (share * turn / at.diagonal).sum(axis=1)
    peak = at.rest * at.whole**2 / at.spread
    least = 0.5 * np.minimum(prior.shape, peak)
    return Precision(turn, fall, peak, np.maximum(peak - fall, least), peak - fall > least)


def log_partition(prior: Prior, total: Array, mass: Array, alpha: Array) -> Array:
    """A (M,) of statistics whose mode is `alpha`."""
    at = curvature(prior, mass, alpha)
    d = alpha.shape[1]
    height = log_integrand(prior, total, mass, alpha) + 0.5 * d * LOG_2PI
    height -= 0.5 * (np.log(at.diagonal).sum(axis=1) + np.log(at.rest))
    exact = remainder(at.diagonal).sum(axis=1) - remainder(prior.strength + mass)
    _, _, peak, shape, _ = _precision(prior, mass, alpha, at)
    below = peak - shape
    return np.asarray(height + exact + (shape - 0.5) * np.log1p(-below / peak) + below + remainder(shape))


def log_integrand(prior: Prior, total: Array, mass: Array, alpha: Array) -> Array:
    """f (M,), with the constant that makes the integral one without points."""
    whole = alpha.sum(axis=1)
    value = (prior.pseudo_counts * np.log(alpha) + total * alpha).sum(axis=1) - mass * log_beta(alpha)
    value += (prior.shape - prior.strength) * np.log(whole) - prior.shape / prior.precision * whole
    return np.asarray(value + prior.log_front)


def gradient(prior: Prior, mass: Array, alpha: Array) -> tuple[Array, Array]:
    """dA / dS (M, D), the expected alpha, and dA / dn (M,), minus the expected log B(alpha).

    f adds its own derivatives, as the mode moves along where f is flat. The other terms R move with the mode, by
    (-f'')^-1 times the mixed derivatives of f.
    """
    at, n = curvature(prior, mass, alpha), mass[:, None]
    turn, _, peak, shape, free = _precision(prior, mass, alpha, at)
    whole, bend, rest, spread = at.whole[:, None], at.bend[:, None], at.rest[:, None], at.spread[:, None]
    tri, tetra = times_trigamma(alpha), _times_tetragamma(alpha)
    of_diagonal = psi(at.diagonal) - np.log(at.diagonal)  # slope of e(h) - 1/2 log h
    square, share, steep = alpha * alpha / at.diagonal, alpha / whole, turn / at.diagonal
    third = (-2.0 * (prior.strength - prior.shape) + mass * _times_tetragamma(at.whole))[:, None] / whole**3
    of_spread = square * (2.0 - steep)
    of_rest = -third * alpha * spread - bend * of_spread
    # E moves with k and s
    bow = n * (4.0 * tri + 5.0 * tetra + _times_pentagamma(alpha)) / at.diagonal - steep * steep
    of_fall = 0.5 * (bow * (1.0 - share) - share * (steep - (share * steep).sum(axis=1, keepdims=True)))
    of_peak = peak[:, None] * (of_rest / rest + 2.0 * share - of_spread / spread)
    by_shape, by_peak = psi(shape) - np.log(peak), 1.0 - (shape - 0.5) / peak
    by_fall = np.where(free, -by_shape, 0.0)
    by_peak += by_shape * np.where(free, 1.0, np.where(peak < prior.shape, 0.5, 0.0))
    moved = of_diagonal * turn - 0.5 * of_rest / rest  # dR / du
    moved += by_peak[:, None] * of_peak + by_fall[:, None] * of_fall
    weight = alpha / at.diagonal
    lift = moved / at.diagonal + weight * bend * (weight * moved).sum(axis=1, keepdims=True) / rest
    mixed = alpha * psi(whole) - times_digamma(alpha)
    lost = (square * tri / at.diagonal).sum(axis=1)  # -dv / dn
    rest_slope = -times_trigamma(at.whole) / at.whole**2 * at.spread + at.bend * lost
    steeper = (2.0 * tri + tetra) / at.diagonal - steep * tri / at.diagonal
    own = (of_diagonal * tri).sum(axis=1) - _remainder_slope(prior.strength + mass) - 0.5 * rest_slope / at.rest
    own += by_peak * peak * (rest_slope / at.rest + lost / at.spread)
    own += by_fall * 0.5 * ((1.0 - share) * steeper).sum(axis=1)
    of_mass = (lift * mixed).sum(axis=1) - log_beta(alpha) + own
    return alpha * (1.0 + lift), np.asarray(of_mass)


def _remainder_slope(shape: Array) -> Array:
    """e'(shape)."""
    return np.asarray(psi(shape) - np.log(shape) + 0.5 / shape)
