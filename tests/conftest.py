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
    "tests/statistical/test_stream_quality.py",
    "tests/service/routes/test_configured_sources.py",
    "tests/browser/test_views.py",
    "tests/system/test_documents.py",
    "tests/service/cli/test_connect_kafka.py",
    "tests/service/streams/refinement/test_worker.py",
    "tests/system/test_kill_points.py",
    "tests/service/store/redis_store/test_redis_sentinel.py",
    "tests/system/test_examples.py",
    "tests/browser/test_sources.py",
    "tests/system/test_redis_faults.py",
    "tests/system/test_back_up.py",
    "tests/browser/test_course.py",
    "tests/system/test_readme.py",
    "tests/system/test_redis_cut_off.py",
    "tests/system/test_kill_connect.py",
    "tests/core/estimators/test_batch_contract.py",
    "tests/contract/test_families.py",
    "tests/system/test_kill_refinement.py",
    "tests/browser/test_access.py",
    "tests/system/test_redis_roles.py",
    "tests/service/streams/test_shared.py",
    "tests/service/routes/test_webhooks.py",
    "tests/simulation/test_simulation.py",
    "tests/service/cli/test_connect_redis.py",
    "tests/system/test_redis_refining.py",
    "tests/browser/test_points.py",
    "tests/service/test_app.py",
    "tests/service/cli/test_text_columns.py",
    "tests/service/streams/test_leases.py",
    "tests/core/offline/test_fits_of_datasets.py",
    "tests/system/test_shared_pieces.py",
    "tests/system/test_real_streams.py",
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
    """Put long files first. Else one process runs the last of them alone, after all others are done.

    Of the others, files of all rooms take turns: those of the service wait a lot, and those of the library compute.
    """
    files = dict.fromkeys(item.nodeid.partition("::")[0] for item in items)
    rooms: dict[str, list[str]] = {}
    for file in files:
        rooms.setdefault("/".join(file.split("/")[:2]), []).append(file)
    share = {file: (i + 0.5) / len(room) for room in rooms.values() for i, file in enumerate(room)}
    first = {file: place for place, file in enumerate(LONG_FILES)}

    def place(item: pytest.Item) -> tuple[float, float]:
        file = item.nodeid.partition("::")[0]
        rank = first.get(file, len(LONG_FILES) + (not file.startswith(LONG_ROOMS)))
        return rank, share[file]

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
