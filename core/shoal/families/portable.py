"""Predictive distributions in a form that other programs can compute: a name and arrays.

`FORMULAS` defines each name. The definitions are the contract of the exported files; `docs/export.md` prints them.
"""

from typing import Any, NamedTuple, Protocol, cast

from shoal.families.base import AnyFamily
from shoal.points.arrays import Array

FORMULAS = {
    "multivariate_t": "log_constant - power * log(1 + |whitening (x - mean)|^2)",
    "multivariate_normal": "log_constant - |whitening (x - mean)|^2 / 2",
    "independent_t": "log_constant - power * sum_d log(1 + (inverse_width_d (x_d - mean_d))^2)",
    "independent_bernoulli": "log_zeros + sum_d log_odds_d x_d",
    "independent_negative_binomial": "log_zeros + sum_d [r(shape_d, x_d) - log_rate_d x_d]",
    "independent_beta_negative_binomial": "log_zeros + sum_d [r(b_d, x_d) + r(dispersion_d, x_d) - r(sum_d, x_d)]",
    "dirichlet_multinomial": "sum_d r(pseudo_counts_d, x_d) - r(strength, sum_d x_d)",
}
"""log p(x) of one component by the name of its distribution, in nats; r(a, n) = log[G(a + n) / (G(a) n!)]."""


class Portable(NamedTuple):
    """Predictive distributions of K components."""

    distribution: str
    """A key of `FORMULAS`."""
    arrays: dict[str, Array]
    """The values of the formula by name, component axis first."""


class HasPortablePredictive(Protocol):
    """A family whose predictive distribution other programs can compute."""

    def portable(self, predictive: Any) -> Portable:
        """The `Predictive` of K posteriors in portable form."""


def portable(family: AnyFamily, stats: Any) -> Portable | None:
    """Predictive distributions given statistics (K). None for a family that has no portable form."""
    if not hasattr(family, "portable"):
        return None
    return cast(HasPortablePredictive, family).portable(family.predictive(family.posterior(stats)))
