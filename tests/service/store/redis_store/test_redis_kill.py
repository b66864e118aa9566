"""kill -9 of the server at many moments: what was acknowledged is there, once, where it was said to be."""

import random
import threading
import time
from collections import Counter
from typing import Any

import pytest

from harness.short_form import longer
from harness.waiting import eventually
from shoal_service.errors import LogGapError, StoreUnavailableError
from shoal_service.store import Appended
from shoal_service.store.redis import writer

pytestmark = pytest.mark.redis

SIZES = (0, 50, 4000, 300_000)
KILLS = 4


class Sender(threading.Thread):
    """Appends one after another: with a key until it is acknowledged, without one just once."""

    def __init__(self, hand: Any, seed: str, stop: threading.Event) -> None:
        super().__init__()
        self.acknowledged: dict[str, tuple[Appended, bytes]] = {}
        self.in_doubt: set[str] = set()
        self._hand, self._rng, self._stop_it = hand, random.Random(seed), stop
        self._seed = seed

    def run(self) -> None:
        n = 0
        while not self._stop_it.is_set():
            n += 1
            token, size, points = f"{self._seed}-{n}", self._rng.choice(SIZES), self._rng.randint(1, 9)
            payload = token.encode() + b";" + self._rng.randbytes(size)
            key = token if n % 2 else None
            while True:
                try:
                    self.acknowledged[token] = (self._hand.add(payload, points, key=key), payload)
                    break
                except StoreUnavailableError:
                    time.sleep(0.02)
                    if key is None:
                        self.in_doubt.add(token)
                        break


@pytest.mark.parametrize("seed", [21, longer(22), longer(23)])
def test_what_was_acknowledged_before_kill_9_is_there_once(
    seed: int, own_server: Any, open_at: Any, hand_of: Any
) -> None:
    rng = random.Random(seed)
    server = own_server()
    hands = [hand_of(open_at(server.url)) for _ in range(2)]  # two processes, as it were
    stop = threading.Event()
    senders = [Sender(hands[i % 2], f"{seed}/{i}", stop) for i in range(6)]
    for sender in senders:
        sender.start()
    for n in range(KILLS):
        time.sleep(rng.uniform(0.1, 0.6))
        server.kill()
        time.sleep(2.5 if n == 1 else 0.0)  # once for longer than the store's own time limit
        server.start()
    eventually(lambda: sum(len(sender.acknowledged) for sender in senders) > 50, "too few to mean anything")
    stop.set()
    for sender in senders:
        sender.join(120)

    store, key = hands[0].store, hands[0].key
    entries = store.read(*key, 0, max_bytes=1 << 40)
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
    held = {e.payload.partition(b";")[0].decode(): e for e in entries}
    twice = [t for t, n in Counter(e.payload.partition(b";")[0] for e in entries).items() if n > 1]
    assert not twice, [(e.seq, e.payload[:20]) for e in entries if e.payload.partition(b";")[0] in twice]
    acknowledged = {token: said for sender in senders for token, said in sender.acknowledged.items()}
    for token, (answer, payload) in acknowledged.items():
        entry = held[token]
        assert (entry.seq, entry.log_offset, entry.n_points) == answer[:3]
        assert entry.payload == payload
    offset = 0
    for entry in entries:
        offset += entry.n_points
        assert entry.log_offset == offset
    # What nobody was told about may be there, but only what was in doubt.
    assert held.keys() - acknowledged.keys() <= set().union(*(sender.in_doubt for sender in senders))


def test_a_torn_transaction_takes_nothing_with_it_that_comes_later(own_server: Any, open_at: Any, hand_of: Any) -> None:
    """The server cuts its torn file in the middle of the transaction, and would read on into it at its next start."""
    server = own_server()
    hand = hand_of(open_at(server.url))
    for i in range(3):
        hand.add(b"before %d" % i, key=f"before {i}")
    server.kill()
    (file,) = (server.folder / "appendonlydir").glob("*.incr.aof")
    with file.open("r+b") as torn:
        torn.truncate(file.stat().st_size - 3)  # within the EXEC after the last append
    server.start()
    with pytest.raises(LogGapError, match="ends at entry 2, but entry 3 was acknowledged"):
        hand.add(b"after", key="after")
    hand = hand_of(open_at(server.url))  # a process that does not know of the entry
    sent = [b"after %d" % i for i in range(3)]
    for i, payload in enumerate(sent):
        assert hand.add(payload, key=f"after {i}").seq == 3 + i
    server.kill()
    server.start()
    assert hand.payloads() == [b"before 0", b"before 1", *sent]
    assert [hand.add(payload, key=f"after {i}").replayed for i, payload in enumerate(sent)] == [True] * 3
    assert not hand.add(b"before 2", key="before 2").replayed


def test_a_restart_within_the_stores_retry_time_is_not_noticed_by_who_sends_a_key(
    own_server: Any, open_at: Any, hand_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRY_FOR_S", 120.0)  # however long this machine takes for a restart
    server = own_server()
    hand = hand_of(open_at(server.url))
    hand.add(b"first", key="a")
    server.kill()
    answer = hand.post(b"second", key="b")
    server.start()
    assert answer.result(120) == (2, 2, 1, False)
    assert hand.payloads() == [b"first", b"second"]
    assert hand.lead() == 1


def test_a_server_that_is_gone_is_said_to_be_gone(own_server: Any, open_at: Any, hand_of: Any) -> None:
    server = own_server()
    hand = hand_of(open_at(server.url))
    hand.lead()
    server.kill()
    for verb in (hand.add, hand.payloads, hand.lead, hand.store.list_streams, hand.store.check, lambda: hand.mark(0)):
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            verb()
    server.start()
    hand.store.check()
    assert hand.add().seq == 1


def test_a_server_that_hangs_is_given_up_in_time(own_server: Any, open_at: Any, hand_of: Any) -> None:
    server = own_server()
    hand = hand_of(open_at(server.url, timeout_s=1.0))
    hand.add()
    server.pause()
    futures = [hand.post(b"unkeyed"), hand.post(b"keyed", key="k")]
    with pytest.raises(StoreUnavailableError, match="did not answer in time"):
        hand.payloads()
    for future in futures:
        with pytest.raises(StoreUnavailableError):
            future.result(120)
    server.resume()
    assert hand.add(b"keyed", key="k").n_points == 1
    assert hand.payloads().count(b"keyed") == 1


def test_a_close_while_the_server_is_gone_ends(own_server: Any, open_at: Any, hand_of: Any) -> None:
    server = own_server()
    hand = hand_of(open_at(server.url))
    hand.lead()
    server.kill()
    closing = threading.Thread(target=hand.store.close)
    closing.start()
    closing.join(120)
    assert not closing.is_alive()
