"""`shoal` that offers pieces whether that pays or not, and can be made to stop in the middle of one.

While the file `HOLD_PIECES` exists, a process that computes a piece for another writes its id to the file with `.pid`
appended, and goes on once the first one is gone.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from shoal_service.cli import main
from shoal_service.streams.shared import piece_helper, pieces

pieces.LEAST_WORK_S, pieces.LEAST_GAIN, pieces.PAUSE_S = -1.0, 0.0, 0.0
computed, hold = piece_helper.compute_piece, Path(os.environ["HOLD_PIECES"])


def stops(task: Any) -> bytes:
    """The result of a piece, once the process may go on."""
    if hold.exists():
        hold.with_suffix(".pid").write_text(str(os.getpid()))
    while hold.exists():
        time.sleep(0.01)
    return computed(task)


if __name__ == "__main__":
    piece_helper.compute_piece = stops
    sys.exit(main())
