"""The automatic prior of a stream: how it is chosen from the first rows."""

from shoal.sequential.prior.choose import AutoPrior, choose_prior

__all__ = ["AutoPrior", "choose_prior"]
