"""Folders among temporary files: whose they are, and what a killed process leaves there."""

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_service.server import ChildServer
from shoal_service.streams.refinement.process import WorkDir
from shoal_service.temporary_folder import LOCK_FILE, TemporaryFolder, remove_abandoned

pytestmark = pytest.mark.anyio

KILLED = """
import asyncio, os
from shoal_service.server import ChildServer
from shoal_service.streams.refinement.process import WorkDir

async def main():
    await ChildServer(None).start(None)
    with WorkDir(None).folder() as folder:
        (folder / "window").write_text("rows")
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="tests-") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield Path(made)


def kept(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


async def test_what_a_killed_process_has_left_is_removed_by_the_next_one(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED], env=os.environ | {"TMPDIR": str(place)}, capture_output=True, text=True
    )
    assert done.returncode == -9, done.stderr
    left = [set(kept(place / name)) - {LOCK_FILE} for name in kept(place)]
    assert {"children.sock"} in left, "the sockets of a process that is killed stay"
    assert len(left) == 2
    server, work = ChildServer(None), WorkDir(None)
    await server.start(None)  # type: ignore[arg-type]  # nothing is asked of it
    assert kept(place) == [Path(server.address).parent.name]
    with work.folder() as folder:
        assert len(kept(place)) == 2
        assert folder.parent.parent == place
    remove_abandoned(place)
    assert Path(server.address).is_socket()
    assert len(kept(place)) == 2, "both are in use"
    await server.close()
    work.close()
    work.close()
    assert kept(place) == []


def test_only_folders_are_removed_that_are_of_this_kind_and_of_this_user(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = TemporaryFolder("running")
    for name in ("other-name", "shoal-open", "shoal-gone", "shoal-no-lock", "shoal-linked-lock"):
        (place / name).mkdir()
        (place / name / "data").write_text("rows")
        (place / name).chmod(0o755 if name == "shoal-open" else 0o700)
        if name == "shoal-linked-lock":
            (place / name / LOCK_FILE).symlink_to(place / name / "data")
        elif name != "shoal-no-lock":
            (place / name / LOCK_FILE).touch()
    (place / "shoal-file").touch()
    (place / "shoal-link").symlink_to(place / "other-name")
    everything = kept(place)
    me = os.geteuid()
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: me + 1)
        remove_abandoned(place)
    assert kept(place) == everything
    remove_abandoned(place)
    assert kept(place) == sorted(set(everything) - {"shoal-gone"})
    assert kept(place / "other-name") == ["data", LOCK_FILE]
    running.remove()
    running.remove()
    assert kept(place) == sorted(set(everything) - {"shoal-gone", running.path.name})


def test_a_folder_is_locked_before_another_process_may_look(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def interrupted(*arguments: int) -> None:
        with monkeypatch.context() as plain:
            plain.setattr(fcntl, "flock", flock)
            remove_abandoned(place)
        flock(*arguments)

    monkeypatch.setattr(fcntl, "flock", interrupted)
    made = TemporaryFolder("new")
    assert kept(place) == [made.path.name]
    made.remove()


def test_folders_in_a_place_that_hands_down_its_group_are_removed_too(place: Path) -> None:
    place.chmod(0o2700)
    killed = TemporaryFolder("killed")
    assert killed.path.stat().st_mode & stat.S_ISGID
    os.close(killed._lock)
    running = TemporaryFolder("running")
    assert kept(place) == [running.path.name]
    running.remove()
