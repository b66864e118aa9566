"""Speed of decoding bodies and encoding answers, and the delay of the event loop by a large JSON body.

Run: python benchmarks/micro/wire.py [--seconds 1.0]. Writes benchmarks/results/wire.csv: one line per measurement, the
best of several rounds, with the machine and the versions.
"""

import argparse
import asyncio
import csv
import gzip
import io
import itertools
import os
import platform
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.ipc
from scipy.sparse import csr_array

from shoal_service.wire import (
    ComponentColumns,
    Decoder,
    Head,
    Points,
    PredictionColumns,
    WireLimits,
    decode,
    encode_components,
    encode_predictions,
    from_log,
    to_log,
)

RESULTS = Path(__file__).resolve().parents[1] / "results" / "wire.csv"
LIMITS = WireLimits(64 * 2**20, 1_000_000, 4096)
JSON, MSGPACK, NPY = "application/json", "application/msgpack", "application/x-npy"
NDJSON, ARROW = "application/x-ndjson", "application/vnd.apache.arrow.stream"
HEAD = Head("default", "7f1b8c6e-3f0e-4d7a-9c55-2b8f6f0f6a11", 1)
ROUNDS = 5


class Figure(NamedTuple):
    what: str
    rows: int
    features: int
    value: float
    unit: str


def json_body(x: np.ndarray) -> bytes:
    return msgspec.json.encode({"points": x.tolist()})


def msgpack_body(x: np.ndarray) -> bytes:
    return msgspec.msgpack.encode({"d": x.shape[1], "x": x.tobytes(), "t": f"f{x.itemsize}"})


def npy_body(x: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


def ndjson_body(rows: list[Any]) -> bytes:
    return msgspec.json.Encoder().encode_lines(rows)


def arrow_body(x: np.ndarray, *, lists: bool) -> bytes:
    columns = [pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])] if lists else list(x.T.copy())
    batch = pa.record_batch(columns, [f"x{i}" for i in range(len(columns))])
    file = io.BytesIO()
    with pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    return file.getvalue()


def cpu_s(work: Callable[[], object], seconds: float) -> float:
    """Return the CPU seconds of one call: the best of several rounds that together take about `seconds`."""
    best, calls = float("inf"), 1
    for _ in range(ROUNDS + 1):  # the first round determines how many calls fill a round
        start = time.process_time()
        for _ in range(calls):
            work()
        took = max(time.process_time() - start, 1e-9) / calls
        best, calls = min(best, took), max(1, int(seconds / ROUNDS / took))
    return best


def decoding(n: int, d: int, seconds: float) -> Iterator[Figure]:
    x = np.random.default_rng(0).normal(size=(n, d))
    single = x.astype(np.float32)
    bodies = {
        "json": (json_body(x), JSON, None),
        "json, float32 digits": (json_body(single), JSON, None),
        "json, gzip": (gzip.compress(json_body(x), 6), JSON, "gzip"),
        "msgpack f4": (msgpack_body(single), MSGPACK, None),
        "msgpack f8": (msgpack_body(x), MSGPACK, None),
        "npy f4": (npy_body(single), NPY, None),
        "npy f8": (npy_body(x), NPY, None),
        "npy f8, by columns": (npy_body(np.asfortranarray(x)), NPY, None),
        "ndjson": (ndjson_body(x.tolist()), NDJSON, None),
        "arrow f4, a column of lists": (arrow_body(single, lists=True), ARROW, None),
        "arrow f8, a column of lists": (arrow_body(x, lists=True), ARROW, None),
        "arrow f4, columns": (arrow_body(single, lists=False), ARROW, None),
    }
    for what, (body, media, encoding) in bodies.items():
        took = cpu_s(lambda b=body, m=media, e=encoding: decode(b, m, LIMITS, content_encoding=e), seconds)
        yield Figure(f"decode {what}", n, d, n / took / 1e6, "million points a CPU-second")
    yield Figure("to_log f8", n, d, n / cpu_s(lambda: to_log(Points(x)), seconds) / 1e6, "million points a CPU-second")
    payload = to_log(Points(x))
    yield Figure(
        "from_log f8", n, d, n / cpu_s(lambda: from_log(payload), seconds) / 1e6, "million points a CPU-second"
    )


def decoding_sparse(n: int, d: int, stored: int, seconds: float) -> Iterator[Figure]:
    """Measure rows that store about `stored` of d counts."""
    rng = np.random.default_rng(0)
    matrix = csr_array(rng.poisson(1.0, (n, d)) * (rng.random((n, d)) < stored / d / (1 - np.exp(-1))) * 1.0)
    bounds = itertools.pairwise(matrix.indptr)
    rows = [{"indices": matrix.indices[a:b].tolist(), "values": matrix.data[a:b].tolist()} for a, b in bounds]
    payload = to_log(Points(matrix))
    bodies = {
        "json": (msgspec.json.encode({"points": rows}), JSON),
        "ndjson": (ndjson_body(rows), NDJSON),
        "msgpack": (payload, MSGPACK),
    }
    per_row = f"{matrix.nnz / n:.0f} stored a row"
    for what, (body, media) in bodies.items():
        took = cpu_s(lambda b=body, m=media: decode(b, m, LIMITS, n_features=d), seconds)
        yield Figure(f"decode {what}, sparse, {per_row}", n, d, n / took / 1e6, "million points a CPU-second")
    for what, work in (("to_log", lambda: to_log(Points(matrix))), ("from_log", lambda: from_log(payload))):
        took = cpu_s(work, seconds)
        yield Figure(f"{what}, sparse, {per_row}", n, d, n / took / 1e6, "million points a CPU-second")


def encoding(n: int, d: int, k: int, seconds: float) -> Iterator[Figure]:
    rng = np.random.default_rng(0)
    resp = rng.dirichlet(np.full(k + 1, 0.05), n)
    ids = np.arange(k)
    predictions = PredictionColumns(ids, resp[:, :k].argmax(axis=1), rng.normal(size=n), resp[:, k], resp[:, :k])
    took = cpu_s(lambda: encode_predictions(HEAD, predictions), seconds)
    yield Figure(f"encode predictions, {k} components", n, d, n / took / 1e6, "million points a CPU-second")
    page = ComponentColumns(ids, rng.random(k), rng.random(k), rng.random((k, d)), rng.random((k, d)), ids, ids)
    took = cpu_s(
        lambda: encode_components(HEAD, points_seen=1, status="live", new_weight=0.1, page=page, next_cursor=None),
        seconds,
    )
    yield Figure(f"encode {k} components", k, d, took * 1e6, "CPU microseconds")


async def loop_delays(decode_one: Callable[[], object], bodies: int) -> np.ndarray:
    """Return the delays in milliseconds of a loop that sleeps 1 ms repeatedly while bodies are decoded."""
    delays: list[float] = []

    async def tick() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            delays.append((time.perf_counter() - start) * 1e3 - 1.0)

    ticking = asyncio.create_task(tick())
    for _ in range(bodies):
        await decode_one()  # type: ignore[misc]
    ticking.cancel()
    return np.array(delays)


async def holding_up(n: int, d: int, bodies: int) -> list[Figure]:
    body = json_body(np.random.default_rng(0).normal(size=(n, d)))
    with_child = Decoder(LIMITS)
    with_child.start()
    await with_child.decode(body, JSON)
    ways = {
        "a child": lambda: with_child.decode(body, JSON),
        "a thread": lambda: asyncio.to_thread(decode, body, JSON, LIMITS),
    }
    figures = []
    for way, work in ways.items():
        delays = await loop_delays(work, bodies)
        for name, value in (("99th percentile", np.quantile(delays, 0.99)), ("worst", delays.max())):
            figures.append(Figure(f"loop held up by JSON in {way}, {name}", n, d, float(value), "ms"))
    start = time.perf_counter()
    for _ in range(bodies):
        await with_child.decode(body, JSON)
    figures.append(
        Figure(
            "JSON through the child, one after another",
            n,
            d,
            n * bodies / (time.perf_counter() - start) / 1e6,
            "million points a second",
        )
    )
    with_child.close()
    return figures


def machine() -> str:
    libraries = f"NumPy {np.__version__}, msgspec {msgspec.__version__}, pyarrow {pa.__version__}"
    return f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {libraries}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU seconds spent on each figure")
    seconds = parser.parse_args().seconds
    figures = [
        *decoding(1_000, 16, seconds),
        *decoding_sparse(1_000, 1_000, 50, seconds),
        *encoding(1_000, 16, 50, seconds),
        *asyncio.run(holding_up(10_000, 16, 50)),
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["date", "machine", *Figure._fields])
        for figure in figures:
            print(f"{figure.what:52} {figure.value:10.3f} {figure.unit}")
            writer.writerow([when, machine(), *figure[:3], f"{figure.value:.4g}", figure.unit])


if __name__ == "__main__":
    main()
