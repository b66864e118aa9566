"""Command line: one module per command, and the options and output that they share."""

from shoal_service.cli.root import app, main

__all__ = ["app", "main"]
