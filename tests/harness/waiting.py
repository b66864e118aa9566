"""Waiting for what comes in its own time: a condition with a generous limit, never a length of time.

A limit says that something is broken. It is far longer than any machine takes, however busy it is.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

LONGEST_WAIT_S = 120.0


def eventually(look: Callable[[], T], what: Any = None, *, limit_s: float = LONGEST_WAIT_S, pause_s: float = 0.02) -> T:
    """The first result of `look` that is true. `what` says what did not come; it may be a function."""
    until = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < until, _text(what)
        time.sleep(pause_s)
    return found


async def eventually_async(
    look: Callable[[], T], what: Any = None, *, limit_s: float = LONGEST_WAIT_S, pause_s: float = 0.01
) -> T:
    """The same in an event loop."""
    until = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < until, _text(what)
        await asyncio.sleep(pause_s)
    return found


def _text(what: Any) -> str:
    return f"it never came: {what() if callable(what) else what}"
