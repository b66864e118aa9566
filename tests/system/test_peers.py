"""`make bench` in small: learners in processes of their own, a table that later runs add to, and its summary."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PEERS.parents[1] / "core"), "OMP_NUM_THREADS": "1"}


def run(script: str, *words: str) -> str:
    command = [sys.executable, str(PEERS / script), *words]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=570)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bench(out: Path, *words: str) -> list[dict[str, str]]:
    run("run.py", "--rows", "4000", "--rounds", "1", "--out", str(out), *words)
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_later_run_takes_the_place_of_its_own_lines_alone(tmp_path: Path) -> None:
    out = tmp_path / "peers.csv"
    words = ("--workload", "ten-16d", "--learner")
    first = {row["learner"]: row for row in bench(out, *words, "floors", "--learner", "MiniBatchKMeans")}
    assert set(first) == {"floors", "MiniBatchKMeans, told K"}
    assert float(first["floors"]["blas_product_rows_per_cpu_s"]) > float(first["floors"]["e_step_rows_per_cpu_s"])
    refined = ("--learner", "shoal gaussian, refined")
    again = {row["learner"]: row for row in bench(out, *words, "MiniBatchKMeans", *refined)}
    assert set(again) == {*first, "shoal gaussian, refined"}
    assert {name for name in first if again[name] != first[name]} == {"MiniBatchKMeans, told K"}
    assert float(again["shoal gaussian, refined"]["ari"]) > 0.99
    assert float(again["shoal gaussian, refined"]["short_of_truth_nats"]) < 0.5
    table = run("table.py", str(out))
    assert "### ten-16d" in table
    assert table.count("\n| shoal gaussian, refined | 1 | 10 | ") == 1


@pytest.mark.slow
def test_a_drifting_stream_is_judged_while_it_runs(tmp_path: Path) -> None:
    (row,) = bench(tmp_path / "peers.csv", "--workload", "drift-2d", "--learner", "shoal diagonal, one pass")
    assert float(row["window_ari_tenth"]) > 0.9
    assert row["short_of_truth_nats"] == ""
