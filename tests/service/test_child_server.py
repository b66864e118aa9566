"""The Unix socket of the children: its folder among temporary files, and what a killed process leaves there."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_service.server import ChildServer, remove_leftovers

pytestmark = pytest.mark.anyio

KILLED = """
import asyncio, os
from shoal_service.server import ChildServer

async def main():
    server = ChildServer(None)
    await server.start(None)
    print(server.address, flush=True)
    os.kill(os.getpid(), 9)

with asyncio.Runner(loop_factory=LOOP) as runner:
    runner.run(main())
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="tests-") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield Path(made)


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def left(folder: Path, name: str, mode: int = 0o700) -> socket.socket:
    """What a process has made: a folder with a socket, which listens until it is closed."""
    made = folder / name
    made.mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(made / "children.sock"))
    listener.listen()
    made.chmod(mode)
    return listener


@pytest.mark.parametrize("loop", ["asyncio.new_event_loop", "__import__('uvloop').new_event_loop"])
async def test_what_a_killed_process_has_left_is_removed_by_the_next_one(folder: Path, loop: str) -> None:
    environment = os.environ | {"TMPDIR": str(folder)}
    code = KILLED.replace("LOOP", loop)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    old = Path(done.stdout.strip())
    assert old.is_socket()
    assert old.parent.parent == folder
    server = ChildServer(None)
    await server.start(None)  # type: ignore[arg-type]  # nothing is asked of it
    address = Path(server.address)
    assert kept(folder) == [address.parent.name]
    assert address.is_socket()
    assert not old.parent.exists()
    await server.close()
    assert kept(folder) == []


async def test_the_folder_of_a_process_that_runs_is_kept(folder: Path) -> None:
    one, two = ChildServer(None), ChildServer(None)
    await one.start(None)  # type: ignore[arg-type]
    await two.start(None)  # type: ignore[arg-type]
    assert len(kept(folder)) == 2
    remove_leftovers(folder)
    assert len(kept(folder)) == 2
    await one.close()
    await two.close()
    assert kept(folder) == []


def test_only_folders_are_removed_that_are_of_this_kind_and_of_this_user(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with left(folder, "shoal-full") as listener:
        listener.setblocking(False)
        (folder / "shoal-empty").mkdir(mode=0o700)
        (folder / "shoal-file").write_text("")
        (folder / "shoal-with-a-file").mkdir(mode=0o700)
        (folder / "shoal-with-a-file" / "children.sock").write_text("no socket")
        for name in ("other-name", "shoal-open", "shoal-more", "shoal-gone"):
            left(folder, name, 0o755 if name == "shoal-open" else 0o700).close()
        (folder / "shoal-more" / "data").write_text("")
        (folder / "shoal-link").symlink_to(folder / "other-name")
        everything = kept(folder)
        monkeypatch.setattr(os, "geteuid", lambda uid=os.geteuid(): uid + 1)
        remove_leftovers(folder)
        assert kept(folder) == everything
        monkeypatch.undo()
        remove_leftovers(folder)
        assert kept(folder) == sorted(set(everything) - {"shoal-gone"})


def test_a_process_to_which_many_connect_is_not_gone(folder: Path) -> None:
    with left(folder, "shoal-busy") as listener:
        listener.listen(0)
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            try:
                one.connect(str(folder / "shoal-busy" / "children.sock"))
            except BlockingIOError:
                break
        else:
            pytest.fail("its queue never filled")
        remove_leftovers(folder)
        assert kept(folder) == ["shoal-busy"]
        for one in waiting:
            one.close()
