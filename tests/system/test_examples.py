"""Every script in docs/examples that needs no server runs as its docstring says, without a warning."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
ARGUMENTS = {
    "anomalies.py": [],
    "batch.py": [],
    "digits.py": ["digits.npy", "digits-labels.npy"],
    "drifting_stream.py": ["--points", "500", "--labels", "labels.npy"],
    "embeddings.py": [],
    "own_family.py": [],
    "sentences.py": [],
}
NEEDS_A_SERVER = {"agreement.py", "log_lines.py", "web_log.py"}
"""Run by test_readme.py, test_documents.py and test_tutorial.py."""


def environment() -> dict[str, str]:
    """This process's environment, with the packages of the checkout, and one thread for arithmetic."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "core"), str(ROOT / "service")]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


FORK_FOR_EACH = """
import json, os, runpy, sys
import shoal.estimators.batch, shoal.estimators.streaming, sklearn.metrics

for line in sys.stdin:
    asked = json.loads(line)
    if not (child := os.fork()):
        os.chdir(asked["folder"])
        for number, name in ((1, "printed"), (2, "complaints")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
        sys.argv, sys.path[0] = asked["command"], os.path.dirname(asked["command"][0])
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Runs each script in a process of its own that has the heavy imports already: they cost 2.4 s of processor time."""


@pytest.fixture(scope="module")
def interpreter() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "error", "-c", FORK_FOR_EACH]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment(), text=True) as process:
        yield process


Run = Callable[[str], list[str]]


@pytest.fixture
def run(interpreter: subprocess.Popen[str], tmp_path: Path) -> Run:
    """Run a script in the test's folder, and give the lines that it prints."""

    def run(name: str) -> list[str]:
        assert interpreter.stdin is not None
        assert interpreter.stdout is not None
        folder = tmp_path / "output"
        folder.mkdir()
        asked = {"folder": str(folder), "command": [str(EXAMPLES / name), *ARGUMENTS[name]]}
        interpreter.stdin.write(json.dumps(asked) + "\n")
        interpreter.stdin.flush()
        code = int(interpreter.stdout.readline())
        assert (code, (folder / "complaints").read_text()) == (0, "")
        return (folder / "printed").read_text().splitlines()

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_script_imports_all_that_it_uses(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *ARGUMENTS[name]]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=570)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_example_is_run_somewhere() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == ARGUMENTS.keys() | NEEDS_A_SERVER


def test_planted_anomalies_are_flagged_and_the_page_shows_it(run: Run) -> None:
    header, *rows = run("anomalies.py")
    page = (ROOT / "docs" / "anomalies.md").read_text().splitlines()
    shown = page[page.index(header) + 1 :][: len(rows)]
    for row, there in zip(rows, shown, strict=True):
        flagged, planted, both = (int(number) for number in row.split()[-3:])
        assert both == planted == int(there.split()[-2])
        assert abs(flagged - int(there.split()[-3])) <= 5  # last digits vary with the processor
    assert int(rows[-1].split()[-3]) <= 2 * 0.005 * 6_000  # the threshold has followed the change


def test_batch_finds_the_groups_and_prints_what_the_page_shows(run: Run) -> None:
    header, *rows, last = run("batch.py")
    assert header.split()[:2] == ["method", "components"]
    found = {row.split()[0]: row.split()[1:] for row in rows}
    assert list(found) == ["vdp", "fast-vdp", "tsb", "ctsb", "gibbs"]
    for method, (_, _, kind, agreement) in found.items():
        assert kind == ("approximate" if method == "ctsb" else "exact")
        assert float(agreement) > 0.95
    assert last.startswith("component of new points: [")
    page = (ROOT / "docs" / "batch.md").read_text().splitlines()
    shown = {row.split()[0]: row.split()[1:] for row in page[page.index(header) + 1 :][: len(rows)]}
    for method, (components, bound, *_) in found.items():
        assert shown[method][0] == components
        assert float(shown[method][1]) == pytest.approx(float(bound), abs=0.1)  # last digits vary with the processor


@pytest.mark.slow
def test_embeddings_are_told_apart_as_the_page_shows(run: Run) -> None:
    header, *rows = run("embeddings.py")
    page = (ROOT / "docs" / "families.md").read_text().splitlines()
    shown = page[page.index(header) + 1 :][: len(rows)]
    for row, there in zip(rows, shown, strict=True):
        *what, components, agreement = row.split()
        *same, wanted, level = there.split()
        assert what == same
        assert float(components) == pytest.approx(float(wanted), rel=0.1)  # last digits vary with the processor
        assert float(agreement) == pytest.approx(float(level), abs=0.05)
    assert float(rows[0].split()[-1]) > 0.99


def test_sentences_become_clusters_with_the_names_that_the_page_shows(run: Run) -> None:
    """Each of the eight matters has a cluster, and a word of its own is in the cluster's name."""
    header, *rows, last = run("sentences.py")
    page = (ROOT / "docs" / "embeddings.md").read_text().splitlines()
    shown = page[page.index(header) + 1 :][: len(rows)]
    named = [{word.strip(",") for word in row.split()[2:]} for row in rows]
    assert named == [{word.strip(",") for word in row.split()[2:]} for row in shown]
    for word in ("login", "invoice", "delivery", "refund", "app", "printer", "wifi", "meeting"):
        assert sum(word in name for name in named) == 1
    assert float(last.split()[-1]) > 0.98


def test_digits_are_written_as_two_arrays(run: Run, tmp_path: Path) -> None:
    assert run("digits.py") == ["1797 points of 12 features in digits.npy"]
    assert np.load(tmp_path / "output" / "digits.npy").shape == (1797, 12)
    assert np.load(tmp_path / "output" / "digits-labels.npy").shape == (1797,)


def test_drifting_stream_is_one_row_a_line(run: Run, tmp_path: Path) -> None:
    lines = run("drifting_stream.py")
    assert len(lines) == np.load(tmp_path / "output" / "labels.npy").size == 500
    assert lines[0].startswith("[")


def test_a_family_of_ones_own_finds_the_means_that_the_points_were_drawn_with(run: Run) -> None:
    _, *rows = run("own_family.py")
    found = sorted([float(word) for word in row.split("[")[1].rstrip("]").split()] for row in rows)
    assert np.allclose(found, [[1.0, 1.0], [1.0, 8.0], [20.0, 3.0]], rtol=0.06)  # a deviation is 1 %
    assert sum(float(row.split()[0]) for row in rows) > 2_900


def test_every_picture_is_shown_and_drawn_by_a_program() -> None:
    """The map is a screenshot of the dashboard."""
    pictures = ROOT / "docs" / "pictures"
    drawn = set(re.findall(r'^    "([a-z-]+)": ', (pictures / "make.py").read_text(), flags=re.MULTILINE))
    found = {path.stem for path in pictures.glob("*.png")}
    assert found >= drawn > {"component"}
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    for name in found:
        assert re.search(rf"!\[[^\]]{{20,}}\]\(pictures/{name}\.png\)", pages), f"{name} is not shown, or not described"
        assert name in drawn | {"map"}, f"no program draws {name}"


def test_the_notebook_runs_and_holds_what_it_prints_and_draws() -> None:
    """Its code in order, without Jupyter. If this fails after a change: python docs/run_notebook.py FILE."""
    path = EXAMPLES / "tour.ipynb"
    code = (
        f"import json, pathlib, sys; sys.path.insert(0, {str(ROOT / 'docs')!r}); import run_notebook\n"
        f"print(json.dumps(run_notebook.outputs_of(json.loads(pathlib.Path({str(path)!r}).read_text()))))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment(), capture_output=True, text=True, timeout=570
    )
    assert (done.returncode, done.stderr) == (0, "")
    fresh = json.loads(done.stdout)
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [shape_of(outputs) for outputs in fresh] == [shape_of(cell["outputs"]) for cell in cells]
    assert sum("image/png" in data for outputs in fresh for data, _ in shape_of(outputs)) == 4


def shape_of(outputs: list[dict[str, Any]]) -> list[tuple[tuple[str, ...], str]]:
    """Kinds and words of outputs. Last digits vary with the processor, and pictures with its fonts."""
    words = ["".join(one.get("text") or one["data"].get("text/plain", "")) for one in outputs]
    kinds = [tuple(one.get("data", {one["output_type"]: None})) for one in outputs]
    return [(kind, re.sub(r"\d+\.\d+", "#", text)) for kind, text in zip(kinds, words, strict=True)]
