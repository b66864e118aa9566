"""Exit status of commands, and errors as one line on stderr.

Nothing heavy is imported here, because `shoal --help` must be fast. The error trees are loaded when there is an error.
"""

import errno
import os
import re
import sys
from enum import IntEnum
from typing import Any

import typer
from typer.core import TyperGroup


class ExitCode(IntEnum):
    """Exit status, as documented in `shoal --help`."""

    OK = 0
    UNEXPECTED = 1
    FOUND = 1  # shoal doctor
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
  1  bug in shoal, with a traceback; shoal doctor: something was found
  2  error in the command, its settings or its input file
  3  no shoal server answers at this address
  4  the server refused (unknown stream, wrong number of features, ...)
  5  the server is busy, or the result is unknown; try again
  6  the server could not start, or the store could not be opened
  130 interrupted; 141 the output was closed by its reader"""


class CommandError(Exception):
    """Error of the command line itself: one line for people, and the exit status."""

    def __init__(self, message: str, code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.code = code


class ReportingGroup(TyperGroup):
    """Group that runs a command, and reports an expected error as one line on stderr and an exit status.

    Its help and that of all commands below it show no type for flags.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of the group itself."""
        return _without_type_of_flags(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name, or None."""
        command = super().get_command(ctx, cmd_name)
        below = [] if command is None else [command]
        while below:
            one = below.pop()
            _without_type_of_flags(one.get_params(ctx))
            below += getattr(one, "commands", {}).values()
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run the command. stdout is flushed here, so that a closed pipe is noticed before the interpreter ends."""
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
            _name_the_value(error)
            _advise_on_choice(error)
            _advise_on_command(error)
            code = exit_code_of(error)
            if code is None:
                raise
            if isinstance(error, OSError) and error.errno in _FULL:
                _silence_stdout()
            report(_words_of(error))
            raise typer.Exit(code) from None
        return result


def _without_type_of_flags(parameters: list[Any]) -> list[Any]:
    """The same parameters. The help of a flag would otherwise show `<bool>`, as if it had a value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


def _name_the_value(error: Exception) -> None:
    """Write the value of an option into the framework's error about it, which says "Input" instead."""
    message = str(getattr(error, "message", ""))
    if message.startswith("Value error, "):
        error.message = message.removeprefix("Value error, ")  # type: ignore[attr-defined]
    elif message.startswith("Input should ") and (details := getattr(error.__cause__, "errors", None)):
        value = repr(details()[0]["input"])
        should = message.removeprefix("Input ").partition(", unable to parse")[0]
        error.message = f"{value if len(value) <= 60 else value[:57] + '...'} {should}"  # type: ignore[attr-defined]


_NO_CHOICE = re.compile(r"'(.*)' is not one of (.*)\.$")


def _advise_on_choice(error: Exception) -> None:
    """Add the nearest choice to the framework's error about the value of an option."""
    found = _NO_CHOICE.search(str(getattr(error, "message", "")))
    if found is not None:
        from shoal.errors import did_you_mean

        advice = did_you_mean(found[1], re.findall(r"'([^']*)'", found[2])).rstrip()
        error.message = f"{found.string} {advice[:1].upper()}{advice[1:]}".rstrip()  # type: ignore[attr-defined]


def _advise_on_command(error: Exception) -> None:
    """Add the commands that there are to the framework's error about one that there is not and that is near to none."""
    message = str(getattr(error, "message", ""))
    if message.startswith("No such command") and message.endswith("."):
        names = list(error.ctx.command.commands)  # type: ignore[attr-defined]
        error.message = f"{message} Choose {', '.join(names[:-1])} or {names[-1]}."  # type: ignore[attr-defined]


def report(message: str) -> None:
    """Print one line on stderr, in red in a terminal."""
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble(("error: ", "bold red"), message)
    Console(stderr=True, highlight=False).print(line, soft_wrap=True)


def _words_of(error: Exception) -> str:
    """The message for people. That of a file has no number of the operating system."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"cannot write the output: {error.strerror}"
    return str(error)


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def open_closed_streams() -> None:
    """Open stdin, stdout and stderr to nothing where the caller has closed them, as some schedulers do."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115  open until the process ends
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def exit_code_of(error: Exception) -> ExitCode | None:
    """Exit status for an expected error; None for another one."""
    if isinstance(error, CommandError):
        return error.code
    if isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "format_message"):
        return None  # the framework reports its usage errors itself
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
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _FULL):  # input or output
        return ExitCode.USAGE
    return next((code for kind, code in codes.items() if isinstance(error, kind)), None)


def _silence_stdout() -> None:
    """Redirect stdout to nothing, so that the last flush of the interpreter does not fail."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # not a real file, as in tests
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  open until the process ends
