"""Commands of shoal as processes of their own, that can be killed at any moment."""

import os
import subprocess
import sys
from pathlib import Path

from harness.preforked import Preforked, can_fork_for


def started(arguments: list[str], log: Path) -> Preforked | subprocess.Popen[bytes]:
    """A command of shoal, whose output is added to a file."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if can_fork_for(environment):
        return Preforked(arguments, environment, log)
    shoal = Path(sys.executable).with_name("shoal")
    with log.open("ab") as out:
        return subprocess.Popen([str(shoal), *arguments], env=environment, stdout=out, stderr=out)
