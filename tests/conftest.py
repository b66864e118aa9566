"""Fixtures that every room of tests shares."""

import os
import shutil
from pathlib import Path

import pytest


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
