"""Ingests of one point each, every one durable before its answer, from many connections, beside an empty handler.

    python benchmarks/service/small_ingests.py [--connections 50] [--seconds 10] [--turns 5] [--out FILE.csv]

Connections that each have one request at a time send points of 16 features to one `shoal serve` over SQLite, which also
learns them. Requests that wait together share one sync of the disk (group commit). The empty handler of `afternoon.py`
gets as many requests without a body. Both take turns, under the same server settings.

A row has the answers a second and the median and 99th percentile of the milliseconds to an answer, by the clock; and
the microseconds of processor time of the service for an answer. `one_core` is a million by these: the answers a second
that one free core allows. At the end come medians of the turns.
"""

import argparse
import csv
import os
import statistics
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
from load import Load, batches, request
from throughput import Target, afternoon, shoal

FIELDS = ("way", "turn", "answers", "answers_per_s", "p50_ms", "p99_ms", "cpu_us", "one_core", "load_cpu_us", "load")


def one_point_requests(n: int) -> list[bytes]:
    """Requests with a point each, as float64 in MessagePack."""
    points = batches(1)[0][:n]
    bodies = [msgspec.msgpack.encode({"d": x.size, "t": "f8", "x": x.tobytes()}) for x in points]
    return [request("POST", "/ingest", body, "application/msgpack") for body in bodies]


def turn(load: Load, target: Target, seconds: float) -> dict[str, Any]:
    """Measure for some seconds."""
    process = psutil.Process(target.pid)
    load.took_s()
    before, used = load.counts(), process.cpu_times()
    time.sleep(seconds)
    after, spent = load.counts(), process.cpu_times()
    took = load.took_s()
    n = after.acknowledged - before.acknowledged
    cpu_us = 1e6 * (spent.user + spent.system - used.user - used.system) / n
    return {
        "answers": n,
        "answers_per_s": round(n / (after.at - before.at)),
        "p50_ms": round(1e3 * float(np.median(took)), 2),
        "p99_ms": round(1e3 * float(np.percentile(took, 99)), 2),
        "cpu_us": round(cpu_us, 1),
        "one_core": round(1e6 / cpu_us),
        "load_cpu_us": round(1e6 * (after.cpu_s - before.cpu_s) / n, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with shoal("sqlite", one_pass=True) as ours, afternoon("empty") as theirs:
        ways = {"ingest": (ours, one_point_requests(1000)), "empty": (theirs, [request("GET", "/empty")])}
        for number in range(asked.turns + 1):
            for way, (target, requests) in ways.items():
                with Load(requests, target.port, asked.connections) as load:
                    time.sleep(1.0)
                    row = turn(load, target, asked.seconds)
                if number:  # the first turn warms both
                    rows.append({"way": way, "turn": number, **row})
                    print(*(f"{field} {rows[-1][field]}" for field in FIELDS), sep="  ", flush=True)
    for way in ways:
        of_way = [row for row in rows if row["way"] == way]
        told = (f"{field} {statistics.median(row[field] for row in of_way):g}" for field in FIELDS[2:])
        print(f"median {way}", *told, sep="  ")
    if asked.out is not None:
        with asked.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
