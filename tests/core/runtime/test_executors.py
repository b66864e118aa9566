"""The map over items by workers: order, lost workers, errors."""

import os
import signal
import struct
import sys
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import SettingError, WorkersLostError
from shoal.runtime import executors
from shoal.runtime.executors import InProcess, Processes, executor_of, in_order


class LosingPool:
    """Computes at once, but loses the tasks whose numbers of submission are given, and all that wait with them.

    silent: the futures of lost tasks never say so.
    """

    n_workers = 2

    def __init__(self, losses: set[int], *, silent: bool = False) -> None:
        self.losses, self.silent, self.count, self.renewed, self.broken = losses, silent, 0, 0, False
        self.computed: list[int] = []

    def submit(self, function: Any, *arguments: Any) -> "Future[Any]":
        if self.broken:
            raise BrokenExecutor("broken before")
        future: Future[Any] = Future()
        self.broken = self.count in self.losses
        self.count += 1
        if self.broken and self.silent:
            pass
        elif self.broken:
            future.set_exception(BrokenExecutor("a worker was lost"))
        else:
            self.computed.append(arguments[1])
            future.set_result(function(*arguments))
        return future

    def shared(self, value: Any) -> Any:
        return value

    def lost(self) -> bool:
        return self.broken

    def renew(self) -> None:
        self.broken, self.renewed = False, self.renewed + 1

    def shutdown(self) -> None:
        pass


def scaled(factor: int, item: int) -> int:
    if item < 0:
        raise ValueError(f"{item} is negative")
    return factor * item


@pytest.mark.parametrize("silent", [False, True])
def test_results_come_in_the_order_of_the_items_through_losses(silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_LOOK_S", 0.01)
    pool = LosingPool({1, 6, 7}, silent=silent)
    assert list(in_order(pool, scaled, 3, range(10))) == [3 * i for i in range(10)]
    assert pool.renewed == 3
    assert sorted(pool.computed) == list(range(10))  # what was finished is not computed again


def squared_unless_first(marker: str, item: int) -> int:
    """The square of an item. The first process that is asked for item 1 dies while it writes a result."""
    if item == 1:
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return item * item
        frame = sys._getframe()
        while "result_queue" not in frame.f_locals:  # that of the pool, in its loop of the worker
            assert frame.f_back is not None
            frame = frame.f_back
        results = frame.f_locals["result_queue"]
        os.write(results._writer.fileno(), struct.pack("!i", 1_000) + b"a part")
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


def test_a_worker_that_is_killed_while_it_writes_a_result_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool of the standard library waits for the rest of the result for ever."""
    monkeypatch.setattr(executors, "_LOOK_S", 0.2)
    with Processes(1).started() as pool:
        marker = str(tmp_path / "died")
        assert list(in_order(pool, squared_unless_first, marker, range(6))) == [i * i for i in range(6)]
    assert Path(marker).exists()


def test_losses_without_any_result_end_the_map() -> None:
    pool = LosingPool(set(range(2, 100)))
    results = in_order(pool, scaled, 1, range(10))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(WorkersLostError, match="6 times in a row"):
        next(results)


def test_an_error_of_the_function_ends_the_map() -> None:
    with InProcess().started() as pool:
        results = in_order(pool, scaled, 2, [1, 2, -3, 4])
        assert [next(results), next(results)] == [2, 4]
        with pytest.raises(ValueError, match="-3 is negative"):
            next(results)


def test_names_of_executors() -> None:
    assert executor_of(None) == executor_of("in-process") == InProcess()
    assert executor_of("processes", 3) == executor_of(Processes(3)) == Processes(3)
    with pytest.raises(SettingError, match="address is 'auto', which is for executor 'ray'"):
        executor_of("processes", address="auto")


def test_a_pool_of_processes_says_when_it_has_lost_one() -> None:
    with Processes(1).started() as pool:
        assert pool.submit(int).result() == 0
        assert not pool.lost()
        with pytest.raises(BrokenExecutor):
            pool.submit(os._exit, 1).result()
        pool.renew()
        assert not pool.lost()
        assert pool.submit(int, 7).result() == 7
