"""The automatic prior of a stream: how it is chosen from the first rows."""

from shoal.sequential.prior.choose import FEWEST_ROWS, MEANS_OF_ONE, AutoPrior, choose_prior, located_prior

__all__ = ["FEWEST_ROWS", "MEANS_OF_ONE", "AutoPrior", "choose_prior", "located_prior"]
