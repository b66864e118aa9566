"""Structured logs, one line per event, without payloads: JSON for programs, aligned text for a terminal.

There is no global logger: one is made and passed on.
"""

import contextlib
import logging
import sys
from collections.abc import Callable
from typing import Any, TextIO, cast

import msgspec
import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def make_log(level: str = "info", form: str = "json", stream: TextIO | None = None) -> Any:
    """Make a structlog logger that writes events of at least `level` to `stream` (standard error by default).

    `form`: `json`, `console`, or `auto`, which is `console` for a terminal and `json` otherwise.
    """
    target = stream or sys.stderr
    for_people = form == "console" or (form == "auto" and target.isatty())
    # The default of structlog shows the values of local variables in tracebacks, which may be keys and points.
    console = structlog.dev.ConsoleRenderer(timestamp_key="time", exception_formatter=structlog.dev.plain_traceback)
    last: list[Any] = [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(serializer=_serialise),
    ]
    return structlog.wrap_logger(
        structlog.WriteLogger(cast(TextIO, _LossyStream(target))),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.MaybeTimeStamper(fmt="iso", utc=True, key="time"),
            *([console] if for_people else last),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        cache_logger_on_first_use=True,
    ).bind()


class _LossyStream:
    """Stream that loses what cannot be written. A full disk under the log must not stop the work that it reports."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write, or lose the text."""
        with contextlib.suppress(OSError, ValueError):  # ValueError: the stream is closed
            self._stream.write(text)

    def flush(self) -> None:
        """Flush, or lose what waits."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


class Bridge(logging.Handler):
    """Handler that passes records of the standard library's loggers to the structured log."""

    def __init__(self, log: Any) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record as one line."""
        say: Callable[..., None] = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        say("server", logger=record.name, message=record.getMessage(), exc_info=record.exc_info)


def bridge(name: str, log: Any) -> None:
    """Send warnings and errors of the standard library's logger `name` to `log`, and nowhere else."""
    logger = logging.getLogger(name)
    logger.handlers = [Bridge(log)]
    logger.setLevel(logging.WARNING)
    logger.propagate = False


def _serialise(event: dict[str, Any], **_: Any) -> str:
    first = {key: event.pop(key) for key in ("time", "level", "event") if key in event}
    return msgspec.json.encode({**first, **event}, enc_hook=str).decode()
