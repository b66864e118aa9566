"""Processes of their own with Numba imported and its compiler loaded already, which takes most of a second."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_PARENT = """
import json, os, sys
import numba.core.event
import shoal.runtime.compiling, shoal.runtime.kernels

numba.njit(lambda x: x + x)(1)
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, path in ((1, asked["out"]), (2, asked["err"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.environ.update(asked["environment"])
        exec(asked["code"], {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Forks one child for each line, and tells the exit code of each. It compiles one function, as the first in a process
takes longest, but none that a child has, and caches none."""


@pytest.fixture(scope="session")
def _parent() -> Iterator["subprocess.Popen[str]"]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


@pytest.fixture
def run_python(_parent: "subprocess.Popen[str]", tmp_path: Path) -> Callable[[str], str]:
    """`run_python(code)` runs code in a new process and gives what it prints. Modules are also found in `tmp_path`, and
    compiled kernels are kept in the folder `cache` there."""

    def run(code: str) -> str:
        out, err = tmp_path / "out", tmp_path / "err"
        environment = {"SHOAL_KERNEL_CACHE": str(tmp_path / "cache")}
        code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"
        asked = {"code": code, "environment": environment, "out": str(out), "err": str(err)}
        assert _parent.stdin is not None
        assert _parent.stdout is not None
        _parent.stdin.write(json.dumps(asked) + "\n")
        _parent.stdin.flush()
        assert _parent.stdout.readline() == "0\n", err.read_text()
        return out.read_text().strip()

    return run
