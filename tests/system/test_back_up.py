"""Back-up and restore as docs/backup.md describes them, with a real service and the real commands."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.preforked import forked_command
from harness.running_service import RunningService
from harness.web import WEB
from shoal_service.store import inspect_store

pytestmark = pytest.mark.system


def send(service: RunningService, n: int) -> int:
    """Send a batch under its key, and return the end of the log."""
    x = np.random.default_rng(n).normal(size=(400, 2))
    headers = {"Idempotency-Key": f"batch-{n}"}
    reply = WEB.post(f"{service.url}/ingest", json={"points": x.tolist()}, headers=headers)
    assert reply.status_code == 202, reply.text
    return int(reply.json()["log_offset"])


def view(service: RunningService, offset: int, stream: str = "default") -> dict[str, Any]:
    params = {"min_offset": offset, "limit": 1000, "timeout": 60}
    reply = WEB.get(f"{service.url}/streams/{stream}/components", params=params)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def shoal(*arguments: object) -> str:
    command = [str(forked_command()), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=570, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_copy_of_the_folder_brings_everything_back(
    start_service: Callable[..., RunningService], tmp_path: Path
) -> None:
    service = start_service("data")
    for n in range(4):
        send(service, n)
    kept = view(service, 1600)
    assert service.terminate(60) == 0
    shutil.copytree(service.data, tmp_path / "copy")
    assert inspect_store(tmp_path / "copy").findings == []
    service.start()
    for n in range(4, 6):
        send(service, n)
    view(service, 2400)
    service.kill()
    shutil.rmtree(service.data)
    shutil.copytree(tmp_path / "copy", service.data)
    service.start()
    assert view(service, 1600) == kept
    assert send(service, 3) == 1600, "a batch of before the copy is known"
    assert send(service, 4) == 2000, "one of after it is accepted again"
    assert view(service, 2000)["points_seen"] == 2000


def test_an_older_database_alone_is_noticed(start_service: Callable[..., RunningService], tmp_path: Path) -> None:
    service = start_service("data")
    send(service, 0)
    assert service.terminate(60) == 0
    shutil.copy(service.data / "shoal.sqlite3", tmp_path / "older")
    service.start()
    send(service, 1)
    assert service.terminate(60) == 0
    shutil.copy(tmp_path / "older", service.data / "shoal.sqlite3")
    assert [str(finding.part) for finding in inspect_store(service.data).findings] == ["high-water mark"]
    service.start()
    reply = WEB.post(f"{service.url}/ingest", json={"points": [[1.0, 2.0]]})
    assert reply.status_code == 500
    assert "entry 2 was acknowledged" in service.tail()
    assert service.terminate(60) == 0
    (service.data / "shoal.high-water").unlink()
    service.start()
    assert send(service, 1) == 800


def test_a_snapshot_file_brings_a_stream_to_another_service(
    start_service: Callable[..., RunningService], tmp_path: Path
) -> None:
    first, second = start_service("first"), start_service("second")
    for n in range(4):
        send(first, n)
    kept = view(first, 1600)
    shoal("snapshot", "save", tmp_path / "s.shoal", "--min-offset", 1600, "--url", first.url)
    shoal("snapshot", "restore", tmp_path / "s.shoal", "--url", second.url, "--stream", "moved")
    moved = view(second, 0, "moved")
    assert moved["components"] == kept["components"]
    assert (moved["points_seen"], moved["log_offset"]) == (1600, 0)
    assert "adopted" in shoal("refine", "--url", second.url, "--stream", "moved")
