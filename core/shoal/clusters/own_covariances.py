"""What each cut of a tree costs if every cluster is normal with a covariance of its own.

Clusters of common variances (`hierarchy.misfit_of`) differ by their means alone. They cannot tell a narrow group within
a wide one, nor groups that overlap but lie in different directions.
"""

import numpy as np

from shoal.mixture import MixtureSnapshot
from shoal.points.arrays import Array

MOST_ELEMENTS = 1 << 18
"""Of the covariances. Beyond, their determinants cost more than the tree."""


def misfit_of_own_covariances(snapshot: MixtureSnapshot, linkage: Array) -> tuple[Array, float]:
    """The misfit (K,) of the cuts of a tree into 1 to K clusters, and the cost of a further one by the Bayesian
    information criterion, in nats.

    The misfit is minus the log likelihood of rows and clusters: sum_c w_c (log det S_c / 2 - log(w_c / N)), w_c being
    masses, N their sum and S_c the covariance of all points of a cluster. So clusters that overlap pay for rows that
    may belong to either (integrated completed likelihood; Biernacki, Celeux and Govaert 2000). A feature's unit adds a
    constant. Empty and 0 for other points than real vectors, above `MOST_ELEMENTS`, and where a covariance is singular
    or infinite.
    """
    k, d = snapshot.n_components, snapshot.location.size
    none = np.zeros(0), 0.0
    if snapshot.prior is None or not snapshot.prior.domain.located or k * d * d > MOST_ELEMENTS:
        return none
    total = float(snapshot.masses.sum())
    if not total > 1.0:
        return none
    covariances = snapshot.covariances()
    unit = np.sqrt(np.einsum("kdd->d", covariances) / k)
    if not (np.isfinite(unit).all() and unit.all() and np.isfinite(snapshot.means).all()):
        return none
    mass = np.append(snapshot.masses, np.zeros(k - 1))
    mean = np.concatenate([(snapshot.means - snapshot.means.mean(axis=0)) / unit, np.zeros((k - 1, d))])
    covariance = np.concatenate([covariances / unit[:, None] / unit, np.zeros((k - 1, d, d))])
    sides = linkage[:, :2].astype(np.int64)
    for node, (a, b) in enumerate(sides.tolist(), start=k):
        mass[node] = mass[a] + mass[b]
        share = mass[b] / max(mass[node], np.finfo(np.float64).tiny)
        apart = mean[b] - mean[a]
        mean[node] = mean[a] + share * apart
        between = (1.0 - share) * share * apart[:, None] * apart
        covariance[node] = (1.0 - share) * covariance[a] + share * covariance[b] + between
    sign, log_det = np.linalg.slogdet(covariance)
    if not (sign > 0.0).all():
        return none
    log_share = np.log(np.maximum(mass, np.finfo(np.float64).tiny) / total)
    node_misfit = mass * (0.5 * log_det - log_share)
    added = node_misfit[k:] - node_misfit[sides[:, 0]] - node_misfit[sides[:, 1]]
    misfit = np.cumsum(np.append(node_misfit[:k].sum(), added))
    return np.ascontiguousarray(misfit[::-1]), 0.5 * (d * (d + 3) / 2 + 1) * float(np.log(total))
