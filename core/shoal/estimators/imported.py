"""Gaussian mixtures of scikit-learn as the start of a stream.

A component of `GaussianMixture` with weight w, mean m and covariance S becomes the statistics of w N points with that
mean and covariance, N being the number of points behind the mixture. The prior is the one with the largest evidence for
these statistics, as in a refinement. As N grows, the predictive density tends to that of the mixture.

`BayesianGaussianMixture` has the posterior of this library's own model (Bishop 2006, section 10.2.1) where covariances
are full or diagonal: prior and statistics follow exactly from its parameters.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.utils.validation import check_is_fitted

from shoal.errors import SettingError
from shoal.families import AnyFamily
from shoal.families.gaussian_mixtures import Posteriors, family_of, prior_and_stats_of, stats_of
from shoal.families.predictive_cache import refresh
from shoal.inference import pair_entropies, reestimated
from shoal.mixture import (
    MOST_POINTS,
    MixtureState,
    StreamSettings,
    draw_points,
    grow,
    next_capacity,
    next_decay,
    snapshot_of,
    with_new_window,
)
from shoal.points.arrays import Array, IntArray
from shoal.sequential.learn import empty_state, limit_of
from shoal.sequential.prior import MEANS_OF_ONE, located_prior
from shoal.sequential.schedule import next_check

LEAST_MASS = 1.0
"""Components of fewer points are left out: truncated mixtures have many. Their mass counts as pruned."""

_DRAWN = 10_000
"""Points drawn from the mixture to see how much its components overlap: the error of an overlap is a few per cent."""

_DOF = 32.0
"""Degrees of freedom of the prior from which the search for one begins."""


class Imported(NamedTuple):
    """A mixture as prior and statistics of points (x - location) / scale."""

    prior: AnyFamily
    explicit: bool
    """Whether the prior is that of the mixture, so that refinements keep it."""
    concentration: float
    location: Array  # (D,)
    scale: Array  # (D,)
    stats: Any  # T rows, of LEAST_MASS and more
    pruned_mass: float
    ids: IntArray  # (T,) numbers of the components in the mixture
    next_id: int  # number of components of the mixture, with those left out


def imported(mixture: Any, n_points: int | None) -> Imported:
    """Prior and statistics of a fitted mixture of scikit-learn. Raises SettingError."""
    if not isinstance(mixture, GaussianMixture | BayesianGaussianMixture):
        raise SettingError(f"mixture is {mixture!r}; give a fitted GaussianMixture or BayesianGaussianMixture")
    check_is_fitted(mixture)
    if isinstance(mixture, GaussianMixture):
        if n_points is None or not 1 <= n_points < MOST_POINTS:
            raise SettingError(f"n_points is {n_points!r}; give the number of points that the mixture was fitted to")
        return _with_chosen_prior(mixture, mixture.weights_ * float(n_points), concentration=1.0)
    if n_points is not None:
        raise SettingError(
            f"n_points is {n_points!r}; leave it out, as a BayesianGaussianMixture knows its number of points"
        )
    concentration = float(mixture.weight_concentration_prior_)
    if mixture.weight_concentration_prior_type == "dirichlet_distribution":
        concentration *= mixture.n_components  # of the process to which symmetric Dirichlets of that sum tend
    mass = mixture.mean_precision_ - mixture.mean_precision_prior_
    own = mixture.covariance_type in ("full", "diag")
    return (_with_own_prior if own else _with_chosen_prior)(mixture, mass, concentration)


def state_of(found: Imported, settings: StreamSettings) -> MixtureState:
    """The state of a stream that has learnt the mixture's points, and begins its window now."""
    n, prior = len(found.stats[0]), found.prior
    limit = limit_of(settings, prior)
    if not 1 <= n <= limit:
        raise SettingError(
            f"the mixture has {n} components of {LEAST_MASS:g} point or more; this stream may have 1 to {limit}"
        )
    state = empty_state(settings, prior, found.location, found.scale, np.zeros(len(found.scale)))
    state = grow(state, next_capacity(n, limit))
    for field, given in zip(state.stats, found.stats, strict=True):
        field[:n] = given
    mass = float(found.stats[0].sum()) + found.pruned_mass
    seen = max(1, round(mass))
    state.ids[:n], state.born_at[:n], state.last_seen_at[:n] = found.ids, seen, seen
    state = state._replace(
        cache=refresh(prior, state.stats, n),
        n_components=n,
        next_id=found.next_id,
        points_seen=seen,
        decayed_count=mass,
        pruned_mass=found.pruned_mass,
        next_check=next_check(seen, n, settings.check_schedule),
        next_decay=next_decay(seen, settings.half_life_points),
        schedule=state.schedule._replace(refined_at=seen),
    )
    _write_overlaps(state)
    return with_new_window(state)


def _write_overlaps(state: MixtureState) -> None:
    """Write the pair sums that the mixture's points would have left, as the mean over points drawn from it."""
    n, rule, snapshot = state.n_components, state.settings.pair_rule, snapshot_of(state)
    if rule == "none":
        return
    resp = snapshot.predict(draw_points(snapshot, _DRAWN, np.random.default_rng(0))[0]).resp
    resp /= resp.sum(axis=1, keepdims=True)
    if rule == "entropy":
        sums = pair_entropies(csr_matrix(np.where(resp >= state.settings.floor, resp, 0.0)), np.ones(_DRAWN))
    else:
        sums = np.stack([np.minimum(resp, resp[:, k : k + 1]).sum(axis=0) for k in range(n)])
        np.fill_diagonal(sums, 0.0)
    mass = state.stats[0][:n]
    most = np.log(2.0) * (mass[:, None] + mass)  # the sum of equal components, of which more may have been drawn
    state.pairs[:n, :n] = np.minimum(sums * (state.decayed_count / _DRAWN), most)


def _with_chosen_prior(mixture: Any, mass: Array, concentration: float) -> Imported:
    keep = mass >= LEAST_MASS
    kept, mean, covariance = mass[keep], mixture.means_[keep], _covariances(mixture)[keep]
    share = kept / kept.sum()
    full = covariance.ndim == 3
    location = share @ mean
    scale = np.sqrt(share @ (np.diagonal(covariance, axis1=1, axis2=2) if full else covariance))
    z = (mean - location) / scale
    between = float((share @ z**2).mean()) if len(kept) > 1 else MEANS_OF_ONE**2
    stats = stats_of(kept, z, covariance / (scale[:, None] * scale if full else scale**2))
    start = located_prior(family_of(covariance), z.shape[1], 1.0 + between, 1.0, _DOF)
    prior = reestimated(start, stats, 0.0)
    left_out = float(mass[~keep].sum())
    return Imported(prior, False, concentration, location, scale, stats, left_out, np.flatnonzero(keep), len(mass))


def _covariances(mixture: Any) -> Array:
    """(T, D, D), or the variances (T, D) where features are independent."""
    given, (k, d) = np.asarray(mixture.covariances_), mixture.means_.shape
    if mixture.covariance_type == "tied":
        return np.broadcast_to(given, (k, d, d))
    return np.broadcast_to(given[:, None], (k, d)) if mixture.covariance_type == "spherical" else given


def _with_own_prior(mixture: Any, mass: Array, concentration: float) -> Imported:
    keep, d = mass >= LEAST_MASS, mixture.means_.shape[1]
    dof = mixture.degrees_of_freedom_[keep]
    covariance = mixture.covariances_[keep]  # scales over degrees of freedom
    given = Posteriors(
        mixture.mean_prior_,
        mixture.mean_precision_prior_,
        mixture.degrees_of_freedom_prior_,
        mixture.covariance_prior_,
        mixture.means_[keep],
        mixture.mean_precision_[keep],
        dof,
        covariance * dof.reshape(-1, *[1] * (covariance.ndim - 1)),
    )
    prior, stats = prior_and_stats_of(given, mass[keep])
    left_out, ids = float(mass[~keep].sum()), np.flatnonzero(keep)
    return Imported(prior, True, concentration, np.zeros(d), np.ones(d), stats, left_out, ids, len(mass))
