"""A process that appends from several threads, learns and trims, and says what was acknowledged, until it is killed.

`python appender.py FOLDER SEED` prints `ready`, then one line for each future that was done, after it was done:
`append STREAM SEQ LOG_OFFSET N_POINTS TOKEN SIZE` and `checkpoint SEQ LOG_OFFSET`.
"""

import hashlib
import os
import random
import sys
import threading

from shoal_service.store import Checkpoint, EntryKind, IdempotencyKey, NewEntry, SqliteStore

SIZES = (0, 50, 4000, 300_000)


def payload(token: str, size: int) -> bytes:
    """What is appended under a token: it can be recognised, and checked byte by byte."""
    return (token.encode() + b";") + random.Random(token).randbytes(size)


def key(token: str) -> IdempotencyKey:
    """The idempotency key of a token."""
    return IdempotencyKey(token, hashlib.sha256(token.encode()).digest())


def state_after(seq: int) -> bytes:
    """The checkpoint's blob: a function of seq, some below and some above one piece."""
    return random.Random(seq).randbytes(5 << 20 if seq % 3 == 0 else 2000)


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # one system call a line: no half line is ever lost


def append_for_ever(store: SqliteStore, seed: int, worker: int) -> None:
    rng = random.Random(f"{seed}/{worker}")
    n = 0
    while True:
        n += 1
        name, token, size = rng.choice(["kept", "trimmed"]), f"{seed}-{worker}-{n}", rng.choice(SIZES)
        asked = key(token) if n % 2 else None
        entry = NewEntry(EntryKind.BATCH, payload(token, size), rng.randint(1, 9), idempotency=asked)
        future = store.append(name, f"inc-{name}", entry, budget_bytes=1 << 40)
        answer = future.result()
        say("append", name, answer.seq, answer.log_offset, answer.n_points, token, size)


def learn_for_ever(store: SqliteStore) -> None:
    stream = ("trimmed", "inc-trimmed")
    epoch = store.acquire_writer(*stream)
    seq = max((c.seq for c in store.load_checkpoints(*stream)), default=0)
    while True:
        store.wait_for_entries(*stream, seq, 1.0)
        for entry in store.read(*stream, seq, max_bytes=1 << 20):
            seq, log_offset = entry.seq, entry.log_offset
            store.mark_applied(*stream, epoch, seq)
        saved = Checkpoint(seq, log_offset, state_after(seq), max(0, seq - 5))
        store.save_checkpoint(*stream, epoch, saved)
        say("checkpoint", seq, log_offset)


def main() -> None:
    store, seed = SqliteStore(sys.argv[1]), int(sys.argv[2])
    for name in ("kept", "trimmed"):
        store.create_stream(name, f"inc-{name}", b"{}", max_streams=9)
    threads = [threading.Thread(target=append_for_ever, args=(store, seed, worker)) for worker in range(4)]
    threads.append(threading.Thread(target=learn_for_ever, args=(store,)))
    say("ready")
    for thread in threads:
        thread.start()


if __name__ == "__main__":
    main()
