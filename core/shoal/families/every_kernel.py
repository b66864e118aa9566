"""Every family's overloads of the steps in `api_kernel`. A kernel that imports this finds them by the working form."""

# ruff: noqa: F401 - imported for what they register
from shoal.families import (
    bernoulli_kernel,
    bounds_kernel,
    diagonal_kernel,
    dirichlet_kernel,
    gaussian_kernel,
    known_covariance_kernel,
    multinomial_kernel,
    poisson_kernel,
    von_mises_fisher_kernel,
)
