"""Fixtures of the system tests: real processes on loopback."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.running_service import RunningService


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[Callable[..., RunningService]]:
    """Start services over folders of their own; whatever still runs at the end is ended."""
    started: list[RunningService] = []

    def start(folder: str = "data", **settings: object) -> RunningService:
        service = RunningService(tmp_path / folder, settings=settings)
        started.append(service)
        service.start()
        return service

    yield start
    for service in started:
        service.kill()
