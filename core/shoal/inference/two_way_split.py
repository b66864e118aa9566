"""Two-way splits: a sample of a component's rows divided between two children, by rounds of the two alone.

A round is linear in the natural statistics t(x) of the rows: two products with their table. A prior that reads as a
normal-inverse-Wishart in few features has a kernel that makes all rounds in one call (`split_kernel`), where NumPy's
calls would take longer than their work. This module is the plain form of that kernel.

Where a sample stands for more rows than it has, its gain is too high: children fitted to m rows gain about one nat a
parameter less on m other rows (Akaike 1974), and a row of weight u speaks for u - 1 others. A division that does not
gain more than this correction on its sample is not pursued.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import entr, expit

from shoal.families import AnyFamily
from shoal.families.capabilities import (
    log_partition_with_gradient,
    natural_rows_given,
    reads_all_products,
    split_prior,
    split_rows,
)
from shoal.families.natural_statistics import Origin, seen_from, statistics_table
from shoal.inference.data import Rows
from shoal.inference.label_terms import StickPrior, split_gain, split_log_odds
from shoal.inference.split_limits import LIMITS, SplitLimits
from shoal.inference.sweep import Model
from shoal.kernels.linalg import pack, upper_of
from shoal.points.arrays import Array

TABLE_FEATURES = 3
"""Up to so many features the table of all products has few enough columns to be written out."""


class SplitSample(NamedTuple):
    """Rows by which a division is searched, with weights that sum to the component's mass in the window."""

    x: Rows
    weight: Array  # (m,)
    points_a_row: float = 1.0
    """Points that a row stands for by itself: more than one for the node of a tree."""


class Division(NamedTuple):
    """Two children on a sample."""

    p: Array  # (m,) share of the first child
    gain: float  # nats


class DividedComponent(NamedTuple):
    """The component that is divided, without its past."""

    origin: Origin  # of sums of squares: its mean, if the family has a location
    mass_behind: float  # of the components behind it on the stick
    params: Any = None  # its posterior (one row), by which latent variables of the rows are held during the division


class QuadraticRows:
    """Points y (m, D) as the table of t(y) = (y, 1, 1, upper triangle of y y'), which is not written out.

    It has products with slopes, `rows @ slope` (m,), and with weights >= 0, `weights @ rows` (P,).
    """

    __array_ufunc__ = None  # so that NumPy leaves `weights @ rows` to this class

    def __init__(self, y: Array) -> None:
        self.y = y

    def __matmul__(self, slope: Array) -> Array:
        """(m,) y'M y + b'y + c."""
        d = self.y.shape[1]
        square = upper_of(slope[d + 2 :], d)
        products = np.einsum("md,md->m", self.y @ square, self.y)
        return np.asarray(products + self.y @ slope[:d] + (slope[d] + slope[d + 1]))

    def __rmatmul__(self, weights: Array) -> Array:
        """(P,) weighted sums."""
        weighted = np.sqrt(weights)[:, None] * self.y
        mass = weights.sum()
        second = weighted.T @ weighted  # of one array, so that BLAS computes half of it
        return np.concatenate([weights @ self.y, [mass, mass], pack(second, with_multiplicity=True)])


def table_of(family: AnyFamily, x: Rows, origin: Origin, params: Any = None) -> Any:
    """t(x) (m, P) of points x (m, D): an object with products with slopes (P,) and with weights (m,).

    Latent variables of the points, if the family has any, are at their best given one component's posterior `params`.
    """
    if reads_all_products(family) and x.shape[1] > TABLE_FEATURES:
        return QuadraticRows(x - origin.point)
    return statistics_table(family, x, origin) if params is None else natural_rows_given(family, params, x, origin)


def best_division(
    model: Model,
    component: DividedComponent,
    sample: SplitSample,
    starts: Sequence[Array],
    limits: SplitLimits = LIMITS,
) -> Division | None:
    """The best division that rounds from the starts, sides (m,), lead to.

    None where a child died from every start, or none gains more than the correction. The gain is that of the window's
    rows alone, other components keeping their order on the stick.
    """
    prior = split_prior(model.family)
    if prior is not None:
        from shoal.inference.split_kernel import SplitTask, divide_rows

        center = component.origin.point
        seen = prior._replace(mean=prior.mean - center)
        y = np.ascontiguousarray(split_rows(model.family, sample.x) - center)
        shares, gains = np.array(starts, dtype=np.float64), np.empty(len(starts))
        task = SplitTask(y, sample.weight, sample.points_a_row, component.mass_behind, *model.sticks)
        least = limits.least_gain + divide_rows(task, seen, limits, shares, gains)
        best = int(np.argmax(gains))
        return Division(shares[best], float(gains[best])) if gains[best] > least else None
    plain = PlainSplit.of_rows(model, component, sample, limits)
    found = [division for division in map(plain.divided, starts) if division is not None]
    winner = max(found, key=lambda division: division.gain, default=None)
    return (
        Division(winner.p, winner.gain)
        if winner is not None and winner.gain > plain.correction + limits.least_gain
        else None
    )


class PlainDivision(NamedTuple):
    """Two children on a sample, and the log odds of the first one in every row: slope . t(x) + odds."""

    p: Array  # (m,)
    gain: float  # nats
    slope: Array  # (P,)
    odds: float
    past_first: bool  # whether the first child has the past


class PlainSplit:
    """Rounds in NumPy, for any family. A past, if there is one, goes whole to the child that fits it better."""

    def __init__(
        self,
        family: AnyFamily,
        sticks: StickPrior,
        prior: Array,
        table: Any,
        weight: Array,
        mass_behind: float,
        *,
        past: tuple[Array, float] | None = None,
        limits: SplitLimits = LIMITS,
        points_a_row: float = 1.0,
    ) -> None:
        """`prior` (P,) are natural parameters, `table` (m, P) rows t(x), `past` sums of t(x) (P,) and their mass."""
        self.family, self.sticks, self.limits, self.prior = family, sticks, limits, prior
        self.table, self.weight, self.behind = table, weight, mass_behind
        self.past, self.past_mass = (np.zeros_like(prior), 0.0) if past is None else past
        self.whole = weight @ table
        self.reference = float(self._log_partition(np.stack([prior + self.whole + self.past, prior])).sum())
        self.correction = overfit_correction(family, weight, self.whole, points_a_row)

    @classmethod
    def of_rows(
        cls, model: Model, component: DividedComponent, sample: SplitSample, limits: SplitLimits
    ) -> "PlainSplit":
        """The split of a component's sample, without its past."""
        family = model.family
        prior = family.natural(seen_from(family, family.posterior(family.empty_stats(1)), component.origin))[0]
        table = table_of(family, sample.x, component.origin, component.params)
        return cls(
            family,
            model.sticks,
            prior,
            table,
            sample.weight,
            component.mass_behind,
            limits=limits,
            points_a_row=sample.points_a_row,
        )

    def divided(self, start: Array) -> PlainDivision | None:
        """Rounds from one start; None where a child died."""
        p, gain, past_first, limits = start, -np.inf, True, self.limits
        for done in range(limits.rounds):
            mass = np.array([self.weight @ p, self.weight @ (1.0 - p)])
            if not mass.min() > limits.least_share * mass.sum():
                return None
            first = (self.weight * p) @ self.table
            natural = self.prior + np.stack([first, self.whole - first])
            if self.past_mass > 0.0:
                past_first = self._fits_first(natural) if done == 0 else past_first
                natural[0 if past_first else 1] += self.past
                mass[0 if past_first else 1] += self.past_mass
            try:
                log_partition, slopes = log_partition_with_gradient(self.family, self.family.from_natural(natural))
            except np.linalg.LinAlgError:  # as in `_log_partition`
                return None
            now = float(log_partition.sum()) - self.reference
            now += division_entropy(self.weight, p) + float(split_gain(self.sticks, mass[0], mass[1], self.behind))
            rise, gain = now - gain, now
            if not np.isfinite(now):
                return None
            slope, odds = slopes[0] - slopes[1], float(split_log_odds(self.sticks, mass[0], mass[1], self.behind))
            ended = rise <= limits.tolerance * mass.sum() or self._gains_too_little(done, gain, rise)
            if ended or done == limits.rounds - 1:
                break
            p = expit(self.table @ slope + odds)
        return PlainDivision(p, gain, slope, odds, past_first)

    def _gains_too_little(self, done: int, gain: float, rise: float) -> bool:
        short, late = self.correction + self.limits.least_gain - gain, done > 2
        rounds = self.limits.late_rounds if late else self.limits.early_rounds
        return done > 0 and short > rounds * rise and (late or short > self.limits.far)

    def _fits_first(self, natural: Array) -> bool:
        """Whether the past raises the evidence more with the first child than with the second."""
        alone, together = self._log_partition(natural), self._log_partition(natural + self.past)
        return bool(together[0] + alone[1] >= alone[0] + together[1])

    def _log_partition(self, natural: Array) -> Array:
        """(K,). NaN, and so no gain, where rows lie so far out that rounding leaves nothing of the prior."""
        try:
            return np.asarray(self.family.log_partition(self.family.from_natural(natural)))
        except np.linalg.LinAlgError:
            return np.full(len(natural), np.nan)


def overfit_correction(family: AnyFamily, weight: Array, whole: Array, points_a_row: float = 1.0) -> float:
    """Nats by which a gain on the sample is likely to exceed that on all rows.

    `whole` (P,) are the sample's sums: a parameter that no row tells about does not count.
    """
    parameters = min(family.n_free_parameters, int(np.count_nonzero(whole)))
    return parameters * unseen_points(weight, points_a_row)


def unseen_points(weight: Array, points_a_row: float = 1.0) -> float:
    """Points that a row of a sample with weights (m,) stands for beside those in it, on average."""
    return max(float(weight @ weight / weight.sum()) - points_a_row, 0.0)


def division_entropy(weight: Array, p: Array) -> float:
    """sum_n w_n H(p_n), nats."""
    return float(weight @ (entr(p) + entr(1.0 - p)))


def log_odds(sticks: StickPrior, mass: Array, behind: float) -> float:
    """E log weight of the first child less that of the second, masses (2,)."""
    return float(split_log_odds(sticks, mass[0], mass[1], behind))
