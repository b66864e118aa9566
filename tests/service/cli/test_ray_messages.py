"""What Ray prints during `shoal fit`, and an end that it gives to the process."""

import subprocess
import sys

import pytest

SCRIPT = """
import os
from shoal_service.cli.ray_messages import beside_ray
with beside_ray():
    print("a worker died", flush=True)
    {inside}
print("result")
"""


@pytest.mark.parametrize(
    ("inside", "status", "out", "explained"),
    [("pass", 0, "result\n", False), ("os._exit(1)", 1, "", True), ("raise SystemExit(4)", 4, "", False)],
)
def test_messages_of_ray_stay_out_of_results_and_a_sudden_end_is_explained(
    inside: str, status: int, out: str, explained: bool
) -> None:
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(inside=inside)], capture_output=True, text=True, timeout=100, check=False
    )
    assert (said.returncode, said.stdout) == (status, out)
    assert "a worker died" in said.stderr
    assert ("Run the command again" in said.stderr) == explained
