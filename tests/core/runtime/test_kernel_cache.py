"""Where compiled kernels are kept: a folder for each module, named by the sources that its kernels depend on."""

from pathlib import Path

import pytest

import shoal
from shoal.runtime import cache
from shoal.runtime.kernels import kernel

PACKAGE = Path(shoal.__file__).parent


def names(path: str) -> set[str]:
    return {source.relative_to(PACKAGE).as_posix() for source in cache.sources_of(PACKAGE / path)}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package in place of shoal: a imports b, b imports a name of the package c, and d stands alone."""
    for name, text in {
        "a_kernel.py": "from shoal.b_kernel import (\n    step,  # why\n    other,\n)\n",
        "b_kernel.py": "if True:\n    from shoal.c import inner as known\n",
        "c/__init__.py": "",
        "c/inner.py": "import numba\nimport shoal.a_kernel  # a circle\nfrom shoal.plain import Pair\n",
        "d_kernel.py": "import os\n",
        "plain.py": "def unused():\n    pass\n\n\nclass Pair(NamedTuple):\n    a: int\n    b: int\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(cache, "_PACKAGE", tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    for function in (cache._read, cache._module_file, cache.digest_of):
        function.cache_clear()


def edit(path: Path, before: str, after: str) -> None:
    path.write_text(path.read_text().replace(before, after))


def digests(package: Path) -> dict[str, str]:
    forget()
    return {name: cache.digest_of(package / f"{name}_kernel.py") for name in "abd"}


def test_an_edit_changes_the_folder_of_what_imports_it_and_of_nothing_else(package: Path) -> None:
    before = digests(package)
    assert digests(package) == before
    edit(package / "plain.py", "unused", "renamed")
    assert digests(package) == before, "plain Python is compiled into no kernel"
    edit(package / "c" / "inner.py", "a circle", "a circle indeed")
    after = digests(package)
    assert {name for name in before if before[name] != after[name]} == {"a", "b"}
    edit(package / "plain.py", "a: int\n    b: int", "b: int\n    a: int")
    last = digests(package)
    assert {name for name in after if last[name] != after[name]} == {"a", "b"}, "a field's place is compiled in"
    edit(package / "d_kernel.py", "import os", "import numba")
    assert {name for name in last if digests(package)[name] != last[name]} == {"d"}


def test_the_one_pass_kernel_depends_on_what_it_is_compiled_from() -> None:
    """A family's overloads are not among it: they count where the arguments have the family's types."""
    found = names("sequential/kernel.py")
    assert found >= {"runtime/kernels.py", "families/bounds_kernel.py", "kernels/math.py"}
    assert not found & {"runtime/cache.py", "sequential/learn.py", "families/gaussian/kernel.py"}, (
        "overloads go by type"
    )


def test_the_folder_does_not_depend_on_where_the_package_is(
    package: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digests(package)
    other = tmp_path_factory.mktemp("elsewhere") / "shoal"
    package.rename(other)
    monkeypatch.setattr(cache, "_PACKAGE", other)
    assert digests(other) == before
    other.rename(package)


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_KERNEL_CACHE", str(tmp_path))
    assert cache.folder_of(PACKAGE / "kernels" / "math.py").parent == tmp_path


def test_without_a_folder_to_write_kernels_work_uncached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SHOAL_KERNEL_CACHE", str(tmp_path / "file"))
    double = kernel()(lambda x: 2 * x)
    assert double(21) == 42
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_other_users_of_numba_keep_their_cache_folder() -> None:
    import numba

    assert "shoal" not in numba.config.CACHE_DIR
