"""Whether a kernel has still to be compiled is seen before it is called; and compiling in another process."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from shoal.runtime import compiling
from shoal.runtime.compiling import CompilingChild, announce, needs_compiler, stop_children

KERNEL = """
from shoal.runtime.kernels import kernel

@kernel()
def double(x):
    return x + x
"""
RUN = """
from shoal.runtime.compiling import needs_compiler
from tiny_kernel import double
for value in (1, 2.5):
    before = needs_compiler(double, (value,))
    assert double(value) == value + value
    print(before, needs_compiler(double, (value,)), sum(double.stats.cache_misses.values()))
"""


def test_it_is_seen_in_the_folder_and_in_the_process(tmp_path: Path, run_python: Callable[[str], str]) -> None:
    (tmp_path / "tiny_kernel.py").write_text(KERNEL)
    assert run_python(RUN).splitlines() == ["True False 1", "True False 2"]
    assert run_python(RUN).splitlines() == ["False False 0", "False False 0"]


def test_where_numba_has_not_these_parts_the_call_finds_out() -> None:
    stats = SimpleNamespace(cache_path="somewhere")
    strange = SimpleNamespace(typeof_pyval=type, overloads={}, stats=stats)
    assert not needs_compiler(strange, (1, 2.0))
    assert not needs_compiler(SimpleNamespace(), (1,))
    strange.stats.cache_path = None  # no folder: nothing can be in it
    assert needs_compiler(strange, (1, 2.0))
    strange.overloads[(int, float)] = "compiled"
    assert not needs_compiler(strange, (1, 2.0))


def test_a_child_compiles_beside_its_parent_and_ends_with_it() -> None:
    child = CompilingChild("import time; time.sleep(60)")
    assert child.running
    stop_children()
    assert not child.running


def test_what_is_waited_for_is_said_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_announced", False)
    for _ in range(2):
        announce("the kernels of a test")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the kernels of a test" in said
