"""Compiled kernels in a folder that cannot be written are loaded, and nothing is written there."""

from collections.abc import Callable
from pathlib import Path

import pytest

KERNEL = """
from shoal.runtime.kernels import kernel

@kernel()
def double(x):
    return x + x
"""
RUN = """
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


@pytest.fixture
def run(run_python: Callable[[str], str]) -> Callable[..., str]:
    return lambda values, *, sealed: run_python(RUN.format(sealed=sealed, values=values))


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in (folder / "cache").rglob("*")
        if path.is_file()
    }


def test_a_sealed_folder_is_read_and_not_written(folder: Path, run: Callable[..., str]) -> None:
    assert run("[1, 2.5]", sealed=False) == "['double'] 2"
    before = files(folder)
    assert before
    assert run("[1, 2.5]", sealed=True) == "[] 0"
    assert run("[1, 2j]", sealed=True) == "['double'] 1", "what it does not hold is compiled in memory"
    assert files(folder) == before


def test_a_sealed_folder_that_holds_nothing_is_no_fault(folder: Path, run: Callable[..., str]) -> None:
    (folder / "cache").mkdir()
    assert run("[1]", sealed=True) == "['double'] 1"
    assert files(folder) == {}
    assert not list(folder.rglob("*.nbi")), "nor beside the source"
