"""Thousands of schedules of clients, crashes, lost replies, stalls, stolen leases and refinements, each from a number.

A failure prints the number. `SHOAL_SIMULATION_SEED=number` replays it, alone.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from harness.simulation import STREAM, Simulation
from shoal.mixture import StreamSettings
from shoal.sequential import compile_kernels, initial_state
from shoal_service.store import rules
from shoal_service.store.sqlite import log
from shoal_service.streams import load_engines
from shoal_service.streams.learner import checkpoints
from shoal_service.streams.learner.keyed_records import KeyedRecords
from shoal_service.streams.record_index import RecordWriter

ROOT = Path(__file__).resolve().parents[2]
SHORT, LONG = 16, 3000


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compile once, or load, what all schedules use."""
    load_engines()
    compile_kernels(initial_state(StreamSettings(**STREAM)))


def run(seed: int) -> Simulation:
    """One schedule. Its failure says how to replay it."""
    simulation = Simulation(seed)
    try:
        simulation.run()
    except BaseException as error:
        raise AssertionError(f"SHOAL_SIMULATION_SEED={seed} replays this: {type(error).__name__}: {error}") from error
    return simulation


def run_all(numbers: Iterable[int]) -> list[Simulation]:
    """One schedule after another."""
    return [run(seed) for seed in numbers]


def seeds(first: int, n: int) -> range:
    """The numbers of n schedules, or the one to replay."""
    asked = os.environ.get("SHOAL_SIMULATION_SEED")
    return range(first, first + n) if asked is None else range(int(asked), int(asked) + 1)


@pytest.mark.parametrize(
    ("first", "n"), [(0, SHORT), pytest.param(10_000, LONG, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_every_schedule_keeps_every_promise(first: int, n: int) -> None:
    numbers = seeds(first, n)
    crashes = entries = 0
    for simulation in map(run, numbers):
        crashes += simulation.crashes
        entries += len(simulation.entries)
    if len(numbers) == n:
        assert crashes > n / 2, "hardly anything crashed"
        assert entries > 8 * n, "hardly anything was appended"


def test_a_number_gives_the_same_schedule_in_another_process() -> None:
    code = "from harness.simulation import Simulation; print(*[Simulation(seed).run() for seed in (3,)])"
    paths = [str(ROOT / folder) for folder in ("core", "service", "tests")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "7"}
    there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.split() == [Simulation(seed).run() for seed in (3,)]


# -- the simulation itself: it must see a broken rule


def accept_any_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "check_epoch", lambda name, epoch, newest: None)


def forget_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No idempotency key is known when it comes again."""
    append = log.append

    def forgetful(tx: Any, *, entry: Any, **rest: Any) -> Any:
        return append(tx, entry=entry._replace(idempotency=None), **rest)

    monkeypatch.setattr(log, "append", forgetful)


def learn_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint names the entry before the last one that its state includes."""
    made = checkpoints.checkpoint_of

    def early(working: Any) -> Any:
        checkpoint = made(working)
        return checkpoint._replace(seq=max(0, checkpoint.seq - 1))

    monkeypatch.setattr(checkpoints, "checkpoint_of", early)


def trim_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries of the window are not kept."""
    made = checkpoints.checkpoint_of
    monkeypatch.setattr(checkpoints, "checkpoint_of", lambda working: made(working)._replace(window_seq=working.seq))


def lose_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint does not wait for the records that it includes."""
    monkeypatch.setattr(KeyedRecords, "flush", lambda self, working: None)


def count_on_a_write_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint does not wait for records that are being written."""
    monkeypatch.setattr(RecordWriter, "flush", RecordWriter.begin_flush)


BROKEN = {
    accept_any_epoch: (17, "by epoch [0-9]+, [0-9]+ leads"),
    forget_answers: (0, "in the log twice|was acknowledged|is taken for"),
    learn_twice: (0, "two states at entry|not those of the log"),
    trim_the_window: (3, "the log holds"),
    lose_records: (3, "records .* expected"),
    count_on_a_write_under_way: (577, "records .* expected"),
}
"""How a rule is broken, the number that shows it, and what the simulation then says. If after a change of the schedules
another number of the short form shows it, the test is only slower. One number in 300 shows the last one."""


@pytest.mark.parametrize("break_rule", BROKEN, ids=lambda rule: rule.__name__)
def test_a_broken_rule_is_seen(break_rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the schedule that is known to show it, or by one that the short form runs."""
    first, words = BROKEN[break_rule]
    break_rule(monkeypatch)
    with pytest.raises(AssertionError, match=f"replays this: .*({words})"):
        run_all([first, *range(SHORT)])
