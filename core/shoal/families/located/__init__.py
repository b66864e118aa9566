"""Code that the Gaussian families share."""

from shoal.families.located.family import LocatedFamily

__all__ = ["LocatedFamily"]
