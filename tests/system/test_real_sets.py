"""The benchmark on labelled sets in small: one line a method, and a later run takes the place of its own lines."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(BENCHMARKS.parent / "core"), "OMP_NUM_THREADS": "1"}


def run(script: str, out: Path, *words: str) -> list[dict[str, str]]:
    command = [sys.executable, str(BENCHMARKS / script), "--out", str(out), *words]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=570)
    assert done.returncode == 0, done.stderr
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_methods_on_labelled_sets(tmp_path: Path) -> None:
    out = tmp_path / "real.csv"
    run("real.py", out, "--set", "moons", "--method", "clusters, refined", "k-means, told K")
    rows = run("real.py", out, "--set", "iris", "moons", "--method", "HDBSCAN", "k-means, told K")
    found = {(row["set"], row["method"]): row for row in rows}
    assert len(found) == len(rows) == 5
    assert [row["set"] for row in rows] == ["iris"] * 2 + ["moons"] * 3
    clusters = found["moons", "clusters, refined"]
    assert (clusters["ari"], clusters["clusters"], clusters["setting"]) == ("1.0", "2", "connected")
    assert float(found["moons", "k-means, told K"]["ari"]) < 0.6
    assert float(found["iris", "k-means, told K"]["ari"]) > 0.7


@pytest.mark.slow
def test_rules_for_the_number_of_clusters(tmp_path: Path) -> None:
    rows = run("cluster_rules.py", tmp_path / "rules.csv", "--set", "wine", "moons")
    found = {(row["set"], row["rule"]): row for row in rows}
    assert len(found) == 20
    assert {found["wine", rule]["clusters"] for rule in ("penalty 3", "default", "told K")} == {"3"}
    assert found["moons", "default"]["ari"] == "1.0"
    assert found["moons", "components"]["clusters"] == found["moons", "default"]["components"] != "2"
