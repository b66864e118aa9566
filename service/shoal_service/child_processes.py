"""Child processes of the service: plain interpreters that run one of its modules.

`multiprocessing` would import the main module of the parent into the child, with the command line and the web
framework. A plain interpreter with two pipes starts in a tenth of a second and loads only what its work needs.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

ONE_THREAD = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""Variables that numerical libraries read for their number of threads."""


def command_of(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Return the environment of a child: it finds the same packages, and uses one thread for linear algebra."""
    specs = [find_spec(name) for name in ("shoal", "shoal_service")]
    roots = dict.fromkeys(str(Path(str(spec.origin)).parents[1]) for spec in specs if spec is not None)
    path = os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), "PYTHONPATH": path}
