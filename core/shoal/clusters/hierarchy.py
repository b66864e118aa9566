"""The tree of a mixture's components, and what each number of clusters costs."""

from typing import NamedTuple

import numpy as np

from shoal.clusters.connected import Connected, connected_groups
from shoal.clusters.own_covariances import misfit_of_own_covariances
from shoal.clusters.ward import linkage_of, weighted_ward
from shoal.families.capabilities import core_variance
from shoal.mixture import MixtureSnapshot
from shoal.points.arrays import Array, BoolArray, IntArray, read_only

_LEAST_SHARE = 1e-9
"""Least variance within clusters, as a share of the whole, so that copies of one row have a finite cost."""

_FAR_RATIO = 20.0
_FAR_SHARE = 0.1
"""Components are far if their points are so many times as far out as those of the median component, and are at most
this share of all. Their spread would hide all other clusters: a twentieth of the points at a hundred deviations did."""

_SUSPECT_RATIO = 6.0
"""For a first look that is cheap, at distances from the mean. Let the median component be at distance 1 from the middle
and the farthest at 20. With a tenth of the mass there, the mean is up to 2 off the middle. Seen from the mean, the
farthest then is at least (20 - 2) / (1 + 2) times as far as the median one."""


class Hierarchy(NamedTuple):
    """A tree over the K live components of a mixture. All arrays are read-only."""

    linkage: Array
    """(K - 1, 4) as SciPy has it: two nodes, the height of their join, the number of components below. Nodes below K
    are components by ascending id, and node K + r is the join of row r. Heights never fall. Joins of connected
    components have height 0."""
    ids: IntArray
    """(K,) of the components, ascending."""
    masses: Array
    """(K,) number of points of each component."""
    born_at: IntArray
    """(K,) points seen at the birth of each component."""
    misfit: Array
    """(K,) of 1 to K clusters: minus the log likelihood, in nats, of clusters with common variances (`misfit_of`).
    Empty for families of other points than real vectors."""
    cost: float
    """What the Bayesian information criterion asks for a further cluster: (D + 1) / 2 log N nats."""
    n_connected: int
    """Number of groups of connected components; 0 where the components do not fall into such groups."""
    fewest: int = 1
    """Fewest clusters, unless a number is asked for: with fewer, a component that is far out has ordinary ones in its
    cluster."""
    own_misfit: Array = read_only(np.zeros(0))
    """(K,) as `misfit`, of clusters that each have a covariance of their own (`misfit_of_own_covariances`). Empty
    unless clusters of common variances are one by the criterion."""
    own_cost: float = 0.0
    """As `cost`, of clusters with covariances of their own: (D (D + 3) / 2 + 1) / 2 log N nats."""


def hierarchy_of(snapshot: MixtureSnapshot) -> Hierarchy:
    """The tree of a snapshot's components.

    If they fall into connected groups (`connected_groups`), these are joined first. What is left is joined by Ward's
    tree over `places`, weighted by mass. The tree is a function of the snapshot alone. Cost about K^2 (D + 10)
    operations, memory 8 K^2 bytes.
    """
    where, far = places(snapshot), far_components(snapshot)
    connected = connected_groups(snapshot, where, far)
    if connected is not None:
        linkage, fewest = _above(connected, where, snapshot.masses), 1
    else:
        linkage = weighted_ward(where, snapshot.masses, where[~far].mean(axis=0) if far.any() else None)
        fewest = _fewest(linkage, far)
    misfit, cost = misfit_of(snapshot, linkage, far)
    n_connected = 0 if connected is None else int(connected.group.max()) + 1
    own, own_cost = np.zeros(0), 0.0
    if connected is None and not far.any() and _one_cluster(misfit, cost):
        own, own_cost = misfit_of_own_covariances(snapshot, linkage)
    return Hierarchy(
        read_only(linkage), snapshot.ids, snapshot.masses, snapshot.born_at, read_only(misfit), cost, n_connected,
        fewest, read_only(own), own_cost,
    )  # fmt: skip


def _one_cluster(misfit: Array, cost: float) -> bool:
    """Whether two components or more are one cluster by misfit (K,) and the criterion's cost of a cluster."""
    return len(misfit) > 1 and int(np.argmin(misfit + cost * np.arange(len(misfit)))) == 0


def far_components(snapshot: MixtureSnapshot) -> BoolArray:
    """True (K,) for components whose points are absurdly far out, by their root mean square distance from the middle.

    The middle is the median of the means, in standardised units. Only components of real vectors can be far.
    """
    k, mass = snapshot.n_components, snapshot.masses
    none = np.zeros(k, dtype=np.bool_)
    if snapshot.prior is None or k < 3 or not snapshot.prior.domain.located or not mass.sum() > 0.0:
        return none
    means, variances = _known(snapshot.means) / snapshot.scale, _variances(snapshot) / snapshot.scale**2
    spread = np.where(np.isfinite(variances), variances, 0.0).sum(axis=1)
    about_mean = _distance(means, mass @ means / mass.sum(), spread)
    if about_mean.max() <= _SUSPECT_RATIO * _median(about_mean, mass):
        return none  # nearly always
    distance = _distance(means, np.array([_median(column, mass) for column in means.T]), spread)
    far: BoolArray = distance > _FAR_RATIO * _median(distance, mass)
    return far if mass[far].sum() <= _FAR_SHARE * mass.sum() else none


def _distance(means: Array, middle: Array, spread: Array) -> Array:
    """Root mean square distance (K,) from the middle (D,) of points with means (K, D) and summed variances (K,)."""
    with np.errstate(over="ignore"):
        return np.asarray(np.sqrt(((means - middle) ** 2).sum(axis=1) + spread))


def _median(values: Array, mass: Array) -> float:
    """The value (N,) below which lies half of the mass (N,)."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(mass[order])
    return float(values[order[np.searchsorted(below, 0.5 * below[-1])]])


def _fewest(linkage: Array, far: BoolArray) -> int:
    """The number of clusters before the first join of a tree that puts far components and others together."""
    if not far.any():
        return 1
    k = len(far)
    holds_far, holds_near = np.append(far, np.zeros(k - 1, dtype=np.bool_)), np.append(~far, np.zeros(k - 1, np.bool_))
    for row, sides in enumerate(linkage[:, :2].astype(np.int64)):
        holds_far[k + row], holds_near[k + row] = holds_far[sides].any(), holds_near[sides].any()
        if holds_far[k + row] and holds_near[k + row]:
            return k - row
    return 1


def places(snapshot: MixtureSnapshot) -> Array:
    """(K, E): where components lie, in units in which distances of different features can be compared.

    Means in the standardised units that `prior="auto"` chose. Where nothing was standardised, the family's own
    `positions`: means in units of the deviation within components, or square roots of frequencies and the like.
    """
    if snapshot.prior is None or snapshot.n_components == 0:
        return np.zeros((0, 1))
    if not snapshot.prior.domain.located or not snapshot.settings.learns_prior:
        return snapshot.prior.positions(snapshot.stats)
    return (_known(snapshot.means) - snapshot.location) / snapshot.scale


def misfit_of(snapshot: MixtureSnapshot, linkage: Array, far: BoolArray) -> tuple[Array, float]:
    """The misfit (K,) of the cuts of a tree into 1 to K clusters, and the cost of a cluster, in nats; empty and 0 where
    normal clusters are no description, as for counts.

    Clusters are taken as normal with variances s_d of each feature in common: N / 2 sum_d log s_d - sum_c w_c log(w_c /
    N), w_c being their masses and N the sum. A feature's unit adds a constant. Heavy tails are left out of the
    variances. Components of infinite variance count with the mean of the others, and far ones (K,) do not count.
    """
    k = snapshot.n_components
    if snapshot.prior is None or k == 0 or not snapshot.prior.domain.located:
        return np.zeros(0), 0.0
    mass, means, variances = snapshot.masses, _known(snapshot.means), _variances(snapshot)
    if far.any():
        mass, means = np.where(far, 0.0, mass), np.where(far[:, None], means[~far].mean(axis=0), means)
        variances = np.where(far[:, None], np.inf, variances)
    total = max(float(mass.sum()), 2.0)
    scatter, entropy = _joins(linkage, mass, means - means.mean(axis=0), total)
    within = mass @ _known(variances)
    scatters = within + np.cumsum(np.vstack([np.zeros_like(within), scatter]), axis=0)
    entropies = np.cumsum(np.append(-_log_share(mass, total).sum(), entropy))
    whole = scatters[-1]
    told = whole > 0.0
    variance = np.maximum(scatters[:, told], _LEAST_SHARE * whole[told]) / total
    misfit = 0.5 * total * np.log(variance).sum(axis=1) + entropies
    return np.ascontiguousarray(misfit[::-1]), 0.5 * (means.shape[1] + 1) * float(np.log(total))


def _joins(linkage: Array, mass: Array, means: Array, total: float) -> tuple[Array, Array]:
    """What each join of a tree adds to the scatter (K - 1, D) within clusters, and to the entropy (K - 1,).

    In the order of the leaves the components of a node are neighbours, so that their sums are differences of two
    cumulative sums.
    """
    k = len(mass)
    sides = linkage[:, :2].astype(np.int64)
    size = np.append(np.ones(k), linkage[:, 3]).astype(np.int64)
    start = np.zeros(2 * k - 1, dtype=np.int64)
    for row in range(k - 2, -1, -1):
        a, b = sides[row].tolist()
        start[a] = start[k + row]
        start[b] = start[a] + size[a]
    order = np.empty(k, dtype=np.int64)
    order[start[:k]] = np.arange(k)
    masses = np.append(0.0, np.cumsum(mass[order]))
    sums = np.vstack([np.zeros(means.shape[1]), np.cumsum(mass[order, None] * means[order], axis=0)])
    node_mass = np.maximum(masses[start + size] - masses[start], 0.0)
    node_mass[:k] = mass
    divisor = np.maximum(node_mass, np.finfo(np.float64).tiny)
    node_mean = (sums[start + size] - sums[start]) / divisor[:, None]
    node_mean[:k] = means
    a, b = sides.T
    apart = node_mean[b] - node_mean[a]
    share = node_mass[a] * node_mass[b] / divisor[k:]
    log_share = _log_share(node_mass, total)
    return share[:, None] * apart * apart, log_share[a] + log_share[b] - log_share[k:]


def _above(connected: Connected, where: Array, mass: Array) -> Array:
    """The joins within connected groups, in order and at height 0, then Ward's tree over the groups."""
    n_groups = int(connected.group.max()) + 1
    one_hot = connected.group == np.arange(n_groups)[:, None]
    weight = np.maximum(mass, np.finfo(np.float64).tiny)
    masses = one_hot @ weight
    centres = (one_hot * weight) @ where / masses[:, None]
    upper = weighted_ward(centres, masses)
    first = one_hot.argmax(axis=1)
    member = np.concatenate([first, np.zeros(n_groups - 1, dtype=np.int64)])
    for row, node in enumerate(upper[:, 0].astype(np.int64)):
        member[n_groups + row] = member[node]
    pairs = np.concatenate([connected.pairs, member[upper[:, :2].astype(np.int64)]])
    return linkage_of(pairs, np.concatenate([np.zeros(len(connected.pairs)), upper[:, 2]]))


def _variances(snapshot: MixtureSnapshot) -> Array:
    """Variances (K, D) of the components, without heavy tails where the family knows them."""
    core = core_variance(snapshot.prior, snapshot.stats) if snapshot.prior is not None else None
    return snapshot.variances if core is None else core * snapshot.scale**2


def _known(values: Array) -> Array:
    """Rows (K, D) that are finite, and in place of the others their mean."""
    finite: BoolArray = np.asarray(np.isfinite(values).all(axis=1))
    middle = values[finite].mean(axis=0) if finite.any() else np.zeros(values.shape[1])
    return np.where(finite[:, None], values, middle)


def _log_share(mass: Array, total: float) -> Array:
    """w log(w / N), 0 where w is 0."""
    return np.where(mass > 0.0, mass * np.log(np.maximum(mass, np.finfo(np.float64).tiny) / total), 0.0)
