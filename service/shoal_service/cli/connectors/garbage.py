"""Collections of cyclic garbage in a process that reads a source. They are rare: batches are lists without cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

CONTAINERS = 200_000
"""New containers after which the garbage is collected. A batch of 4,000 entries of a Redis stream has 12,000."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect rarely, and never look again at what is there now.

    With Python's own threshold of 700 containers, two fifths of the processor time of a connector went there.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(CONTAINERS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
