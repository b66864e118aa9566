"""The command line: `shoal serve | ingest | components | predict | fit | snapshot save|restore | version`."""

from shoal_service.cli.root import app, main

__all__ = ["app", "main"]
