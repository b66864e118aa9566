"""The child process that refines, alone."""

import subprocess
import sys

from harness.waiting import LONGEST_WAIT_S


def test_a_child_whose_parent_no_longer_reads_ends_without_a_traceback() -> None:
    """As when the parent is killed: the answer finds no reader before the end of the requests is seen."""
    command = [sys.executable, "-m", "shoal_service.refining.child"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        child.stdin.write(b"{}\n")
        child.stdin.flush()
        assert child.wait(LONGEST_WAIT_S) == 0
        assert child.stderr.read() == b""


def test_a_child_loads_neither_web_framework_nor_settings_nor_store() -> None:
    """It did: half a second of CPU time and 25 MiB for each child."""
    needless = {"pydantic", "fastapi", "httpx", "redis", "rich", "shoal_service.settings", "shoal_service.store"}
    program = f"import sys, shoal_service.refining.child; print(sorted({needless} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
