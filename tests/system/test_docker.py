"""The image and docker-compose.yml, on a real engine: skipped, with the reason, where there is none."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
TRY = ROOT / "docker" / "try_compose.py"
NO_ENGINE = 77


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_compose_keeps_its_promises() -> None:
    done = subprocess.run([sys.executable, str(TRY)], capture_output=True, text=True, timeout=3500)
    if done.returncode == NO_ENGINE:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok: ") == 17


def test_without_an_engine_the_trial_says_why_it_is_skipped(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(TRY)], capture_output=True, text=True, env={"PATH": str(tmp_path)})
    assert done.returncode == NO_ENGINE
    assert done.stderr == "skipped: docker is not on PATH\n"


def test_an_engine_that_does_not_run_is_named_as_the_reason(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    docker.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run([sys.executable, str(TRY)], capture_output=True, text=True, env={"PATH": path})
    assert (done.returncode, done.stdout) == (NO_ENGINE, "")
    assert "Cannot connect" in done.stderr


def test_the_image_names_no_registry_and_no_address() -> None:
    for name in (
        "docker/Dockerfile",
        "docker/entrypoint.sh",
        "docker/compile_kernels.sh",
        "docker/compile_kernels.py",
        "docker-compose.yml",
    ):
        text = (ROOT / name).read_text()
        assert not re.search(r"https?://(?!127\.0\.0\.1)", text), name
        assert "# syntax=" not in text


@pytest.mark.skipif(shutil.which("sh") is None, reason="no sh")
@pytest.mark.parametrize(
    ("given", "name"),
    [({}, None), ({"NUMBA_CPU_NAME": "generic"}, "generic"), ({"NUMBA_CPU_NAME": "x86-64-v3"}, "x86-64-v3")],
)
def test_the_entrypoint_chooses_kernels_that_the_processor_can_run(given: dict[str, str], name: str | None) -> None:
    script = ROOT / "docker" / "entrypoint.sh"
    shown = subprocess.run(
        ["sh", str(script), "-c", "echo $NUMBA_CPU_NAME:$NUMBA_CPU_FEATURES"],
        env={"PATH": os.environ["PATH"], "SHOAL_COMMAND": "sh", **given},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    chosen, _, features = shown.partition(":")
    assert chosen == (name or chosen)
    assert chosen in ("generic", "x86-64-v3")
    assert (features == "") == (chosen == "generic")
    cpuinfo = Path("/proc/cpuinfo")
    if not given and cpuinfo.exists() and " avx2 " not in cpuinfo.read_text():
        assert chosen == "generic"
