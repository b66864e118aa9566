"""Calls at the same time: their results in order, and their errors once none of them works any more."""

import threading

import pytest

from shoal.runtime import threads
from shoal.runtime.threads import run_in_threads


def test_results_come_in_order_from_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "n_cores", lambda: 4)
    monkeypatch.setattr(threads, "_pool", None)
    meeting = threading.Barrier(3)

    def task(i: int) -> tuple[int, int]:
        if i < 3:
            meeting.wait(60.0)  # three at once, or it breaks
        return i, threading.get_ident()

    results = run_in_threads([lambda i=i: task(i) for i in range(6)])  # type: ignore[misc]
    assert [i for i, _ in results] == list(range(6))
    assert results[0][1] == threading.get_ident()
    assert len({thread for _, thread in results[:3]}) == 3


def test_an_error_is_raised_after_the_tasks_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "n_cores", lambda: 2)
    monkeypatch.setattr(threads, "_pool", None)
    begun, done = threading.Event(), threading.Event()

    def fails() -> None:
        begun.wait(60.0)
        raise ValueError("no")

    def slow() -> None:
        begun.set()
        done.set()

    with pytest.raises(ValueError, match="no"):
        run_in_threads([fails, slow])
    assert done.is_set()
