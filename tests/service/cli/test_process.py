"""The command in a process of its own: exit codes, what goes to stdout and what to stderr, pipes, a quick start."""

import os
import pty
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from fake_shoal import Deliver, FakeShoal
from typer.testing import Result

from harness.short_form import longer
from harness.waiting import LONGEST_WAIT_S, eventually

Process = Callable[..., "subprocess.CompletedProcess[bytes]"]
Shoal = Callable[..., Result]
Parts = tuple[Callable[..., list[str]], Callable[[], dict[str, str]]]
Terminal = Callable[..., tuple[int, str, str]]
HEAVY = ("numpy", "numba", "scipy", "sklearn", "fastapi", "pydantic_settings", "uvicorn", "httpx", "msgspec")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(1).normal(size=(3000, 2)))
    return path


def test_results_go_to_stdout_and_nothing_else_when_piped(shoal_process: Process, url: str, file: Path) -> None:
    sent = shoal_process("ingest", file, "--url", url)
    assert (sent.returncode, sent.stderr) == (0, b"")
    assert sent.stdout == b"3,000 points sent to stream default, log offset 3,000\n"
    shown = shoal_process("components", "--url", url)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert len(shown.stdout.splitlines()) == 3


def test_errors_go_to_stderr_and_set_the_exit_code(shoal_process: Process, shoal: Shoal, file: Path) -> None:
    said = shoal_process("ingest", file, "--url", "http://127.0.0.1:9")
    assert (said.returncode, said.stdout) == (3, b"")
    assert b"error: cannot reach a shoal server" in said.stderr
    assert b"Traceback" not in said.stderr
    assert shoal("ingest", "/nowhere.csv").exit_code == 2


def test_stdin_is_read_from_a_pipe_as_it_comes(url: str, fake: FakeShoal, process_parts: Parts) -> None:
    command, environment = process_parts
    with subprocess.Popen(
        command("ingest", "-", "--url", url, "--batch-size", 1000), env=environment(), stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"1,2\n" * 2500)
        process.stdin.flush()
        eventually(lambda: "default" in fake.streams and len(fake.streams["default"].x) >= 1000)
        assert len(fake.streams["default"].x) >= 1000  # sent while the pipe is still open
        process.stdin.write(b"3,4\n")
    assert process.returncode == 0
    assert len(fake.streams["default"].x) == 2501


def test_slow_pipe_is_answered_line_by_line(url: str, fake: FakeShoal, process_parts: Parts) -> None:
    command, environment = process_parts
    with subprocess.Popen(
        command("ingest", "-", "--url", url, "--batch-size", 1), env=environment(), stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        for n in range(1, 4):
            process.stdin.write(b"1,2\n")
            process.stdin.flush()
            eventually(lambda n=n: "default" in fake.streams and len(fake.streams["default"].x) == n)


def test_reader_of_the_output_that_goes_away_is_no_error(
    url: str, file: Path, process_parts: Parts, shoal: Shoal
) -> None:
    command, environment = process_parts
    httpx.put(f"{url}/streams/default", json={"n_features": 2})
    assert shoal("ingest", file, "--url", url).exit_code == 0
    with subprocess.Popen(
        command("predict", file, "--url", url), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"component")
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 141
    assert said == b""


def accept_interrupts() -> None:
    """Undo what a shell sets for a test run in the background: its children ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_output_that_is_full_or_closed_is_no_bug(process_parts: Parts) -> None:
    command, environment = process_parts
    with Path("/dev/full").open("wb") as full:
        said = subprocess.run(command("version"), stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=120)
    assert (said.returncode, said.stderr) == (2, b"error: cannot write the output: No space left on device\n")
    closed = ["sh", "-c", '"$@" <&- >&-', "sh", *command("sources", "set", "a", "-")]
    said = subprocess.run(closed, stderr=subprocess.PIPE, env=environment(), timeout=120)
    assert said.returncode == 2
    assert said.stderr.startswith(b"error: - is not JSON")


def test_interrupt_says_what_is_stored_and_is_exit_130(url: str, fake: FakeShoal, process_parts: Parts) -> None:
    command, environment = process_parts
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command("ingest", "-", "--url", url),
        env=environment() | {"TERM": "xterm", "COLUMNS": "200"},
        stdin=subprocess.PIPE,
        stderr=theirs,
        preexec_fn=accept_interrupts,
    ) as process:
        os.close(theirs)
        assert process.stdin is not None
        process.stdin.write(b"1,2\n" * 2500)
        process.stdin.flush()
        drawn = b""
        while b"2,000 points" not in drawn:  # the bar counts what is acknowledged
            assert select.select([ours], [], [], LONGEST_WAIT_S)[0], drawn
            drawn += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        said = _until_the_end(ours)
    assert process.returncode == 130
    assert len(fake.streams["default"].x) == 2000
    assert b"2,000 points of stdin were stored" in said
    assert b"Traceback" not in said


def test_bar_is_drawn_where_stderr_is_a_terminal(url: str, file: Path, process_parts: Parts) -> None:
    command, environment = process_parts
    ours, theirs = pty.openpty()
    environment_ = environment() | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        command("ingest", file, "--url", url), env=environment_, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        drawn = _until_the_end(ours).decode()
        printed, _ = process.communicate(timeout=120)
    assert printed == b"3,000 points sent to stream default, log offset 3,000\n"
    assert "ingest" in drawn
    assert "3,000 points" in drawn


def _until_the_end(terminal: int) -> bytes:
    """All that is written to a terminal while it is open at the other end: a slow machine draws more than it holds."""
    seen = []
    try:
        while chunk := os.read(terminal, 65536):
            seen.append(chunk)
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(terminal)
    return b"".join(seen)


def test_batch_fit_shows_its_rounds_where_stderr_is_a_terminal(file: Path, shoal_in_terminal: Terminal) -> None:
    code, printed, drawn = shoal_in_terminal(
        "fit", file, "--method", "vdp", "--family", "diagonal", "--json", columns=120
    )
    assert code == 0
    assert printed.startswith('{"points": 3000, "method": "vdp"')
    assert "vdp" in drawn
    assert "round " in drawn
    assert " nats" in drawn


@pytest.mark.parametrize(
    "arguments",
    [longer(["--help"]), longer(["--version"]), ["ingest", "--help"], longer(["fit", "--help"]), ["version"]],
)
def test_help_and_version_load_nothing_heavy(arguments: list[str], process_parts: Parts) -> None:
    _, environment = process_parts
    program = (
        "import sys\nfrom shoal_service.cli import main\nsys.argv = ['shoal', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"loaded = sorted({set(HEAVY)!r} & set(sys.modules))\nprint(loaded, file=sys.stderr)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment(), capture_output=True, timeout=120
    )
    assert (said.returncode, said.stderr) == (0, b"[]\n")


def test_slow_server_does_not_hang_the_command(
    shoal_process: Process, serve_on_loopback: Callable[[Deliver], str]
) -> None:
    over = threading.Event()

    def asleep(request: httpx.Request) -> httpx.Response:
        over.wait(600)
        return httpx.Response(200)

    said = shoal_process("components", "--url", serve_on_loopback(asleep), "--deadline", 0.5)
    over.set()
    assert said.returncode == 3
    assert b"no answer in time" in said.stderr
