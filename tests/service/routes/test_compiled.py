"""What was compiled is counted, from the moment that warming begins."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shoal.runtime.kernels import kernel

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]


async def test_metrics_count_what_this_process_compiles(
    running: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(text: str) -> float:
        name = "shoal_kernels_compiled_total "
        return next(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))

    for _ in range(1200):
        if (await running.http.get("/readyz")).status_code == 200:
            break
        await asyncio.sleep(0.05)
    before = counted((await running.http.get("/metrics")).text)

    monkeypatch.setenv("SHOAL_KERNEL_CACHE", str(tmp_path))  # an earlier run's cache would hold the function

    def triple(x: float) -> float:
        return x * 3

    assert kernel()(triple)(2.0) == 6.0
    assert counted((await running.http.get("/metrics")).text) == before + 1
    assert any(line["event"] == "warm" and line["compiled"] <= before for line in running.log())
