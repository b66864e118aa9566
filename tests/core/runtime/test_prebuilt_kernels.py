"""Compiled kernels in a folder that cannot be written are loaded, and nothing is written there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = """
from shoal.runtime.kernels import kernel

@kernel()
def double(x):
    return x + x
"""
RUN = """
import sys
sys.path[:0] = {path!r}
from shoal.runtime import cache as settings
if {sealed}:
    settings._writable = lambda folder: False
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
    from tiny_kernel import double
    for value in {values}:
        assert double(value) == value + value
compiled = {{str(e.data["dispatcher"].py_func.__name__) for _, e in recorder.buffer if e.is_start}}
print(sorted(compiled), sum(e.is_start for _, e in recorder.buffer))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny_kernel.py").write_text(KERNEL)
    return tmp_path


def run(folder: Path, values: str, *, sealed: bool) -> str:
    path = [str(folder), *(entry for entry in sys.path if entry)]
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(path=path, sealed=sealed, values=values)],
        env=os.environ | {"SHOAL_KERNEL_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in (folder / "cache").rglob("*")
        if path.is_file()
    }


def test_a_sealed_folder_is_read_and_not_written(folder: Path) -> None:
    assert run(folder, "[1, 2.5]", sealed=False) == "['double'] 2"
    before = files(folder)
    assert before
    assert run(folder, "[1, 2.5]", sealed=True) == "[] 0"
    assert run(folder, "[1, 2j]", sealed=True) == "['double'] 1", "what it does not hold is compiled in memory"
    assert files(folder) == before


def test_a_sealed_folder_that_holds_nothing_is_no_fault(folder: Path) -> None:
    (folder / "cache").mkdir()
    assert run(folder, "[1]", sealed=True) == "['double'] 1"
    assert files(folder) == {}
    assert not list(folder.rglob("*.nbi")), "nor beside the source"
