"""Imports every family's overloads of the steps in `steps_kernel`. A kernel that imports this module finds them by the
type of the predictive cache."""

import shoal.families.bernoulli.kernel
import shoal.families.bounds_kernel
import shoal.families.categorical.kernel
import shoal.families.diagonal.kernel
import shoal.families.dirichlet.kernel
import shoal.families.dirichlet_gradient.kernel
import shoal.families.gaussian.kernel
import shoal.families.known_covariance.kernel
import shoal.families.located.release_kernel
import shoal.families.multinomial.kernel
import shoal.families.negative_binomial.kernel
import shoal.families.poisson.kernel
import shoal.families.product.kernel
import shoal.families.student.kernel
import shoal.families.subspace.kernel
import shoal.families.von_mises_fisher.kernel  # noqa: F401 - each imported for what it registers
