"""Whether a kernel has still to be compiled is seen before it is called; and compiling in a thread."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from shoal.runtime.compiling import Compilation, _wait_for_all, needs_compiler

KERNEL = """
from shoal.runtime.kernels import kernel

@kernel()
def double(x):
    return x + x
"""
RUN = """
import sys
sys.path[:0] = {path!r}
from shoal.runtime.compiling import needs_compiler
from tiny_kernel import double
for value in (1, 2.5):
    before = needs_compiler(double, (value,))
    assert double(value) == value + value
    print(before, needs_compiler(double, (value,)), sum(double.stats.cache_misses.values()))
"""


def run(folder: Path) -> list[str]:
    path = [str(folder), *(entry for entry in sys.path if entry)]
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(path=path)],
        env=os.environ | {"SHOAL_KERNEL_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_it_is_seen_in_the_folder_and_in_the_process(tmp_path: Path) -> None:
    (tmp_path / "tiny_kernel.py").write_text(KERNEL)
    assert run(tmp_path) == ["True False 1", "True False 2"]
    assert run(tmp_path) == ["False False 0", "False False 0"]


def test_where_numba_has_not_these_parts_the_call_finds_out() -> None:
    stats = SimpleNamespace(cache_path="somewhere")
    strange = SimpleNamespace(typeof_pyval=type, overloads={}, stats=stats)
    assert not needs_compiler(strange, (1, 2.0))
    assert not needs_compiler(SimpleNamespace(), (1,))
    strange.stats.cache_path = None  # no folder: nothing can be in it
    assert needs_compiler(strange, (1, 2.0))
    strange.overloads[(int, float)] = "compiled"
    assert not needs_compiler(strange, (1, 2.0))


def test_it_runs_beside_and_is_waited_for_by_forks_too() -> None:
    go, done = threading.Event(), []
    compilation = Compilation(lambda: done.append(go.wait()))
    assert compilation.running
    go.set()
    _wait_for_all()
    assert done == [True]
    compilation.wait()
    assert not compilation.running


def test_what_it_raises_is_raised_where_it_is_waited_for() -> None:
    def work() -> None:
        raise ZeroDivisionError("in the compiler")

    compilation = Compilation(work)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="compiler"):
            compilation.wait()
