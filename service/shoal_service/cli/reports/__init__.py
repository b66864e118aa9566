"""Reports: one HTML page about a fit, which asks nothing of the network."""

from shoal_service.cli.reports.facts import ClusterChoice, Facts, facts_of
from shoal_service.cli.reports.page import page_of, summary_of
from shoal_service.cli.reports.pictures import pictures_of

__all__ = ["ClusterChoice", "Facts", "facts_of", "page_of", "pictures_of", "summary_of"]
