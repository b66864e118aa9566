"""The image and docker-compose.yml, on a real engine: skipped, with the reason, where there is none."""

import importlib.metadata
import json
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
    assert done.stdout.count("ok: ") == 18


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
        "docker/bill_of_materials.py",
        "docker-compose.yml",
    ):
        text = (ROOT / name).read_text()
        assert not re.search(r"https?://(?!127\.0\.0\.1|api:8000)", text), name  # the container `api` is not outside
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


def test_the_bill_of_materials_lists_what_is_installed_with_versions() -> None:
    script = ROOT / "docker" / "bill_of_materials.py"
    first, second = (
        subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == second
    bill = json.loads(first)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    listed = {component["name"]: component for component in bill["components"]}
    for package in ("numpy", "fastapi", "pydantic", "redis", "shoal"):
        version = importlib.metadata.version(package)
        assert listed[package]["version"] == version
        assert listed[package]["purl"] == f"pkg:pypi/{package}@{version}"
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert listed["numpy"]["purl"] in needs[listed["shoal"]["purl"]]
    assert {ref for refs in needs.values() for ref in refs} <= needs.keys()


@pytest.mark.skipif(shutil.which("sh") is None, reason="no sh")
@pytest.mark.parametrize(
    ("python", "status", "words"),
    [
        ("case $3 in --version) ;; *) echo 'No known vulnerabilities found' ;; esac", 0, "No known"),
        ("case $3 in --version) ;; *) echo 'Found 1 known vulnerability in 1 package'; exit 1 ;; esac", 1, "Found 1"),
        ("case $3 in --version) ;; *) echo 'ConnectionError: no route'; exit 1 ;; esac", 0, "no route"),
        ("exit 1", 0, "cannot be installed"),
    ],
)
def test_an_audit_fails_for_a_weakness_and_says_where_it_cannot_run(
    tmp_path: Path, python: str, status: int, words: str
) -> None:
    """pip-audit is a stand-in here: its arguments are `-m pip_audit ...`."""
    stand_in = tmp_path / "python"
    stand_in.write_text(f"#!/bin/sh\n{python}\n")
    stand_in.chmod(0o755)
    command = ["sh", str(ROOT / "tests" / "audit.sh"), str(stand_in), str(ROOT / "constraints.txt")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert words in done.stdout + done.stderr


def test_the_build_is_given_every_file_that_it_copies() -> None:
    given = {line[1:] for line in (ROOT / "docker/Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "docker/Dockerfile").read_text(), re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert len(sources) > 5
    assert sources == given
    assert all((ROOT / source).exists() for source in sources)
