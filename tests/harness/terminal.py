"""Commands of the documents, run in a terminal as a person sees them, and what they print compared with the page."""

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RATE = re.compile(r" \([\d,]+ points/s\)")
NUMBER = re.compile(r"-?\d+\.\d+")


def in_a_terminal(command: str, cwd: Path, environment: dict[str, str]) -> str:
    """What a person sees: standard output is a terminal of 90 columns; progress (standard error) is left out."""
    leader, follower = pty.openpty()
    size = {"COLUMNS": "90", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb"}
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=cwd, env=environment | size, stdout=follower, stderr=subprocess.PIPE
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(leader)
    assert process.stderr is not None
    with process.stderr:
        errors = process.stderr.read().decode()
    assert process.wait() == 0, f"$ {command}\n{errors}"
    lines = RATE.sub("", ANSI.sub("", shown.decode())).replace("\r\n", "\n").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines if line.strip())


def steps(block: str) -> list[tuple[str, str]]:
    """(command, what it is said to print) of a console block."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def same(shown: str, said: str) -> bool:
    """Equal, but for the identity of a run and the last digits of numbers on another kind of processor."""
    shown, said = UUID.sub("UUID", shown), UUID.sub("UUID", said)
    if NUMBER.sub("N", shown) != NUMBER.sub("N", said):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(said), strict=True)
    return all(float(a) == pytest.approx(float(b), rel=1e-3, abs=1e-6) for a, b in pairs)
