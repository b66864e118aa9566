"""Fixtures that every room of tests shares."""

import os
import shutil
from pathlib import Path

import pytest

LONG_FILES = ("tests/system/", "tests/statistical/")
"""Rooms whose files hold few tests, but long ones."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put rooms of long files first. Else one process runs the last of them alone, after all others are done."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG_FILES))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets; tests that need it are skipped where it is absent."""
    folder = os.environ.get("SHOAL_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SHOAL_DATA does not name the folder of real data sets")
    return Path(folder)


@pytest.fixture(scope="session")
def redis_binary() -> str:
    """Path of a redis-server; absent, a skip that says what to run, or a failure under SHOAL_REQUIRE_REDIS=1."""
    found = shutil.which("redis-server")
    if found is None:
        hint = "no redis-server on PATH; on Debian, as root: apt-get install redis-server"
        if os.environ.get("SHOAL_REQUIRE_REDIS") == "1":
            pytest.fail(hint)
        pytest.skip(hint)
    return found
