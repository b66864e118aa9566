"""The tutorial's ten commands, as the page has them and in its order, in one shell, against a real server."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from harness.ports import free_port
from harness.waiting import LONGEST_WAIT_S, eventually
from harness.web import WEB

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
DONE = "-- done with status"


class Shell:
    """One shell, to which commands are given as a person types them."""

    def __init__(self, folder: Path, port: int) -> None:
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SHOAL_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        for name in ("SHOAL_URL", "SHOAL_API_KEY", "SHOAL_STREAM"):
            environment.pop(name, None)
        self.errors = folder / "errors"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                ["bash"], cwd=folder, env=environment, text=True, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    def run(self, command: str) -> str:
        """What a command prints. It must succeed; one in the background may go on."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\necho '{DONE}' $?\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in self.process.stdout:
            if line.startswith(DONE):
                assert line.split()[-1] == "0", f"$ {command}\n{''.join(lines)}"
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"the shell ended at\n$ {command}")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[tuple[Shell, int]]:
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    port = free_port()
    found = Shell(tmp_path, port)
    try:
        yield found, port
    finally:
        os.killpg(found.process.pid, signal.SIGTERM)
        with found.process:
            found.process.wait(LONGEST_WAIT_S)


def is_ready(port: int) -> bool:
    try:
        return WEB.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.skipif(
    shutil.which("awk") is None, reason="the tutorial uses awk; on Debian, as root: apt-get install gawk"
)
def test_ten_commands_lead_from_a_log_to_named_clusters_and_an_alert(shell: tuple[Shell, int], tmp_path: Path) -> None:
    (typed, port), shown = shell, []
    assert len(COMMANDS) == 10
    for number, command in enumerate(COMMANDS, 1):
        shown.append(typed.run(command))
        if number == 1:  # the page says to wait for these two
            eventually(lambda: is_ready(port), pause_s=0.1)
        if number == 9:
            eventually(lambda: "following stream web" in typed.errors.read_text(), typed.errors.read_text)
    _, _, _, ingested, components, typical, label, clusters, _, more = shown
    assert ingested.startswith("3,000 points sent to stream web, log offset 3,000")
    assert more.startswith("300 points sent to stream web, log offset 3,300")
    header, *rows = [line.split("\t") for line in components.splitlines()]
    assert header[-1] == "mean[log_ms,log_bytes]"
    assert len(rows) == 4, "the four kinds of requests"
    paths = [json.loads(line.split("\t")[-1])["path"] for line in typical.splitlines()[1:]]
    assert len(paths) == 5
    assert all(path.startswith("/static/") for path in paths)
    assert label == "component 1: static files (scripts, cached by browsers)\n"
    assert [line.split("\t")[-1] for line in clusters.splitlines()[1:]].count("static files") == 1
    alerts = tmp_path / "alerts.ndjson"
    eventually(lambda: alerts.exists() and alerts.read_text().endswith("\n"), typed.errors.read_text)
    born = json.loads(alerts.read_text().splitlines()[0])
    assert (born["stream"], born["kind"]) == ("web", "born")
    (new,) = born["children"]
    slow = typed.run(f"shoal records list {new} --stream web --limit 0")
    found = [json.loads(line.split("\t")[-1])["path"] for line in slow.splitlines()[1:]]
    assert found, "the component of the alert lives"
    assert sum(path.startswith("/search") for path in found) > 0.9 * len(found)
