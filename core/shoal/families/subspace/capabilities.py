"""Abilities that engines use, as methods of `SubspaceGaussian`: those of a Gaussian over the coordinates."""

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from shoal.families.capabilities import QuadraticForm, SplitPrior
from shoal.families.gaussian import GaussianParams, GaussianStats, NormalInverseWishart
from shoal.families.located.types import WeightedMoments
from shoal.families.natural_statistics import Origin, Statistics
from shoal.families.prior_choices import SMALLEST, Choice
from shoal.families.subspace.projection import row_width
from shoal.families.subspace.types import SubspaceStats
from shoal.points.arrays import Array

if TYPE_CHECKING:
    from shoal.families.subspace.prior import SubspaceGaussian


def natural_statistics(family: "SubspaceGaussian", x: Array, origin: Origin) -> Statistics:
    """Those of the coordinates; the noise outside is part of the carrier."""
    y, square = family.seen(x)
    rows, log_carrier = family.inner.natural_statistics(y, Origin(origin.point[: family.rank], True))
    return Statistics(rows, log_carrier + family.log_outside(square))


def quadratic_form(family: "SubspaceGaussian", params: GaussianParams) -> QuadraticForm:
    """Quadratic forms of working rows: the distance is one coordinate more, about zero, of the noise's deviation."""
    form, r = family.inner.quadratic_form(params), family.rank
    width = row_width(family.n_features, r)
    centre = np.zeros((len(form.constant), width))
    centre[:, :r] = form.centre
    root, inverse = (np.zeros((len(form.constant), width, width)) for _ in range(2))
    root[:, :r, :r], inverse[:, :r, :r] = form.root, form.inverse
    deviation = np.sqrt(family.noise_variance)
    beyond = np.arange(r, width)
    root[:, beyond, beyond], inverse[:, beyond, beyond] = 1.0 / deviation, deviation
    return QuadraticForm(form.constant + family.log_outside(np.zeros(1)), centre, root, inverse)


def stats_of_moments(
    family: "SubspaceGaussian", sums: WeightedMoments, most: float, past: SubspaceStats
) -> SubspaceStats | None:
    """Statistics of moments of working rows about centres, joined with those of the past."""
    r = family.rank
    own = WeightedMoments(
        np.ascontiguousarray(sums.centre[:, :r]),
        sums.mass,
        np.ascontiguousarray(sums.first[:, :r]),
        np.ascontiguousarray(sums.second[:, :r, :r]),
    )
    stats = family.inner.stats_of_moments(own, most, GaussianStats(past.mass, past.mean, past.scatter))
    if stats is None:
        return None
    return SubspaceStats(*stats, sums.second[:, r, r] + past.outside)


def fast_log_marginal(family: "SubspaceGaussian", stats: SubspaceStats) -> Array | None:
    """log m(S_k) by the kernel of `gaussian`, up to its number of features."""
    value = family.inner.fast_log_marginal(GaussianStats(stats.mass, stats.mean, stats.scatter))
    return None if value is None else value + family.log_outside(stats.outside, stats.mass)


def split_prior(family: "SubspaceGaussian") -> SplitPrior | None:
    """The prior of the coordinates."""
    return family.inner.split_prior()


def split_rows(family: "SubspaceGaussian", x: Array) -> Array:
    """The coordinates: the noise outside says nothing of how to divide a component."""
    return family.seen(x)[0]


def log_left_out(family: "SubspaceGaussian", component: SubspaceStats, x: Array, share: Array) -> Array:
    """Scores of a component's own points without them."""
    y, square = family.seen(x)
    own = GaussianStats(component.mass, component.mean, component.scatter)
    return family.inner.log_left_out(own, y, share) + family.log_outside(square)


def prior_choices(family: "SubspaceGaussian", stats: SubspaceStats, n_components: int) -> Choice:
    """The choices of a Gaussian over the coordinates, with the noise that the points have outside the subspace."""
    choice = family.inner.prior_choices(GaussianStats(stats.mass, stats.mean, stats.scatter), n_components)
    noise, n_outside = family.noise_variance, family.n_features - family.rank
    if n_outside:
        noise = max(float(stats.outside.sum()) / (float(stats.mass.sum()) * n_outside), SMALLEST)

    def build(*chosen: float) -> Any:
        return family.with_inner(cast("NormalInverseWishart", choice.build(*chosen)), noise)

    return choice._replace(build=build)


def log_caps(family: "SubspaceGaussian", stats: SubspaceStats, x: Array, further: Array) -> Array:
    """The cap of the coordinates' density, and the noise's density."""
    y, square = family.seen(x)
    own = GaussianStats(stats.mass, stats.mean, stats.scatter)
    return np.asarray(family.inner.log_caps(own, y, further) + family.log_outside(square)[:, None])
