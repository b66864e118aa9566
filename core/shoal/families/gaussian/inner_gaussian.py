"""The exponential family of a prior that contains a normal-inverse-Wishart: its parameters are those of a Gaussian."""

from shoal.families.gaussian.prior import NormalInverseWishart
from shoal.families.gaussian.types import GaussianParams
from shoal.points.arrays import Array


class WithInnerGaussian:
    """Base of families whose components have `GaussianParams`. Each method is that of `inner`."""

    @property
    def inner(self) -> NormalInverseWishart:
        """The prior of the components' means and covariances."""
        raise NotImplementedError

    def natural(self, params: GaussianParams) -> Array:
        """(K, P) as `NormalInverseWishart.natural`."""
        return self.inner.natural(params)

    def from_natural(self, natural: Array) -> GaussianParams:
        """Inverse of `natural`."""
        return self.inner.from_natural(natural)

    def log_partition(self, params: GaussianParams) -> Array:
        """A (K,), as `NormalInverseWishart.log_partition`."""
        return self.inner.log_partition(params)

    def mean_params(self, params: GaussianParams) -> Array:
        """(K, P) as `NormalInverseWishart.mean_params`."""
        return self.inner.mean_params(params)

    def log_partition_with_gradient(self, params: GaussianParams) -> tuple[Array, Array]:
        """`log_partition` (K,) and `mean_params` (K, P), from one factor of each scale matrix."""
        return self.inner.log_partition_with_gradient(params)
