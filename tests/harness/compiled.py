"""Functions of kernels, called from Python."""

from collections.abc import Callable
from typing import Any

import numba


def from_python(function: Any) -> Callable[..., Any]:
    """The compiled function as one that Python can call: it has no entry for Python of its own."""

    @numba.njit(error_model="numpy")
    def call(*args: Any) -> Any:
        return function(*args)

    called: Callable[..., Any] = call
    return called
