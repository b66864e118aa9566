"""Fixtures that every room of tests shares."""

import gc
import os
import shutil
import signal
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from harness.preforked import RUN
from harness.short_form import mark_longer_cases

os.environ.setdefault(RUN, str(os.getpid()))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    # Tests in the background of a script ignore the signal, and so would every process that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG_FILES = (
    "tests/statistical/sampling/test_sbc.py",
    "tests/system/test_redis_faults.py",
    "tests/statistical/sampling/test_geweke.py",
    "tests/system/test_redis_roles.py",
    "tests/service/routes/test_configured_sources.py",
    "tests/statistical/test_memory.py",
    "tests/system/test_kill.py",
    "tests/system/test_papers.py",
    "tests/system/test_cold_kernels.py",
    "tests/system/test_kill_connect.py",
    "tests/system/test_examples.py",
    "tests/system/test_shared_pieces.py",
    "tests/system/test_kill_refinement.py",
    "tests/system/test_documents.py",
    "tests/system/test_redis_refining.py",
    "tests/system/test_real_streams.py",
    "tests/system/test_redis_leases.py",
    "tests/simulation/test_simulation.py",
    "tests/service/streams/refinement/test_worker.py",
    "tests/service/test_app.py",
)
"""Files that take longest. Those that compute and those that wait take turns, so that no processor rests."""
LONG_ROOMS = ("tests/system/", "tests/statistical/", "tests/simulation/", "tests/browser/")
"""Rooms whose files hold few tests, but long ones."""


_unfrozen = threading.Event()
"""Set where `gc.unfreeze` was called. `gc.get_freeze_count` would say so too, but visits every frozen object: 0.1 s of
processor time after each of 11,000 tests, a third of them all."""


def pytest_configure() -> None:
    unfreeze = gc.unfreeze

    def noted_unfreeze() -> None:
        unfreeze()
        _unfrozen.set()

    gc.unfreeze = noted_unfreeze


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    """Mark the cases of each function that are not in its short form as slow."""
    made = yield
    if isinstance(made, list):
        mark_longer_cases(made)
    return made


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collected tests, some half a million objects, out of every later search for cycles."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_runtest_teardown() -> None:
    """Keep the collected tests out again after a test that calls `gc.unfreeze`, as the end of a connector does."""
    if _unfrozen.is_set():
        _unfrozen.clear()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first. Else one process runs the last of them alone, after all others are done."""
    places = {file: place for place, file in enumerate(LONG_FILES)}

    def place(item: pytest.Item) -> int:
        later = len(LONG_FILES) + (not item.nodeid.startswith(LONG_ROOMS))
        return places.get(item.nodeid.partition("::")[0], later)

    items.sort(key=place)


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
