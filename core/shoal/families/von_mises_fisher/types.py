"""Named tuples of a von Mises-Fisher family: arrays with the component axis first. G concentrations are possible."""

from typing import NamedTuple

from shoal.points.arrays import Array


class VonMisesFisherStats(NamedTuple):
    """Sufficient statistics of K components."""

    mass: Array  # (K,) sum of responsibilities
    total: Array  # (K, D) responsibility-weighted sum of x


class VonMisesFisherParams(NamedTuple):
    """p(m, k) in proportion to C(k)^mass exp(k total'm) times the prior."""

    total: Array  # (K, D)
    mass: Array  # (K,)


class VonMisesFisherPredictive(NamedTuple):
    """log p(x) = log sum_g exp(log_front_g - log C(|k_g (total + x) + k0 m0|))."""

    total: Array  # (K, D)
    square: Array  # (K,) |total|^2
    along: Array  # (K,) m0'total
    log_front: Array  # (K, G) nats


class VonMisesFisherDraw(NamedTuple):
    """One likelihood parameter of each component."""

    direction: Array  # (K, D) unit vectors
    concentration: Array  # (K,)


class VonMisesFisherCache(NamedTuple):
    """Predictive cache: what kernels keep beside prior and statistics; as in `VonMisesFisherPredictive`."""

    square: Array  # (C,)
    along: Array  # (C,)
    peak: Array  # (C,) the concentration that suits the points best, as its number from 0
    log_front: Array  # (C, G)


class VonMisesFisherConstants(NamedTuple):
    """The prior, as kernels read it."""

    mean: Array  # (D,) m0
    strength: float  # k0
    log_front_of_mean: float  # log C(k0)
    concentration: Array  # (G,) k_g
    log_share: Array  # (G,) log w_g
    log_front: Array  # (G,) log C(k_g)
    order: float  # D / 2 - 1
    top: float  # the order from which Debye's expansion suits every argument
    flat: float  # -D / 2 log(2 pi)
