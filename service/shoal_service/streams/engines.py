"""The library's engines, loaded once, by one thread.

They bring Numba along, whose modules import one another in circles: two threads that begin at two places of a circle
can each find a module half made. So a process comes through here before it starts a thread that uses them (`House`),
and so does whoever uses them before that.
"""

import threading

_loading = threading.Lock()
_loaded = threading.Event()


def load_engines() -> None:
    """Return once they are loaded: a second or two the first time, nothing after."""
    if _loaded.is_set():
        return
    with _loading:
        import shoal.refinement
        import shoal.sequential  # noqa: F401

        _loaded.set()
