"""The wheel as a stranger gets it: built, installed into an empty environment, run there."""

import os
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from harness.short_form import longer

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]

USE_THE_LIBRARY = """
import importlib.util, numpy as np, shoal
assert importlib.util.find_spec("fastapi") is None, "the library alone must not bring the service's packages"
x = np.random.default_rng(0).normal(size=(600, 2)) + np.repeat([[0.0, 0.0], [20.0, 0.0]], 300, axis=0)
model = shoal.StreamingDPMixture().partial_fit(x[::2])
labels = model.predict(x)
assert labels[0] != labels[-1]
print(shoal.__version__, shoal.__file__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """What the command printed; its errors are in the failure's message."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # or it finds the checkout
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=own, capture_output=True, text=True, timeout=570)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def link_what_it_asks_for(site_packages: Path) -> None:
    """Link the packages that the wheel installed there asks for, and those that they ask for, from this environment."""
    (wheel,) = metadata.distributions(name="shoal", path=[str(site_packages)])
    waiting, found = list(wheel.requires or ()), set[str]()
    while waiting:
        asked = Requirement(waiting.pop())
        if asked.name in found or (asked.marker is not None and not asked.marker.evaluate({"extra": ""})):
            continue
        found.add(asked.name)
        package = metadata.distribution(asked.name)
        assert asked.specifier.contains(package.version)
        waiting += package.requires or ()
        for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            (site_packages / top).symlink_to(Path(str(package.locate_file(top))))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, cwd=ROOT)
    (built,) = out.glob("shoal-*.whl")
    return built


def test_the_wheel_holds_the_two_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"shoal", "shoal_service"}
    assert {"shoal/py.typed", "shoal_service/py.typed"} <= set(names)
    static = ROOT / "service" / "shoal_service" / "static"
    pages = {f"shoal_service/static/{path.relative_to(static)}" for path in static.rglob("*") if path.is_file()}
    assert pages <= set(names)


@pytest.mark.parametrize("from_the_index", [False, longer(True)])
def test_the_wheel_runs_in_an_empty_environment(wheel: Path, tmp_path: Path, from_the_index: bool) -> None:
    """Beside what it asks for: those packages of this environment, or the ones that pip finds for it."""
    venv.create(tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile")
    if from_the_index:
        run(*pip, "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    else:
        run(*pip, "--no-deps", wheel, cwd=tmp_path)
        (own,) = (tmp_path / "env").glob("lib/python*/site-packages")
        link_what_it_asks_for(own)
    assert str(tmp_path) in run(python, "-W", "error", "-c", USE_THE_LIBRARY, cwd=tmp_path)
    refused = subprocess.run(
        [tmp_path / "env" / "bin" / "shoal", "serve"], capture_output=True, text=True, cwd=tmp_path
    )
    assert refused.returncode != 0
    assert "shoal[service]" in refused.stderr, "the command line must say what is missing"
