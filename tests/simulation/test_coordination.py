"""The simulation of coordination, against cases that can be computed by hand."""

import importlib
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def coordination() -> Iterator[ModuleType]:
    """`benchmarks/coordination.py` as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("coordination")


def costs(module: ModuleType, **given: float) -> Any:
    """Costs, zero unless given."""
    return module.Costs(**{name: given.get(name, 0.0) for name in module.Costs._fields})


def test_a_queue_of_random_arrivals_waits_as_long_as_theory_says(coordination: ModuleType) -> None:
    """M/D/1: the mean wait is load * service / (2 (1 - load)). The deviation of its mean here is below .03 s."""
    rng, clock = random.Random(0), coordination.Clock()
    queue, load, n = coordination.Queue(clock), 0.7, 200_000

    def arrive() -> None:
        queue.use(1.0)
        clock.after(rng.expovariate(load), arrive)

    arrive()
    clock.run(n / load)
    assert queue.waited_s / queue.n == pytest.approx(load / (2 * (1 - load)), abs=0.1)


def test_writes_of_one_turn_share_a_sync_and_reads_wait_for_it(coordination: ModuleType) -> None:
    clock = coordination.Clock()
    server = coordination.Server(clock, 1.0)
    ended: dict[str, float] = {}

    def serve(name: str, durable: bool, slices: int = 1) -> None:
        server.serve(0.25, slices, durable, lambda: ended.update({name: clock.now}))

    serve("first", False)  # it is served alone: a turn of .25
    for name in ("a", "b"):
        serve(name, True)
    serve("read", False)
    serve("long", False, 5)  # in five slices of .05, of which the first comes in this turn
    clock.run(10.0)
    turn = 0.25 + 3 * 0.25 + 0.05 + 1.0
    assert ended == pytest.approx({"first": 0.25, "a": turn, "b": turn, "read": turn, "long": turn + 4 * 0.05})
    assert (server.busy_s, server.synced_s) == pytest.approx((1.25, 1.0))


def test_the_lag_of_a_batch_that_meets_nobody_is_the_sum_of_its_ways(coordination: ModuleType) -> None:
    """With costs of nothing but the network and learning: six ways there and back, the bytes, and the learning."""
    fleet = coordination.Fleet(1, 1, batches_s=0.01, rows=100, row_us=10.0, batch_us=2_000.0)
    network = coordination.Network(latency_s=0.01, bytes_s=1e6)
    found = coordination.simulated(fleet, costs(coordination), 500.0, network)
    batch = coordination.batch_of(fleet)
    exchanges = [batch.append, *batch.read, *batch.shown]
    n_bytes = sum(each.bytes_in + each.bytes_out for each in exchanges)
    expected = 2 * 0.01 * len(exchanges) + n_bytes / 1e6 + (100 * 10.0 + 2_000.0) / 1e6
    assert found["lag_ms"] == pytest.approx(1e3 * expected, rel=0.05)  # looks of the learner use the link, too
    assert found["unlearnt"] == 0


def test_what_is_sent_is_what_the_closed_form_says(coordination: ModuleType) -> None:
    """While nothing waits. Batches come at random: 200 of them have a deviation of .07."""
    fleet, given = coordination.Fleet(3, 30, batches_s=5.0), costs(coordination, exchange=5.0, command=1.0)
    load, found = coordination.load_of(fleet, given), coordination.simulated(fleet, given, 40.0)
    for name in ("exchanges_s", "commands_s", "bytes_s", "server"):
        assert found[name] == pytest.approx(getattr(load, name.removesuffix("_s")), rel=0.1), name


def test_two_learners_share_a_round_as_can_be_added_up(coordination: ModuleType) -> None:
    """Two pieces of 10 ms: one at home, the other away, and 2 ms for the rest of the round. Messages cost nothing."""
    pieces = coordination.Pieces(1, 2, 1_000, 1_000, 10_000.0, 0.0, 0.0, 2_000.0)
    network = coordination.Network(latency_s=1e-5, bytes_s=1e12)
    alone, both = (
        coordination.simulated(coordination.Fleet(n, 1, pieces=pieces), costs(coordination), 2.0, network)
        for n in (1, 2)
    )
    assert alone["rounds_s"] == pytest.approx(1 / 0.022, rel=0.02)
    assert both["rounds_s"] == pytest.approx(1 / 0.012, rel=0.02)
    assert both["answered_s"] == pytest.approx(both["rounds_s"], rel=0.02)


@pytest.mark.parametrize("learners", [2, 7])
def test_a_piece_is_sent_with_as_many_messages_as_are_counted(coordination: ModuleType, learners: int) -> None:
    pieces = coordination.Pieces(1, 2, 5_000, 3_000, 50_000.0, 0.0, 0.0, 0.0)
    given = costs(coordination)
    busy, idle = (
        coordination.simulated(coordination.Fleet(learners, 1, pieces=each), given, 4.0) for each in (pieces, None)
    )
    commands, messages, n_bytes = coordination.of_a_piece(learners, learners - 1, 5_000, 3_000)
    for name, expected in (("commands_s", commands), ("messages_s", messages), ("bytes_s", n_bytes)):
        assert (busy[name] - idle[name]) / busy["answered_s"] == pytest.approx(expected, rel=0.06), name
