"""Two stores on one server, as two processes have: one truth about epochs, marks, budgets, keys and streams."""

import multiprocessing
import threading
import time
from typing import Any

import pytest

from harness.waiting import eventually
from shoal_service.errors import OverloadedError, StaleWriterError, StoreUnavailableError, StreamGoneError
from shoal_service.store import Appended, DeadLetter, EntryKind, NewEntry
from shoal_service.store.redis import RedisStore, pubsub

pytestmark = pytest.mark.redis


@pytest.fixture
def pair(open_store: Any, hand_of: Any) -> tuple[Any, Any]:
    """An API process's hand on a stream, and its learner's."""
    return hand_of(open_store()), hand_of(open_store())


def test_what_one_appends_the_other_reads_numbered_without_gaps(pair: Any) -> None:
    threads = [
        threading.Thread(target=lambda hand=hand, i=i: [hand.add(b"%d:%d" % (i, n)) for n in range(50)])
        for i, hand in enumerate([*pair, *pair])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    api, learner = pair
    entries = learner.store.read(*learner.key, 0, max_bytes=1 << 30)
    assert [e.seq for e in entries] == list(range(1, 201))
    assert len({e.payload for e in entries}) == 200
    assert api.payloads() == [e.payload for e in entries]


def test_a_key_is_known_to_all(pair: Any) -> None:
    api, other = pair
    first = api.add(b"body", 3, key="k")
    assert other.add(b"body", 3, key="k") == first._replace(replayed=True)


def test_news_of_an_append_elsewhere_end_the_wait(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look that is taken each second otherwise is put off until after the end of the wait."""
    api, learner = pair
    monkeypatch.setattr(pubsub, "POLL_S", 600.0)
    for seq in range(20):
        waited: list[bool] = []
        waiting = threading.Thread(
            target=lambda seq=seq, waited=waited: waited.append(
                learner.store.wait_for_entries(*learner.key, seq, 600.0)
            )
        )
        waiting.start()
        time.sleep(0.02)
        api.add()
        waiting.join(120)
        assert waited == [True]


def test_the_wait_outlives_a_restart_of_the_server(own_server: Any, open_at: Any, hand_of: Any) -> None:
    server = own_server()
    api, learner = (hand_of(open_at(server.url)) for _ in range(2))
    learner.store.wait_for_entries(*learner.key, 0, 0.1)
    server.kill()
    with pytest.raises(StoreUnavailableError):
        learner.store.wait_for_entries(*learner.key, 0, 120.0)
    server.start()
    threading.Timer(0.2, api.add, kwargs={"key": "k"}).start()
    assert learner.store.wait_for_entries(*learner.key, 0, 120.0)


def test_an_end_elsewhere_ends_the_wait(pair: Any) -> None:
    api, learner = pair
    threading.Timer(0.1, api.store.delete_stream, args=("s",)).start()
    with pytest.raises(StreamGoneError):
        learner.store.wait_for_entries(*learner.key, 0, 120.0)
    with pytest.raises(StreamGoneError):
        learner.add()


def test_a_writer_is_refused_once_another_process_has_taken_over(pair: Any) -> None:
    old, new = pair
    old.add()
    assert (old.lead(), new.lead()) == (1, 2)
    letter = DeadLetter(1, 1, 1, "", b"")
    for refused in (
        lambda: old.mark(1),
        lambda: old.save(1),
        lambda: old.save(1, b"x" * (3 << 20)),
        lambda: old.store.add_dead_letter(*old.key, old.epoch, letter),
    ):
        with pytest.raises(StaleWriterError, match="epoch 2"):
            refused()
    new.mark(1)
    new.save(1)
    old.store.close()  # gives up nothing that is not its own
    assert new.store.tail(*new.key).unapplied_bytes == 0
    assert [c.blob for c in new.store.load_checkpoints(*new.key)] == [b"state"]


def test_the_budget_counts_from_the_learners_mark_wherever_it_runs(pair: Any) -> None:
    api, learner = pair
    learner.lead()
    for _ in range(3):
        api.add(b"x" * 100)
    with pytest.raises(OverloadedError):
        api.add(budget_bytes=250)
    learner.mark(2)
    assert learner.store.tail(*learner.key).unapplied_bytes == 100  # who marks sees it at once,
    eventually(lambda: api.store.tail(*api.key).unapplied_bytes == 100)  # the others a moment later
    assert api.add(budget_bytes=250).seq == 4


def test_many_marks_cost_few_writes(pair: Any) -> None:
    api, learner = pair
    learner.lead()
    for _ in range(100):
        api.add()
    before = learner.store.commits
    for seq in range(1, 101):
        learner.mark(seq)
    eventually(lambda: api.store.tail(*api.key).unapplied_bytes == 0)
    assert learner.store.commits - before < 50


def test_a_mark_ends_with_its_learner(pair: Any, open_store: Any, hand_of: Any) -> None:
    api, learner = pair
    learner.lead()
    for _ in range(4):
        api.add(b"x" * 10)
    learner.save(1)
    learner.mark(4)
    eventually(lambda: api.store.tail(*api.key).unapplied_bytes == 0)
    learner.store.close()
    assert api.store.tail(*api.key).unapplied_bytes == 30  # a learner that went says so
    successor = hand_of(open_store())
    successor.lead()
    successor.mark(4)
    eventually(lambda: api.store.tail(*api.key).unapplied_bytes == 0)
    api.lead()  # and one that died is succeeded
    assert api.store.tail(*api.key).unapplied_bytes == 30


def append_elsewhere(url: str, prefix: str, n: int) -> None:
    store = RedisStore(url, prefix=prefix)
    for _ in range(n):
        store.append("s", "inc-s", NewEntry(EntryKind.BATCH, b"x", 1), budget_bytes=1 << 40).result(120)
    store.close()


def test_real_processes_append_to_one_log_while_one_learns(server: Any, prefix: str, pair: Any) -> None:
    learner, _ = pair
    learner.lead()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=append_elsewhere, args=(server.url, prefix, 100)) for _ in range(2)]
    for process in processes:
        process.start()
    seq, offsets = 0, []
    while seq < 200:
        assert learner.store.wait_for_entries(*learner.key, seq, 120.0)
        for entry in learner.store.read(*learner.key, seq, max_bytes=100):
            offsets.append(entry.log_offset)
            seq = entry.seq
        learner.mark(seq)
        learner.save(seq)
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    assert offsets == list(range(1, 201))
    assert learner.add() == Appended(201, 201, 1, replayed=False)
