"""The whole command line against a real `shoal serve` in a process of its own."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from harness.preforked import Preforked
from harness.server_log import listening_at
from harness.shoal_command import started
from harness.waiting import LONGEST_WAIT_S, eventually
from shoal_service.client import Client

pytestmark = pytest.mark.system

Shoal = Callable[..., Result]
Served = tuple[str, Preforked | subprocess.Popen[bytes]]

RNG = np.random.default_rng(4)
X = RNG.normal(size=(1500, 2)) * 0.3 + np.where(np.arange(1500) % 3 == 0, -4.0, 4.0)[:, None]


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("points") / "x.npy"
    np.save(path, X)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service") / "data"


@pytest.fixture(scope="module")
def served(data: Path) -> Iterator[Served]:
    """A service on a free port: (address, process), ready. Ended by the last test."""
    log = data.with_suffix(".log")
    process = started(["serve", "--port", "0", "--data", str(data)], log)
    try:
        address = listening_at(log)
        assert address.startswith("http://127.0.0.1:")
        with Client(address) as client:
            eventually(lambda: client.health().ready)  # kernels may have to be compiled
        yield address, process
    finally:
        process.kill()


def test_points_in_components_out(served: Served, shoal: Shoal, points: Path, tmp_path: Path) -> None:
    url, _ = served

    sent = shoal("ingest", points, "--url", url, "--wait")
    assert (sent.exit_code, sent.stderr) == (0, "")
    assert sent.stdout == "1,500 points sent to stream default, log offset 1,500\n"

    found = json.loads(shoal("components", "--url", url, "--json").stdout)
    assert [round(c["mass"], -1) for c in found["components"]] == [1000, 500]
    assert len(shoal("components", "--url", url).stdout.splitlines()) == 3

    said = shoal("predict", points, "--url", url, "--out", tmp_path / "labels.npy")
    assert said.exit_code == 0, said.stderr
    labels = np.load(tmp_path / "labels.npy")
    np.testing.assert_array_equal(labels == found["components"][0]["id"], X[:, 0] > 0)

    state = tmp_path / "state.shoal"
    assert shoal("snapshot", "save", state, "--url", url).exit_code == 0
    restored = shoal("snapshot", "restore", state, "--url", url, "--stream", "copy")
    assert restored.exit_code == 0, restored.stderr
    copied = json.loads(shoal("components", "--url", url, "--stream", "copy", "--json").stdout)
    assert copied["components"] == found["components"]

    wide = tmp_path / "wide.csv"
    wide.write_text("1,2,3\n")
    refused = shoal("ingest", wide, "--url", url)
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert "expects 2" in refused.stderr

    made = shoal("ingest", wide, "--url", url, "--stream", "wide", "--create", "--set", "family=diagonal", "--json")
    assert json.loads(made.stdout)["accepted"] == 1


def test_server_that_cannot_start_is_exit_6_and_says_why(served: Served, data: Path, tmp_path: Path) -> None:
    url, process = served
    file = tmp_path / "file"
    file.touch()
    for port, folder, word in (
        (url.rpartition(":")[2], tmp_path / "other", "--port"),
        ("0", data, str(process.pid)),
        ("0", file, str(file)),
    ):
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        assert started(["serve", "--port", port, "--data", str(folder)], log).wait(LONGEST_WAIT_S) == 6
        said = log.read_text()
        assert word in said
        assert "Traceback" not in said
        assert "listens on" not in said


def test_fit_needs_no_server_and_its_state_can_be_restored_into_one(
    served: Served, shoal: Shoal, points: Path, tmp_path: Path
) -> None:
    url, _ = served
    labels, state = tmp_path / "labels.npy", tmp_path / "state.shoal"
    done = shoal("fit", points, "--out", labels, "--save", state, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["points"] == 1500
    assert [round(c["mass"], -1) for c in found["components"]] == [1000, 500]
    np.testing.assert_array_equal(np.load(labels) == found["components"][0]["id"], X[:, 0] > 0)
    plain = shoal("fit", points).stdout.splitlines()
    assert [line.split("\t")[0] for line in plain] == ["id", *(str(c["id"]) for c in found["components"])]

    assert shoal("snapshot", "restore", state, "--url", url, "--stream", "fitted").exit_code == 0
    served_ = json.loads(shoal("components", "--url", url, "--stream", "fitted", "--json").stdout)
    assert [c["id"] for c in served_["components"]] == [c["id"] for c in found["components"]]


def test_sigterm_ends_the_service_with_0(served: Served, shoal: Shoal) -> None:
    url, process = served
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    assert shoal("components", "--url", url).exit_code == 3
