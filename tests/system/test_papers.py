"""The commands of benchmarks/papers still run, in their tiny form, and write what they say: rows, and a plot."""

import csv
import importlib.util
import os
import runpy
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAPERS = ROOT / "benchmarks" / "papers"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "core"), "OMP_NUM_THREADS": "1"}
CAPTURED: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 570}
AS_A_PROCESS = "collapsed_figures --figure synthetic"
DRAWN = importlib.util.find_spec("matplotlib") is not None
COMMANDS = {
    "fast_vdp_figures": (["fast_vdp_figure_1", "fast_vdp_figure_2"], ["ratio_vdp_paper", "times_vdp_paper"]),
    "collapsed_figures --figure synthetic": (["collapsed_figures_synthetic"], ["held_out", "cpu_s"]),
    "lin --what synthetic": (["lin_synthetic"], ["cpu_s", "held_out", "truth", "components"]),
    "blei_jordan --what autocorrelation": (["blei_jordan_autocorrelation"], ["autocorrelation"]),
    "against_sklearn --data ten grid": (["against_sklearn"], ["bound", "held_out"]),
}
WITH_DATA = {
    "lin --what documents": (["lin_documents"], ["cpu_s", "held_out", "alone", "components"]),
    "every_engine --data old_faithful --methods vdp gibbs shoal BayesianGaussianMixture": (
        ["every_engine"],
        ["cpu_s", "held_out", "components", "peak_mib"],
    ),
    "daume --what small nips": (["daume_small", "daume_nips"], ["log_joint", "cpu_s"]),
    "nips_prior": (["nips_prior"], ["nats", "components"]),
    "fast_vdp_mnist": (["fast_vdp_mnist"], ["untied", "held_out"]),
    "fast_vdp_topics": (["fast_vdp_topics"], ["elbo"]),
    "collapsed_figures --figure mnist": (["collapsed_figures_mnist"], ["held_out"]),
}

ALWAYS = ("lin", "nips_prior")
"""Commands that are tried always. The others differ by what they measure, not by how they are run."""


def tried(commands: Iterable[str]) -> list[Any]:
    """The commands, those that are not tried always with their mark."""
    return [name if name.split()[0] in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in commands]


def run(command: str, folder: Path) -> None:
    """The command as its users have it: a process of its own."""
    done = subprocess.run([sys.executable, *words_of(command, folder)], env=ENVIRONMENT, **CAPTURED)
    assert done.returncode == 0, done.stderr


def run_here(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in this process: a third of the time, most of which goes into imports and kernels. Not a command that
    forks: a child that other threads' locks came along to may wait for ever."""
    if command.startswith("every_engine"):
        return run(command, folder)
    script, *options = words_of(command, folder)
    monkeypatch.setattr(sys, "argv", [script, *options])
    monkeypatch.syspath_prepend(str(PAPERS))
    for name in ("record", "synthetic"):  # the modules that lie beside the commands
        monkeypatch.delitem(sys.modules, name, raising=False)
    runpy.run_path(script, run_name="__main__")
    return None


def words_of(command: str, folder: Path) -> list[str]:
    name, *options = command.split()
    return [str(PAPERS / f"{name}.py"), *options, "--tiny", "--out", str(folder)]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("command", tried(command for command in COMMANDS if command != AS_A_PROCESS))
def test_a_command_writes_its_table(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, columns = COMMANDS[command]
    run_here(command, tmp_path, monkeypatch)
    check_tables(tmp_path, tables, columns)


def test_a_command_is_a_program_of_its_own(tmp_path: Path) -> None:
    run(AS_A_PROCESS, tmp_path)
    check_tables(tmp_path, *COMMANDS[AS_A_PROCESS])


def check_tables(tmp_path: Path, tables: list[str], columns: list[str]) -> None:
    for table in tables:
        rows = rows_of(tmp_path / f"{table}-tiny.csv")
        assert rows
        for row in rows:
            assert row["date"]
            assert row["machine"]
            assert all(float(row[column]) == float(row[column]) for column in columns if row.get(column))
    assert bool(list(tmp_path.glob("*-tiny.png"))) == DRAWN


@pytest.mark.skipif("SHOAL_DATA" not in os.environ, reason="SHOAL_DATA names no folder of real data")
@pytest.mark.parametrize("command", tried(WITH_DATA))
def test_a_command_on_real_data_writes_its_table(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, columns = WITH_DATA[command]
    run_here(command, tmp_path, monkeypatch)
    for table in tables:
        rows = rows_of(tmp_path / f"{table}-tiny.csv")
        assert rows
        assert all(float(row[column]) == float(row[column]) for row in rows for column in columns)


def test_a_table_keeps_what_other_runs_wrote(tmp_path: Path) -> None:
    """A long table is filled by several runs, and a row measured again takes the place of the old one."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from record import Table; from pathlib import Path\n"
        "p = Path(sys.argv[2]); a = Table(p, 'what n', ('what',)); b = Table(p, 'what n', ('what',))\n"
        "a.add(what='x', n=1); b.add(what='y', n=2); a.add(what='x', n=3)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(PAPERS), str(tmp_path / "t.csv")], check=True, capture_output=True)
    assert [(row["what"], row["n"]) for row in rows_of(tmp_path / "t.csv")] == [("x", "3"), ("y", "2")]


@pytest.mark.slow
def test_a_run_that_comes_to_no_end_is_an_entry_and_not_a_gap() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import every_engine\n"
        "def spin(method, data):\n    while True: pass\n"
        "def fail(method, data):\n    raise MemoryError\n"
        "for every_engine.fit in (spin, fail): print(every_engine.run('vdp', None, 1)['outcome'])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "core")}
    arguments = [sys.executable, "-c", code, str(ROOT / "benchmarks" / "papers")]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True, timeout=570)
    assert done.stdout.splitlines() == ["over 1 s", "failed, exit code 1"]
