"""`shoal doctor`: what it prints, and its exit status."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness import earlier_stores


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return earlier_stores.unpack_folder("0.1.0", tmp_path / "data")


def spoil(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "shoal.sqlite3")) as db, db:
        db.execute("UPDATE entries SET n_points = 99 WHERE seq = 16")


def test_a_whole_store_ends_with_0(shoal: Callable[..., Any], folder: Path) -> None:
    done = shoal("doctor", "--data", folder)
    assert done.exit_code == 0
    assert "plane: 1,600 points, entries 7 to 17, checkpoints at 13, 11, 0 dead letters" in done.output
    assert "everything is whole" in done.output


def test_a_finding_ends_with_1_and_says_what_is_lost_and_what_to_do(shoal: Callable[..., Any], folder: Path) -> None:
    spoil(folder)
    done = shoal("doctor", "--data", folder)
    assert done.exit_code == 1
    lines = done.output.splitlines()
    at = lines.index("stream 'plane', entry, entry 16: its row does not match its checksum")
    assert lines[at + 1] == "  lost: entries from 16 on cannot be learnt: 200 points"
    assert lines[at + 2].startswith("  to do: restore a copy of the store")
    assert lines[-1] == "1 finding"


def test_json_has_the_same_for_programs(shoal: Callable[..., Any], folder: Path) -> None:
    spoil(folder)
    done = shoal("doctor", "--data", folder, "--json")
    assert done.exit_code == 1
    found = json.loads(done.output)
    assert {(one["stream"], one["part"], one["where"]) for one in found["findings"]} == {("plane", "entry", "entry 16")}
    assert [stream["name"] for stream in found["streams"]] == ["axes", "counts", "plane"]
    assert found["in_use"] is False


def test_a_store_that_cannot_be_read_ends_with_6(shoal: Callable[..., Any], tmp_path: Path) -> None:
    done = shoal("doctor", "--data", tmp_path)
    assert done.exit_code == 6
    assert "holds no store" in done.stderr
    (tmp_path / "shoal.sqlite3").touch()
    done = shoal("doctor", "--data", tmp_path)
    assert done.exit_code == 6
    assert "is empty or holds another database, no shoal store; restore it from a copy" in done.stderr
    assert shoal("doctor", "--redis", "redis://127.0.0.1:1").exit_code == 6
    assert shoal("doctor", "--data", tmp_path, "--redis", "redis://127.0.0.1").exit_code == 2
