"""A data set on disk that need not fit in memory: rows a second, memory of all processes, bound beside that in memory.

Run: python benchmarks/offline.py [--rows 10000000] [--workers 2] [--executor processes] [--folder FOLDER] [--in-memory]

Ten Gaussians with full covariances, 16 features, c = 2 (`peers/workloads.separated`), written as Parquet in single
precision, two million rows a file: 100 million rows are 6.4 GB, which the command deletes at its end. It fits them by
`DPMixture(method="vdp")`, writes labels and log densities, and prints for each part its seconds, rows a second, CPU
seconds of all processes, and the largest resident memory of all processes together, which counts shared pages once a
process. Then components, agreement (adjusted Rand index) with the true ones on the last file, and the bound in nats a
row. Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 for the fit in memory; workers have one BLAS thread anyway.

`--in-memory` fits the same rows in memory as well, and prints the ratio of the free energies, -bound. A ratio below one
says that the fit on disk is the better one. Both choose their priors by 1,000 rows, not the same ones; so the ratio
with one prior for both is printed too.
"""

import argparse
import csv
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as parquet
from peers.workloads import Mixture, separated
from sklearn.metrics import adjusted_rand_score

from shoal import DPMixture

D, FILE_ROWS, GROUP_ROWS = 16, 2_000_000, 250_000
RESULTS = Path(__file__).parent / "results" / "offline.csv"
COLUMNS = ("rows", "executor", "workers", "part", "seconds", "rows_per_s", "cpu_s", "peak_mib")


class Watch:
    """Peak memory and CPU time of this process and all below it while a part runs."""

    def __init__(self) -> None:
        self.peak, self.cpu = 0, {}
        self._stop = threading.Event()

    def __enter__(self) -> "Watch":
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._started = time.perf_counter()
        self._before = _cpu(psutil.Process())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.seconds = time.perf_counter() - self._started
        self.cpu_s = _cpu(psutil.Process()) - self._before + sum(self.cpu.values())

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.1):
            total = me.memory_info().rss
            for child in me.children(recursive=True):
                try:
                    total += child.memory_info().rss
                    self.cpu[child.pid] = _cpu(child)
                except psutil.NoSuchProcess:
                    pass
            self.peak = max(self.peak, total)


def _cpu(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system


def make(folder: Path, rows: int, mixture: Mixture, rng: np.random.Generator) -> np.ndarray:
    """Write the files; the true clusters of the last one."""
    z = np.zeros(0, dtype=int)
    schema = pa.schema([(f"x{i}", pa.float32()) for i in range(D)])
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        n, labels = min(FILE_ROWS, rows - start), []
        with parquet.ParquetWriter(folder / f"part-{number:04d}.parquet", schema, compression="none") as writer:
            for first in range(0, n, GROUP_ROWS):
                x, z = mixture.draw(min(GROUP_ROWS, n - first), rng)
                columns = np.ascontiguousarray(x.T, dtype=np.float32)
                writer.write_table(pa.table(list(columns), schema=schema), row_group_size=GROUP_ROWS)
                labels.append(z)
        z = np.concatenate(labels)
    return z


def report(arguments: argparse.Namespace, part: str, watch: Watch) -> None:
    row = (
        arguments.rows,
        arguments.executor,
        arguments.workers,
        part,
        round(watch.seconds, 2),
        round(arguments.rows / watch.seconds),
        round(watch.cpu_s, 1),
        round(watch.peak / 2**20),
    )
    print(
        "  ".join(
            f"{name} {value:,}" if isinstance(value, int | float) else value
            for name, value in zip(COLUMNS, row, strict=True)
        )
    )
    RESULTS.parent.mkdir(exist_ok=True)
    fresh = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(COLUMNS)
        writer.writerow(row)


def run(arguments: argparse.Namespace, folder: Path) -> None:
    mixture = separated(D, 2.0)(np.random.default_rng(0))
    with Watch() as watch:
        z = make(folder, arguments.rows, mixture, np.random.default_rng(1))
    report(arguments, "made", watch)
    passes: list[tuple[str, float]] = []

    def observe(at: Any) -> None:
        if not passes or passes[-1][0] != at.message or at.fraction == 0.0:
            passes.append((at.message, time.perf_counter()))

    model = DPMixture(
        "gaussian",
        random_state=0,
        executor=arguments.executor,
        n_jobs=None if arguments.executor == "in-process" else arguments.workers,
        callback=observe,
    )
    started = time.perf_counter()
    with Watch() as watch:
        model.fit(folder)
    report(arguments, "fit", watch)
    for (name, since), (_, until) in zip(passes, [*passes[1:], ("", started + watch.seconds)], strict=True):
        if until - since > 0.02 * watch.seconds:
            print(f"    {name}: {until - since:.1f} s")
    with Watch() as watch:
        names = model.write_predictions(folder, folder / "out")
    report(arguments, "labels", watch)
    labels = parquet.read_table(folder / "out" / names[-1])["label"].to_numpy()
    bound = model.elbo_ / arguments.rows
    print(f"{len(model.weights_)} components of {len(mixture.weights)}, agreement on the last file ", end="")
    print(f"{adjusted_rand_score(z, labels):.4f}, bound {bound:.5f} nats a row, ", end="")
    print(f"{model._fitted.fit.extra['tying_cost'][0] / arguments.rows:.5f} of which the cells had missed")
    if arguments.in_memory:
        files = sorted(folder.glob("*.parquet"))
        x = np.concatenate(
            [np.stack([c.to_numpy() for c in parquet.read_table(file).columns], axis=1) for file in files]
        )
        with Watch() as watch:
            whole = DPMixture("gaussian", random_state=0).fit(x)
        report(arguments, "fit in memory", watch)
        print(
            f"free energy over that in memory: {model.elbo_ / whole.elbo_:.5f}, {len(whole.weights_)} components there"
        )
        z_scaled = (x - model.location_) / model.scale_
        same = DPMixture(model.prior_, random_state=0).fit(z_scaled)
        volume = arguments.rows * float(np.log(model.scale_).sum())
        print(f"with one prior for both: {model.elbo_ / (same.elbo_ - volume):.5f}, {len(same.weights_)} components")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--executor", default="processes", choices=("in-process", "processes", "ray"))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the files are written")
    parser.add_argument("--in-memory", action="store_true", help="fit the same rows in memory as well")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shoal-offline-", dir=arguments.folder))
    try:
        run(arguments, folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
