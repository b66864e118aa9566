"""With no pass compiled: the service accepts points at once, says so, and learns when its kernels are compiled."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from harness.running_service import RunningService
from harness.web import WEB
from shoal.runtime.cache import cache_root

LONGEST_WAIT_S = 1500.0
"""Kernels are compiled at a low priority, which a busy machine lets wait."""
QUESTION = {"x": "3,1"}
BODY = {"points": np.random.default_rng(0).poisson(2.0, size=(60, 2)).tolist()}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    """A service that has everything compiled but the pass of a stream, which takes longest."""
    for folder in cache_root().iterdir():
        if not folder.name.startswith("sequential.kernel-"):
            shutil.copytree(folder, tmp_path / "cold" / folder.name, ignore=shutil.ignore_patterns("*.tmp.*"))
    service = RunningService(tmp_path / "data")
    service.environment["SHOAL_KERNEL_CACHE"] = str(tmp_path / "cold")
    yield service
    started = [] if service.process is None else psutil.Process(service.process.pid).children(recursive=True)
    service.kill()
    for child in started:  # one that compiles would go on, for the next start of the service
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def test_points_are_accepted_before_any_kernel_is_there(service: RunningService) -> None:
    accepted_cold(service)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_points_that_were_accepted_cold_are_learnt_once_kernels_are_compiled(service: RunningService) -> None:
    """Families of counts compile soonest. Two starts: the second finds what the child of the first has compiled."""
    offset = accepted_cold(service)
    answer_once_applied(service, offset)
    service.terminate(60.0)
    launched(service)
    again = WEB.post(f"{service.url}/ingest", json=BODY, params={"wait": "applied", "timeout": 30})
    assert again.status_code == 200
    assert "shoal_kernels_compiled_total 0.0" in metrics(service), "it has loaded what the child compiled"


def accepted_cold(service: RunningService) -> int:
    """Start the service and send points. Gives their offset once every answer is as it must be without kernels."""
    launched(service)
    ready = WEB.get(f"{service.url}/readyz")
    spec = {"n_features": 2, "family": "poisson", "refinement": None}
    WEB.put(f"{service.url}/streams/default", json=spec).raise_for_status()
    waited = WEB.post(f"{service.url}/ingest", json=BODY, params={"wait": "applied", "timeout": 0.2})
    offset = int(waited.json()["log_offset"])
    asked = WEB.get(f"{service.url}/predict", params=QUESTION)
    own = {**QUESTION, "min_offset": offset, "timeout": 0.2}
    awaited = WEB.get(f"{service.url}/predict", params=own)
    listed = WEB.get(f"{service.url}/components")

    assert ready.status_code == 503
    assert "compiling" in ready.json()["detail"]
    assert waited.status_code == 202, "durable, and not yet applied"
    assert (asked.status_code, asked.json()["type"]) == (409, "/problems/no-points")
    assert (awaited.status_code, awaited.json()["type"]) == (504, "/problems/offset-not-applied")
    assert (listed.status_code, listed.json()["components"]) == (200, [])
    return offset


def launched(service: RunningService) -> None:
    """Start the service and wait until it listens, not until it is ready."""
    service.launch()
    until = time.monotonic() + LONGEST_WAIT_S
    while not service.answers("/healthz"):
        assert time.monotonic() < until, service.tail()
        time.sleep(0.05)


def answer_once_applied(service: RunningService, offset: int) -> None:
    """Ask until the service has learnt the points up to `offset`."""
    until = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < until:
        own = {**QUESTION, "min_offset": offset, "timeout": 5}
        reply = WEB.get(f"{service.url}/predict", params=own)
        if reply.status_code == 200:
            assert reply.json()["log_offset"] >= offset
            return
        assert reply.status_code == 504, reply.text
    raise AssertionError(service.tail())


def metrics(service: RunningService) -> str:
    return WEB.get(f"{service.url}/metrics").text
