"""The embedded store: one SQLite file in a folder that one process owns."""

from shoal_service.store.sqlite.inspect import dead_letters_at_rest, inspect_folder
from shoal_service.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore", "dead_letters_at_rest", "inspect_folder"]
