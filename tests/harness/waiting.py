"""Waiting for what comes in its own time: a condition with a generous limit, never a length of time.

A limit says that something is broken. It is far longer than any machine takes, however busy it is.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

LONGEST_WAIT_S = 120.0


def eventually(
    look: Callable[[], T], what: Any = None, *, limit_s: float = LONGEST_WAIT_S, pause_s: float | None = None
) -> T:
    """The first result of `look` that is true. `what` says what did not come; it may be a function.

    Pauses between looks grow with the time waited, unless they are given: a question to a server costs it as much as
    some of its work.
    """
    began = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - began
        assert waited < limit_s, _text(what)
        time.sleep(_pause(waited) if pause_s is None else pause_s)
    return found


async def eventually_async(
    look: Callable[[], T], what: Any = None, *, limit_s: float = LONGEST_WAIT_S, pause_s: float | None = None
) -> T:
    """The same in an event loop."""
    began = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - began
        assert waited < limit_s, _text(what)
        await asyncio.sleep(_pause(waited) if pause_s is None else pause_s)
    return found


def _pause(waited_s: float) -> float:
    return min(0.01 + 0.05 * waited_s, 0.2)


def _text(what: Any) -> str:
    return f"it never came: {what() if callable(what) else what}"
