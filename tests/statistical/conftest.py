"""The benchmark's own workloads, so that what is promised and what is measured are the same streams."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def quality() -> Iterator[ModuleType]:
    """`benchmarks/stream_quality.py` as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("stream_quality")
