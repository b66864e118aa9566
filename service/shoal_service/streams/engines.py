"""Import of the library's engines, once a process, by one thread.

The engines import Numba, whose modules import one another in circles. Two threads that start at two places of a circle
can each see an incomplete module. A process therefore calls `load_engines` before it starts threads that use them.
"""

import threading

_loading = threading.Lock()
_loaded = threading.Event()


def load_engines() -> None:
    """Import the engines. Takes a second or two the first time, and nothing afterwards."""
    if _loaded.is_set():
        return
    with _loading:
        import shoal.refinement
        import shoal.sequential  # noqa: F401

        _loaded.set()
