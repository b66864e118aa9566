"""`shoal fit --executor`: folders and globs of files, labels as Parquet, and what is refused."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import Result

from shoal import DPMixture
from shoal.runtime.files import complete_file
from shoal_service.cli.exits import ExitCode
from shoal_service.cli.fit_dataset import sigterm_as_exit

Shoal = Callable[..., Result]
X = 20.0 * np.eye(3)[np.repeat([0, 1, 2], [300, 200, 100])][:, :2] + np.random.default_rng(0).normal(size=(600, 2))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of rows, with a column that is no feature."""
    for number, part in enumerate(np.split(X, [250, 400])):
        table = pa.table({"id": ["p"] * len(part), "x": part[:, 0], "y": part[:, 1]})
        (tmp_path / "in").mkdir(exist_ok=True)
        parquet.write_table(table, tmp_path / "in" / f"{number}.parquet")
    return tmp_path / "in"


def test_a_glob_of_parquet_is_fitted_and_labelled(shoal: Shoal, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels"
    said = shoal("fit", folder / "*.parquet", "--executor", "in-process", "--columns", "x, y", "--out", out, "--json")
    assert said.exit_code == 0, said.stderr
    found = json.loads(said.stdout)
    assert (found["points"], found["method"], len(found["components"])) == (600, "vdp", 3)
    np.save(tmp_path / "x.npy", X)
    model = DPMixture(random_state=0).fit(tmp_path / "x.npy")
    assert found["bound"]["nats"] == pytest.approx(model.elbo_, abs=1e-3)
    labels = np.concatenate([parquet.read_table(out / f"{i}.parquet")["label"] for i in range(3)])
    np.testing.assert_array_equal(labels, model.predict(X))


def test_off_a_terminal_each_pass_is_one_line(shoal: Shoal, folder: Path, tmp_path: Path) -> None:
    said = shoal(
        "fit", folder, "--executor", "in-process", "--method", "fast-vdp", "--columns", "x,y", "--out", tmp_path / "o"
    )
    assert said.exit_code == 0, said.stderr
    names = [line.partition(":")[0] for line in said.stderr.splitlines()]
    assert names[:3] == ["reading", "cells", "sweeping"]
    assert said.stderr.splitlines()[0].startswith("reading: 600 rows in ")
    assert "labelling" in names
    assert f"600 labels written to 3 files in {tmp_path / 'o'}" in said.stderr


def test_on_a_terminal_a_bar_shows_rows_rate_and_time_left(
    folder: Path, shoal_in_terminal: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, drawn = shoal_in_terminal("fit", folder, "--executor", "in-process", "--columns", "x,y", columns=150)
    assert code == 0, drawn
    assert "600 of 600 rows, " in drawn
    assert "/s" in drawn
    assert "left" in drawn


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "is a folder or a glob of files; add --executor processes"),
        (["--workers", "2"], "--workers is for an executor"),
        (["--address", "auto"], "--address is for an executor"),
        (["--executor", "processes", "--address", "auto"], "address is 'auto', which is for executor 'ray'"),
        (["--executor", "processes", "--method", "gibbs"], "'gibbs' needs all points in memory"),
        (["--executor", "processes", "--save", "state.shoal"], "--save writes the state of a stream"),
        (["--executor", "processes", "--half-life", "9"], "--half-life is for one-pass"),
        (["--executor", "processes", "--key", "train"], "--key is not for --executor"),
        (["--executor", "processes"], "column 'id' holds string"),
        (["--executor", "processes", "--columns", "x,z"], "there is no column 'z'"),
        (["--executor", "threads"], "threads"),
    ],
)
def test_what_does_not_fit_together_is_refused(shoal: Shoal, folder: Path, arguments: list[str], words: str) -> None:
    given = [] if "--columns" in arguments or "id" in words else ["--columns", "x,y"]
    said = shoal("fit", folder, *arguments, *given)
    assert said.exit_code == ExitCode.USAGE, said.output
    assert words in said.stderr.replace("\n", " ")
    assert said.stdout == ""


def test_sigterm_ends_a_fit_with_its_workers_and_leaves_no_incomplete_file(tmp_path: Path) -> None:
    def terminated_while_writing() -> None:
        with sigterm_as_exit(), complete_file(tmp_path, "labels.parquet") as path:
            Path(path).write_bytes(b"some")
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        terminated_while_writing()
    assert ended.value.code == 143
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_labels_that_cannot_be_written_are_refused_before_the_fit(shoal: Shoal, folder: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (tmp_path / "file").write_text("mine")
    for out, words in (
        (tmp_path / "file", "is a file; with --executor it must be a folder"),
        (folder, "would replace the rows"),
    ):
        said = shoal("fit", folder, "--executor", "in-process", "--columns", "x,y", "--out", out)
        assert said.exit_code == ExitCode.USAGE, said.output
        assert words in said.stderr.replace("\n", " ")
        assert "reading" not in said.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert (tmp_path / "file").read_text() == "mine"
