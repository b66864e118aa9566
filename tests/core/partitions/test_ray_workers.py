"""Partitions on a Ray cluster: the same bits, with a killed worker, and from a saved state after Ray was killed."""

import gc
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal.partitions.workers
from harness.ray_stream import STEP, STEPS, model_on, rows
from shoal import StreamingDPMixture
from shoal.runtime.ray_executor import Ray

pytestmark = pytest.mark.slow
PYTHONPATH = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *sys.path])


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    """A cluster of this process, which the tests share: it takes many seconds to start."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed; pip install 'shoal[ray]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PYTHONPATH)  # workers import this module
        with Ray(workers=2).started():
            yield
    with warnings.catch_warnings():  # Ray leaves its processes to the interpreter, which warns of them
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The state that this process learns alone."""
    return learnt(model_on(None), tmp_path_factory.mktemp("alone"))


def learnt(model: StreamingDPMixture, folder: Path, first: int = 0) -> bytes:
    """The state after the calls from `first` on."""
    for x in np.split(rows(), STEPS)[first:]:
        model.partial_fit(x)
    model.save(folder / "model")
    return (folder / "model").read_bytes()


computed = shoal.partitions.workers._computed


def killed_once(mark: str, common: Any, sent: Any) -> Any:
    """The process that computes the first piece of the third call is killed when it has done so."""
    result = computed(common, sent)
    if sent.low >= 2 * STEP and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return result


def test_a_cluster_gives_the_bits_of_this_process(expected: bytes, tmp_path: Path) -> None:
    assert learnt(model_on("ray"), tmp_path) == expected


def test_a_killed_worker_costs_nothing_but_time(
    expected: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "killed"
    monkeypatch.setattr(shoal.partitions.workers, "_computed", partial(killed_once, str(mark)))
    assert learnt(model_on("ray"), tmp_path) == expected
    assert mark.exists()


@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_what_was_saved_before_ray_was_killed_goes_on_with_the_same_bits(
    name: str, expected: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "saved"
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-m", "harness.ray_stream", str(file), name]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    done = ended.stdout.count("saved ")
    assert done >= STEPS // 2, ended.stderr
    assert ended.returncode == 0 or done < STEPS  # it learnt all, or Ray ended it
    model = StreamingDPMixture.load(file)
    assert round(float(model.masses_.sum())) == done * STEP  # each row is there once
    assert learnt(model.set_params(executor="ray", n_jobs=2), tmp_path, done) == expected
