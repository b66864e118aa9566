"""The most probable partition by search over prefixes of the points (Daume 2007)."""

from shoal.search.engine import fit_search

__all__ = ["fit_search"]
