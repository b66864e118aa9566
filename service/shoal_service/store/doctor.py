"""Inspection of a store by its place: a data folder, or an address of Redis."""

from pathlib import Path

from shoal_service.store.inspection import Inspection
from shoal_service.store.sqlite import inspect_folder


def inspect_store(place: Path | str, *, prefix: str = "shoal", timeout_s: float = 10.0) -> Inspection:
    """Inspect a store, which may be in use. Nothing is changed.

    A path is a data folder. Text is the address of a Redis server, whose keys begin with `prefix`. Raises StoreError
    for a store that cannot be inspected, SettingError for a wrong address.
    """
    if isinstance(place, Path):
        return inspect_folder(place)
    from shoal_service.store.redis import inspect_server  # here, since it brings the Redis client along

    return inspect_server(place, prefix, timeout_s)
