"""Messages of Ray, and words for an end that Ray gives to the process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

_DONE = b"done"
_WORDS = (
    "this process ended in the middle of its work on Ray. If nobody ended it, Ray did, because its own process on this "
    "machine (the raylet) was lost. Files of labels are complete or absent. Run the command again."
)
_WITNESS = f"import sys\nif sys.stdin.buffer.read() != {_DONE!r}: sys.stderr.write({_WORDS!r} + chr(10))"


@contextmanager
def beside_ray() -> Iterator[None]:
    """Send what Ray prints to stderr, and explain there an end of this process within the context.

    Ray prints to stdout, among the results. Where it loses the raylet, it ends the process at once, with status 1,
    mostly without a word, and without an exception. So another process waits for the end, and explains it.
    """
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WITNESS], stdin=subprocess.PIPE, start_new_session=True
    ) as witness:
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            witness.communicate(_DONE)
