"""Cost of records: bytes in SQLite for each, and the learn rate with keys beside that without.

    python benchmarks/service/records.py [--records 1000000] [--points 400000]

Sizes come first: records of a 40-byte key, the SHA-1 of a number in hexadecimal, go through the learner's own writer
into a SQLite store, and runs are joined at the end as in a quiet moment. Then one process learns the same points
without and with keys, in turns, through a registry over SQLite as the service has it; the rate is points by the seconds
of processor time that the learner and the store's writer took, and by the clock. Keys are made before, as the array
that the decoders of bodies give, like the points.
"""

import argparse
import asyncio
import hashlib
import io
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from shoal_service.logs import make_log
from shoal_service.settings import Settings
from shoal_service.store import SqliteStore
from shoal_service.streams import StreamRegistry
from shoal_service.streams.known_streams import KnownStreams
from shoal_service.streams.record_index import Limits, RecordReader, RecordRows, RecordWriter
from shoal_service.wire import Points, RecordFields, Texts

BATCH = 4_000


def keys(first: int, n: int) -> list[bytes]:
    return [hashlib.sha1(b"%d" % i).hexdigest().encode() for i in range(first, first + n)]


def rows(first: int, n: int, rng: np.random.Generator) -> RecordRows:
    none = np.full(n, np.nan)
    return RecordRows(
        1 + first + np.arange(n), rng.integers(0, 60, size=n), np.full(n, -1), rng.uniform(size=n), rng.normal(size=n),
        none, np.full(n, 1.7e9), np.zeros(n, dtype=np.uint8), Texts.of(keys(first, n)), Texts.empty(n),
    )  # fmt: skip


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def size(n: int) -> None:
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(folder)
        store.create_stream("s", "inc", b"{}", max_streams=1)
        epoch = store.acquire_writer("s", "inc")
        read = lambda places: store.read_pages("s", "inc", places)  # noqa: E731
        writer = RecordWriter(read, lambda pages, dropped: store.write_pages("s", "inc", epoch, pages, dropped))
        limits, before = Limits(1 << 40, 1 << 60, None), peak_mib()
        took = cpu = 0.0
        for seq, first in enumerate(range(0, n, BATCH), start=1):
            made = rows(first, min(BATCH, n - first), rng)
            last = first + BATCH >= n
            began, used = time.perf_counter(), time.process_time()
            writer.add(made)
            if writer.full or last:
                writer.flush(seq, limits, 0.0)
            while last and writer.join_runs():
                pass
            took, cpu = took + time.perf_counter() - began, cpu + time.process_time() - used
        reader = RecordReader(read)
        asked = [keys(int(i), 1)[0] for i in rng.integers(0, n, size=200)]
        reader.find(asked[:1])
        began = time.perf_counter()
        assert all(record is not None for key in asked for record in reader.find([key]))
        each = (time.perf_counter() - began) / len(asked)
        n_runs = len(reader.head().runs)
        store.close()
        n_bytes = sum(path.stat().st_size for path in Path(folder).iterdir())
        print(
            f"{n:,} records: {n_bytes / n:.1f} bytes each ({n_bytes / 1e9:.3f} GB), {n_runs} runs, "
            f"{1e6 * took / n:.2f} us by the clock and {1e6 * cpu / n:.2f} us of processor time each to write, "
            f"{1e3 * each:.2f} ms a lookup, {peak_mib():.0f} MiB at most in memory ({before:.0f} before)"
        )


async def learn(x: Any, names: list[Texts] | None) -> tuple[float, float]:
    """Seconds of processor time and by the clock to learn x, with or without keys."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(folder)
        registry = StreamRegistry(KnownStreams(store, Settings(), make_log("error", "json", io.StringIO())))
        await asyncio.to_thread(registry.known.start)
        stream, _ = await registry.create("s", {"n_features": x.shape[1], "family": "gaussian", "refinement": None})
        await registry.learnt_rows(await registry.ingest("s", Points(x[:BATCH])), 120)
        cpu, began = time.process_time(), time.perf_counter()
        for first in range(BATCH, len(x), BATCH):
            part = x[first : first + BATCH]
            fields = None if names is None else RecordFields(0.0, names[first // BATCH], None, None, None)
            receipt = await registry.ingest("s", Points(part, fields))
        await stream.wait_until_visible(receipt, 600)
        spent = time.process_time() - cpu, time.perf_counter() - began
        await asyncio.to_thread(registry.known.close, 60)
        store.close()
        return spent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=400_000)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    size(asked.records)
    rng = np.random.default_rng(3)
    names = [Texts.of(keys(first, min(BATCH, asked.points - first))) for first in range(0, asked.points, BATCH)]
    for d, k in ((2, 10), (16, 20)):
        centres = rng.normal(scale=8.0, size=(k, d))
        x = centres[rng.integers(k, size=asked.points)] + rng.normal(size=(asked.points, d))
        ratios = []
        for _ in range(asked.turns):
            plain, keyed = asyncio.run(learn(x, None)), asyncio.run(learn(x, names))
            ratios.append((plain[0] / keyed[0], plain[1] / keyed[1]))
            print(
                f"D {d}, {k} clusters: {len(x) / plain[0]:,.0f} points/s of processor time, with keys "
                f"{len(x) / keyed[0]:,.0f} (ratio {ratios[-1][0]:.2f}); by the clock {len(x) / plain[1]:,.0f} and "
                f"{len(x) / keyed[1]:,.0f} (ratio {ratios[-1][1]:.2f})"
            )
        print(f"D {d}: median ratio {np.median(ratios, axis=0).round(2).tolist()} (processor time, clock)")


if __name__ == "__main__":
    main()
