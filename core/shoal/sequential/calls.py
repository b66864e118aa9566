"""Calls of kernels on next to nothing, which compile them or load them."""

from typing import Any, TypeAlias

Calls: TypeAlias = list[tuple[Any, tuple[Any, ...]]]
"""Kernels, and what to call them with: arguments of the types that streams call them with."""


def call_all(calls: Calls) -> None:
    """Compile them, or load them from the disk cache."""
    for kernel, arguments in calls:
        kernel(*arguments)
