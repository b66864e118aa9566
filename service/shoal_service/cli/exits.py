"""What a command's exit status means, and how an error becomes one line on stderr.

Nothing heavy is imported here: `shoal --help` must be instant. The error trees are looked at only when there is one.
"""

import os
import sys
from enum import IntEnum
from typing import Any

import typer
from typer.core import TyperGroup


class ExitCode(IntEnum):
    """Documented in `shoal --help`."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    BUSY = 5
    NOT_STARTED = 6
    INTERRUPTED = 130
    PIPE_CLOSED = 141


EXIT_CODES_HELP = """\
[bold]Exit status[/bold]
  0  done
  1  unexpected: a fault of shoal's own, with a traceback
  2  the command, its settings or its input file is wrong
  3  no shoal server answers at that address
  4  the server refused, and would again (unknown stream, wrong number of features, ...)
  5  not now: the server was too busy, or the outcome is unknown; repeating can help
  6  the server could not start (port taken, data folder in use, ...)
  130 interrupted; 141 the reader of the output went away"""


class CommandError(Exception):
    """A refusal of the command line's own: one line for people, and the exit status."""

    def __init__(self, message: str, code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.code = code


class ReportingGroup(TyperGroup):
    """Runs a command; an error made on purpose becomes one line on stderr and its exit status."""

    def invoke(self, ctx: Any) -> Any:
        """Run it; flush inside, so that a reader who has gone away is noticed here and not at the interpreter's end."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _silence_stdout()
            raise typer.Exit(ExitCode.PIPE_CLOSED) from None
        except KeyboardInterrupt:
            report("interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except Exception as error:
            code = exit_code_of(error)
            if code is None:
                raise
            report(str(error))
            raise typer.Exit(code) from None
        return result


def report(message: str) -> None:
    """One line on stderr, in red where a person looks."""
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble(("error: ", "bold red"), message)
    Console(stderr=True, highlight=False).print(line, soft_wrap=True)


def exit_code_of(error: Exception) -> ExitCode | None:
    """The status for an error that was made on purpose; None for any other."""
    if isinstance(error, CommandError):
        return error.code
    if isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "format_message"):
        return None  # the framework's own ways out: it reports its usage errors itself
    from shoal.errors import ShoalError
    from shoal_service import errors as service
    from shoal_service.client import errors as client

    codes: dict[type[Exception], ExitCode] = {
        client.BadPointsError: ExitCode.USAGE,
        client.UnreachableError: ExitCode.UNREACHABLE,
        client.ProtocolError: ExitCode.UNREACHABLE,
        client.UnavailableError: ExitCode.BUSY,
        client.OutcomeUnknownError: ExitCode.BUSY,
        client.ShoalClientError: ExitCode.REFUSED,
        service.StoreError: ExitCode.NOT_STARTED,
        ShoalError: ExitCode.USAGE,
    }
    if isinstance(error, OSError) and error.filename is not None:  # a file of the user's
        return ExitCode.USAGE
    return next((code for kind, code in codes.items() if isinstance(error, kind)), None)


def _silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # not a real file: a test's capture
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  open until the end of the process, by intent
