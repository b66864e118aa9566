"""One-point predictions compared with an empty FastAPI handler, under the same server settings.

    python benchmarks/service/predict.py [--turns 20] [--requests 2000]

Both are measured in turn, over one open connection each, without other work: with client and service on one core, on a
core each, and wherever the system puts them. Writes one line per turn to benchmarks/results/predict_beside_empty.csv.
"""

import argparse
import contextlib
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from load import HOST, Load, batches, request
from throughput import RESULTS, after, afternoon, bodies, machine, shoal, watch, write

RUN = 100
"""Requests of one kind that follow each other."""
REST_S = 0.02
"""Between two runs, so that neither is timed while the other service still writes its log."""


def placements() -> dict[str, tuple[set[int], set[int]]]:
    """Return the cores of the client and of the services while predictions are timed.

    The system keeps some pairs on one core and wakes a second core for others. Waking costs more than the handlers do,
    and may differ between the two services.
    """
    first, *others = sorted(os.sched_getaffinity(0))
    found = {"on one core": ({first}, {first})}
    if others:
        both = {first, others[0]}
        found |= {"on a core each": ({first}, {others[0]}), "anywhere": (both, both)}
    return found


def latencies_us(targets: Sequence[tuple[int, str]], n: int) -> list[np.ndarray]:
    """Return the microseconds from a request to its complete answer, n for each (port, path), over open connections.

    Runs of `RUN` requests take turns, with a pause between them."""
    taken = [np.empty(n) for _ in targets]
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection((HOST, port))) for port, _ in targets]
        for connection in connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        work = [(c, request("GET", path), t) for c, (_, path), t in zip(connections, targets, taken, strict=True)]
        for start in range(0, n, RUN):
            for connection, what, times in work:
                time.sleep(REST_S)
                for i in range(start, min(start + RUN, n)):
                    began = time.perf_counter()
                    connection.sendall(what)
                    answer = whole_answer(connection)
                    times[i] = 1e6 * (time.perf_counter() - began)
                    assert answer.startswith(b"HTTP/1.1 200"), answer
    return taken


def whole_answer(connection: socket.socket) -> bytes:
    """Read one answer with a Content-Length, head and body."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65_536)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65_536)
    return head


def predictions(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Measure turns of empty requests and predictions, with one line of results for each."""
    point = ",".join(f"{v:.4f}" for v in batches(1, seed=3)[0][0])
    with shoal("sqlite", one_pass=False) as ours, afternoon("empty") as theirs:
        with Load(bodies("msgpack")[:100], ours.port, 1) as load:
            watch(load, ours, 5.0)
        after(ours.port)
        time.sleep(arguments.warmup)  # until the open refinements end
        targets = (theirs.port, "/empty"), (ours.port, f"/predict?x={point}")
        turns, places = [], placements()
        for i in range(arguments.turns + 1):
            for placement, (mine, served) in places.items():
                pin(os.getpid(), mine)
                pin(ours.pid, served)
                pin(theirs.pid, served)
                both = latencies_us(targets, arguments.requests)
                if i:  # the first turn warms both
                    turns.append(turn(i, placement, *both))
        return turns


def pin(pid: int, cores: set[int]) -> None:
    """Limit every thread of a process to these cores (Linux)."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):  # the thread has ended meanwhile
            os.sched_setaffinity(int(task), cores)


def turn(i: int, placement: str, empty: np.ndarray, predict: np.ndarray) -> dict[str, object]:
    """Return the figures of one turn."""
    e, p = np.percentile(empty, [50, 99]), np.percentile(predict, [50, 99])
    return {
        "turn": i,
        "client_and_service": placement,
        "requests": len(empty),
        "empty_p50_us": round(e[0]),
        "empty_p99_us": round(e[1]),
        "predict_p50_us": round(p[0]),
        "predict_p99_us": round(p[1]),
        "times_empty": round(float(p[0] / e[0]), 2),
        **machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--warmup", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=RESULTS / "predict_beside_empty.csv")
    arguments = parser.parse_args()
    rows = predictions(arguments)
    write(rows, arguments.out, append=False)
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
