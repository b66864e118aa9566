"""Many threads at once: no number twice, none left out, nobody's entry in somebody else's stream."""

import threading
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from shoal_service.errors import SettingsMovedError, StreamGoneError
from shoal_service.store import Appended, EntryKind, NewEntry, Store

PLENTY = 1 << 40


def test_concurrent_appends_are_numbered_without_gaps_and_in_each_threads_order(store: Store, new_line: Any) -> None:
    lines = {name: new_line(store, name) for name in ("a", "b", "c")}
    answers: dict[str, list[tuple[Appended, bytes]]] = defaultdict(list)

    def post(worker: int) -> None:
        for i in range(40):
            name = "abc"[(worker + i) % 3]
            payload = b"%d:%d" % (worker, i)
            answers[name].append((lines[name].add(payload, 1 + i % 3), payload))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(post, range(16)))

    for name, line in lines.items():
        entries = store.read(*line.key, 0, max_bytes=PLENTY)
        assert [e.seq for e in entries] == list(range(1, len(answers[name]) + 1))
        assert [e.log_offset for e in entries] == [
            sum(e.n_points for e in entries[: i + 1]) for i in range(len(entries))
        ]
        stored = {(e.seq, e.log_offset, e.n_points, e.payload) for e in entries}
        assert {(*a[:3], payload) for a, payload in answers[name]} == stored
        by_worker = defaultdict(list)
        for entry in entries:
            worker, i = entry.payload.split(b":")
            by_worker[worker].append(int(i))
        assert all(sent == sorted(sent) for sent in by_worker.values())
    assert sum(map(len, answers.values())) == 16 * 40


def test_of_changes_of_settings_at_once_each_is_made_of_the_one_before(line: Any, store: Store) -> None:
    line.add(b"0", 0, kind=EntryKind.SETTINGS, settings=b"0")

    def count(_: int) -> int:
        refused = 0
        while True:
            seen = store.get_stream(line.name).settings
            wanted = b"%d" % (int(seen) + 1)
            try:
                line.add(wanted, 0, kind=EntryKind.SETTINGS, settings=wanted, expected_settings=seen)
            except SettingsMovedError:
                refused += 1
            else:
                return refused

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(100)))
    assert store.get_stream(line.name).settings == b"100"
    entries = store.read(*line.key, 0, max_bytes=PLENTY)
    assert [entry.payload for entry in entries] == [b"%d" % n for n in range(101)]


def test_futures_of_one_caller_are_done_in_order(line: Any, store: Store) -> None:
    futures = [
        store.append(*line.key, NewEntry(EntryKind.BATCH, b"%d" % i, 1), budget_bytes=PLENTY) for i in range(300)
    ]
    assert [f.result(120).seq for f in futures] == list(range(1, 301))


def test_appends_that_race_with_the_end_of_a_stream_go_to_its_incarnation_or_nowhere(store: Store) -> None:
    accepted: dict[str, list[bytes]] = defaultdict(list)
    refused: list[bytes] = []
    stop = threading.Event()
    current = ["inc-0"]
    store.create_stream("s", "inc-0", b"{}", max_streams=9)

    def post(worker: int) -> None:
        i = 0
        while not stop.is_set():
            incarnation, payload = current[0], b"%d:%d" % (worker, i)
            future: Future[Appended] = store.append(
                "s", incarnation, NewEntry(EntryKind.BATCH, payload, 1), budget_bytes=PLENTY
            )
            i += 1
            try:
                future.result(120)
            except StreamGoneError:
                refused.append(payload)
            else:
                accepted[incarnation].append(payload)

    threads = [threading.Thread(target=post, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for n in range(1, 15):
        store.delete_stream("s")
        store.create_stream("s", f"inc-{n}", b"{}", max_streams=9)
        current[0] = f"inc-{n}"
        store.wait_for_entries("s", f"inc-{n}", 5, 60.0)
    stop.set()
    for thread in threads:
        thread.join(120)
    held = [e.payload for e in store.read("s", "inc-14", 0, max_bytes=PLENTY)]
    assert sorted(held) == sorted(accepted["inc-14"])
    assert len(held) >= 6


def test_a_learner_that_follows_and_trims_misses_nothing(line: Any, store: Store) -> None:
    total = 400
    seen: list[bytes] = []

    def learn() -> None:
        seq = 0
        while len(seen) < total:
            assert store.wait_for_entries(*line.key, seq, 120.0)
            for entry in store.read(*line.key, seq, max_bytes=2000):
                seen.append(entry.payload)
                seq = entry.seq
            line.mark(seq)
            line.save(seq, window_seq=max(0, seq - 7))

    learner = threading.Thread(target=learn)
    learner.start()
    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda i: (line.add(b"%0100d" % i).seq, b"%0100d" % i), range(total)))
    learner.join(240)
    assert seen == [payload for _, payload in sorted(sent)]
    assert store.tail(*line.key).unapplied_bytes == 0
    assert store.tail(*line.key).first_seq > 1


def test_epochs_given_to_many_at_once_are_all_different(line: Any, store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        epochs = list(pool.map(lambda _: store.acquire_writer(*line.key), range(32)))
    assert sorted(epochs) == list(range(line.epoch + 1, line.epoch + 33))
