"""CPU time of the serving process by function, one profile per path.

    python benchmarks/service/profile_paths.py [--paths ingest-msgpack ingest-json predict] [--seconds 15]

The service runs under `sampled_serve.py`. It receives the load of `throughput.py` (refinement off), or one-point
predictions over one connection. For each thread, benchmarks/results/profile.csv has the functions of shoal with their
microseconds per request, callees included. A learner's thread is the path "apply".
"""

import argparse
import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from load import BATCH, N_FEATURES, Load, batches
from predict import latencies_us
from throughput import CONNECTIONS, RESULTS, Target, after, ask, bodies, machine, watch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from harness.running_service import free_port

PATHS = ("ingest-msgpack", "ingest-json", "predict")
PACKAGES = Path(__file__).parents[2] / "core" / "shoal", Path(__file__).parents[2] / "service" / "shoal_service"
MOST, LEAST_SHARE = 25, 0.01


@contextlib.contextmanager
def sampled(folder: Path) -> Iterator[Target]:
    """Start a service under the sampler, with an empty stream. Its samples are in `samples.json` at the end."""
    port, out = free_port(), folder / "samples.json"
    script = Path(__file__).with_name("sampled_serve.py")
    command = [sys.executable, str(script), str(out), "serve", "--port", str(port), "--data", str(folder / "data")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            until_ready(port)
            wanted = {"n_features": N_FEATURES, "family": "diagonal", "refinement": None}
            ask(port, "PUT", "/streams/default", wanted)
            yield Target(port, process.pid, None, ours=True)
        finally:
            process.terminate()
            process.wait(60.0)


def until_ready(port: int) -> None:
    """Wait until the kernels are ready."""
    for _ in range(1_000):
        with contextlib.suppress(OSError, AssertionError):
            ask(port, "GET", "/readyz")
            return
        time.sleep(0.1)
    raise TimeoutError("the service was not ready within 100 s")


def profile(path: str, seconds: float) -> list[dict[str, object]]:
    """Return the lines of one path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with sampled(folder) as at:
            n = predicting(at, seconds) if path == "predict" else ingesting(at, path.partition("-")[2], seconds)
        samples = json.loads((folder / "samples.json").read_text())
    return [line for thread, spent in samples["inclusive"].items() for line in lines(path, thread, spent, n, samples)]


def ingesting(at: Target, form: str, seconds: float) -> int:
    """Return the number of batches answered while samples were taken."""
    with Load(bodies(form), at.port, CONNECTIONS[form]) as load:
        watch(load, at, 8.0)
        os.kill(at.pid, signal.SIGUSR1)
        looks = watch(load, at, seconds)
    return looks[-1].counts.acknowledged - looks[0].counts.acknowledged


def predicting(at: Target, seconds: float) -> int:
    """Return the number of predictions answered while samples were taken."""
    with Load(bodies("msgpack")[:100], at.port, 1) as load:
        watch(load, at, 5.0)
    after(at.port)
    target = "/predict?x=" + ",".join(f"{v:.4f}" for v in batches(1, seed=3)[0][0])
    latencies_us([(at.port, target)], 500)
    os.kill(at.pid, signal.SIGUSR1)
    n, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        n += len(latencies_us([(at.port, target)], 500)[0])
    return n


def lines(
    path: str, thread: str, spent: dict[str, float], n: int, samples: dict[str, dict[str, dict[str, float]]]
) -> list[dict[str, object]]:
    """Return the total of one thread, and then the functions of shoal in it, most expensive first."""
    whole, everything = sum(samples["own"][thread].values()), sum(sum(own.values()) for own in samples["own"].values())
    if whole < LEAST_SHARE * everything:
        return []
    ours = {path.stem for package in PACKAGES for path in package.rglob("*.py")}
    rooms = {package.name for package in PACKAGES} | {p.name for q in PACKAGES for p in q.rglob("*") if p.is_dir()}
    kept = [
        (where, seconds)
        for where, seconds in spent.items()
        if where.partition("/")[0] in rooms and where.partition("/")[2].partition(":")[0] in ours
    ]
    kept = sorted(kept, key=lambda one: -one[1])[:MOST]
    named = "apply" if thread.startswith("learner") and path != "predict" else path
    return [
        {
            "path": named if named == path else f"{path}, apply",
            "thread": thread,
            "function": where,
            "us_a_request": round(1e6 * seconds / n, 1),
            "share_of_process": round(seconds / everything, 3),
            "batch": BATCH,
            **machine(),
        }
        for where, seconds in [("(all)", whole), *kept]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", nargs="+", choices=PATHS, default=list(PATHS))
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--out", type=Path, default=RESULTS / "profile.csv")
    arguments = parser.parse_args()
    rows = [row for path in arguments.paths for row in profile(path, arguments.seconds)]
    with arguments.out.open("w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(f"{row['path']:24} {row['thread']:20} {row['us_a_request']:>9} {row['function']}")


if __name__ == "__main__":
    main()
