"""One process owns a data folder."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal_service.errors import StoreInUseError
from shoal_service.store import SqliteStore

OWNER = """
import sys
from shoal_service.store import SqliteStore
store = SqliteStore(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_owner_in_the_same_process_is_refused(opened: Any) -> None:
    with pytest.raises(StoreInUseError, match=f"{opened.folder}.* process {os.getpid()};"):
        SqliteStore(opened.folder)
    assert opened.add().seq == 1
    opened.reopen()


def test_another_process_is_named_and_its_death_by_kill_9_frees_the_folder(
    folder: Path, package_path: dict[str, str]
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)],
        env=package_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "open\n"
        for _ in range(2):
            with pytest.raises(StoreInUseError, match=f"process {owner.pid};"):
                SqliteStore(folder)
        owner.kill()
        owner.wait(120)
    assert (folder / "shoal.lock").read_text() == f"{owner.pid}\n"  # the file stays, the lock does not
    SqliteStore(folder).close()
