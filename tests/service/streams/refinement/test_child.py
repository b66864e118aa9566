"""The child process that refines, alone."""

import subprocess
import sys

from harness.waiting import LONGEST_WAIT_S


def test_a_child_whose_parent_no_longer_reads_ends_without_a_traceback() -> None:
    """As when the parent is killed: the answer finds no reader before the end of the requests is seen."""
    command = [sys.executable, "-m", "shoal_service.streams.refinement.child"]
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
