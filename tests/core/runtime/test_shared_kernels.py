"""Installations with different families share a folder of compiled kernels. Damage to it costs a compilation."""

from collections.abc import Callable
from pathlib import Path

import pytest

KERNEL = """
from shoal.runtime.kernels import kernel

@kernel()
def first(x):
    return x[0]
"""
FAMILY = """
from typing import NamedTuple

class Pair(NamedTuple):
    a: float
    b: int
"""
RUN = """
from shoal.runtime.compiling import needs_compiler
from tiny_kernel import first
for value, expected in [((2.0, 1.0), 2.0), *{others}]:
    before = needs_compiler(first, (value,))
    assert first(value) == expected
    print(before, end=" ")
print(sum(first.stats.cache_misses.values()))
"""
OURS = "[(__import__('extra_family').Pair(3.0, 1), 3.0)]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny_kernel.py").write_text(KERNEL)
    (tmp_path / "extra_family.py").write_text(FAMILY)
    return tmp_path


@pytest.fixture
def run(run_python: Callable[[str], str]) -> Callable[..., str]:
    return lambda others="[]": run_python(RUN.format(others=others))


def test_a_kernel_compiled_for_a_family_that_another_installation_lacks_does_not_stop_it(
    folder: Path, run: Callable[..., str]
) -> None:
    assert run(OURS) == "True True 2"
    (folder / "extra_family.py").rename(folder / "elsewhere.py")
    assert run() == "False 0"
    (folder / "elsewhere.py").rename(folder / "extra_family.py")
    assert run(OURS) == "False False 0"


def test_tuples_with_other_fields_and_tuples_of_an_edited_file_are_compiled_for_again(
    folder: Path, run: Callable[..., str]
) -> None:
    assert run(OURS) == "True True 2"
    (folder / "extra_family.py").write_text(FAMILY.replace("a: float\n    b: int", "b: float\n    a: int"))
    assert run(OURS) == "False True 1"
    (folder / "extra_family.py").write_text(FAMILY + "EDITED = True\n")
    assert run(OURS) == "False True 1"
    assert run(OURS) == "False False 0"


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_damaged_file_is_compiled_again(folder: Path, suffix: str, run: Callable[..., str]) -> None:
    assert run() == "True 1"
    (file,) = (folder / "cache").rglob(f"*.{suffix}")
    for damaged in (file.read_bytes()[:-20], b"cno_such_module\nName\n."):
        file.write_bytes(damaged)
        assert run().endswith(" 1")
