"""A process that serves computes with one BLAS thread from the learner's first entry on, whatever started it."""

import json
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from harness.short_form import short_form
from shoal.mixture import StreamSettings
from shoal_service.blas import ONE_THREAD, pin_blas
from shoal_service.store import EntryKind, NewEntry, SqliteStore
from shoal_service.wire import Points, to_log

WATCH = """
import json, os, sys, threading
run = threading.Thread.run

def watched(self):
    if self.name.startswith("learner-"):
        from shoal_service.streams.learner import apply, thread
        apply_inplace = thread.apply_inplace

        def counted(working, entry, *others):
            from threadpoolctl import threadpool_info
            def threads():
                return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
            before = threads()
            result = apply_inplace(working, entry, *others)
            print("THREADS " + json.dumps([before, threads()]), flush=True)
            os._exit(0)
        thread.apply_inplace = counted
    run(self)

threading.Thread.run = watched
"""
BEGIN = {
    "the script": "from shoal_service.entry import main; sys.argv[1:] = ['serve']; main()",
    "NumPy first": "import numpy; from shoal_service.app import serve; "
    "from shoal_service.settings import load_settings; serve(load_settings())",
}


@pytest.mark.parametrize("begin", short_form(BEGIN, ("the script",)))
def test_the_learners_first_entry_is_applied_with_one_blas_thread(tmp_path: Path, begin: str) -> None:
    store = SqliteStore(tmp_path)
    incarnation, settings = str(uuid.uuid4()), StreamSettings(n_features=2).to_json().encode()
    store.create_stream("s", incarnation, settings, max_streams=1)
    payload = to_log(Points(np.random.default_rng(0).normal(size=(50, 2))))
    store.append("s", incarnation, NewEntry(EntryKind.BATCH, payload, 50), budget_bytes=1 << 20).result(120)
    store.close()
    environment = {name: value for name, value in os.environ.items() if name not in ONE_THREAD}
    paths = os.pathsep.join(path for path in sys.path if path)
    environment |= {"PYTHONPATH": paths, "SHOAL_DATA_DIR": str(tmp_path), "SHOAL_PORT": "0"}
    found = subprocess.run(
        [sys.executable, "-c", WATCH + BEGIN[begin]], env=environment, capture_output=True, text=True, timeout=120
    )
    said = [line for line in found.stdout.splitlines() if line.startswith("THREADS ")]
    assert said, found.stderr
    before, after = json.loads(said[0].removeprefix("THREADS "))
    assert before
    assert set(before) | set(after) == {1}


def test_a_thread_that_is_not_the_first_to_set_it_pins_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "1")  # so that what is set here is taken back
    with threadpool_limits(2, user_api="blas"):  # from here on threadpoolctl heeds this thread alone
        thread = threading.Thread(target=pin_blas)
        thread.start()
        thread.join()
        assert {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"} == {1}
