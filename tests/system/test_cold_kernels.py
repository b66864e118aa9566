"""After an upgrade, or on another processor, kernels are compiled anew: meanwhile NumPy answers from what was learnt
before, and points are taken.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from harness.running_service import RunningService
from harness.web import WEB

PATIENCE_S = 120.0
QUESTION = {"x": "0.5,0.5"}


def test_what_was_learnt_is_answered_while_kernels_compile(
    start_service: Callable[..., RunningService], tmp_path: Path
) -> None:
    service = start_service()
    body = {"points": np.random.default_rng(0).normal(size=(300, 2)).tolist()}
    offset = WEB.post(f"{service.url}/ingest", json=body).raise_for_status().json()["log_offset"]
    wait = {**QUESTION, "min_offset": offset, "timeout": 60}
    before = WEB.get(f"{service.url}/predict", params=wait, timeout=70.0).raise_for_status()
    service.terminate(60.0)

    service.environment["SHOAL_KERNEL_CACHE"] = str(tmp_path / "cold")
    service.launch()
    answer = first_answer(service)
    ready = WEB.get(f"{service.url}/readyz", timeout=30.0)
    taken = WEB.post(f"{service.url}/ingest", json=body, timeout=30.0)

    assert ready.status_code == 503, "the kernels were compiled before the first answer came"
    assert "compiled" in ready.json()["detail"]
    told, wanted = answer.pop("predictions")[0], before.json()["predictions"][0]
    assert answer == {name: value for name, value in before.json().items() if name != "predictions"}
    assert told["component"] == wanted["component"]
    for name in ("log_density", "novelty"):  # NumPy's last digits are other than the kernel's
        assert told[name] == pytest.approx(wanted[name], rel=1e-9)
    assert taken.status_code == 202


def first_answer(service: RunningService) -> dict[str, Any]:
    """The first prediction that a service gives."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            reply = WEB.get(f"{service.url}/predict", params=QUESTION, timeout=30.0)
        except httpx.TransportError:
            time.sleep(0.05)
            continue
        if reply.status_code == 200:
            answer: dict[str, Any] = reply.json()
            return answer
        time.sleep(0.05)
    pytest.fail(service.tail())
