"""Measure one learner on one stream, and print one line of JSON. `run.py` calls it as a process with one thread.

OMP_NUM_THREADS=1 python benchmarks/peers/one.py --workload grid-2d --learner "shoal diagonal, refined"
"""

import argparse
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from learners import MAKERS, SLOW, TUNED, Learner, scales
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from workloads import WORKLOADS, Stream

CHUNK = 1_000
WINDOW = 2_000
WARMING_CHUNKS = 20
TUNING_ROWS = 10_000
TUNING_S = 10.0  # a threshold that has not finished its rows by then is scored on the rows it has seen


def tuned(name: str, stream: Stream) -> dict[str, float]:
    """Return the threshold with the best agreement on the first rows, for a learner that has one.

    Among equals (within .005), the widest is chosen, which is the fastest."""
    if name not in TUNED:
        return {"radius": 0.0} if name.startswith("CluStream") else {}
    parameter = "threshold" if name.startswith("Birch") else "radius"
    rows = min(TUNING_ROWS if name.startswith("Birch") else 3_000, len(stream.x) // 2)
    best, chosen = -1.0, 1.0
    for scale in reversed(scales(stream)):
        learner = MAKERS[name](stream, **{parameter: scale})
        began = time.process_time()
        for start in range(0, rows, CHUNK):
            learner.learn(stream.x[start : start + CHUNK])
            if time.process_time() - began > TUNING_S:
                break
        score = adjusted_rand_score(stream.labels[rows - CHUNK : rows], learner.label(stream.x[rows - CHUNK : rows]))
        if score > best + 0.005:
            best, chosen = score, scale
    return {parameter: chosen}


def streamed(learner: Learner, stream: Stream, label_as_it_goes: bool) -> tuple[float, np.ndarray]:
    """Return the CPU seconds of learning and, for a drifting stream, the label of each row when it was learned."""
    seconds = 0.0
    labels = np.full(len(stream.x), -1, dtype=np.int64)
    for start in range(0, len(stream.x), CHUNK):
        chunk = stream.x[start : start + CHUNK]
        began = time.process_time()
        learner.learn(chunk)
        seconds += time.process_time() - began
        if label_as_it_goes:
            labels[start : start + CHUNK] = learner.label(chunk)
    return seconds, labels


def warmed(name: str, stream: Stream, options: dict[str, float]) -> None:
    """Load kernels and fill caches, also those of refinements, with a learner that is discarded."""
    learner = MAKERS[name](stream, **options)
    for start in range(0, min((2 if name in SLOW else WARMING_CHUNKS) * CHUNK, len(stream.x)), CHUNK):
        learner.learn(stream.x[start : start + CHUNK])
    learner.label(stream.x[:CHUNK])


def measure(name: str, workload: str, rows: int, seed: int) -> dict[str, object]:
    stream = WORKLOADS[workload](rows, np.random.default_rng(seed))
    if name in SLOW:
        stream = stream._replace(x=stream.x[:20_000], labels=stream.labels[:20_000])
        if stream.test is not None:
            stream = stream._replace(x=stream.x[:10_000], labels=stream.labels[:10_000], test=stream.test[:2_000])
            stream = stream._replace(test_labels=stream.test_labels[:2_000])
    options = tuned(name, stream)
    warmed(name, stream, options)
    gc.collect()
    before = memory_kib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes the present size
    learner = MAKERS[name](stream, **options)
    seconds, labels = streamed(learner, stream, stream.test is None)
    peak = memory_kib("VmHWM")
    probe = stream.x[-10_000:] if stream.test is None else stream.test
    began = time.process_time()
    found = learner.label(probe)
    predicting = time.process_time() - began
    result: dict[str, object] = {
        "rows": len(stream.x),
        "features": stream.x.shape[1],
        "learn_rows_per_cpu_s": len(stream.x) / seconds,
        "predict_rows_per_cpu_s": len(probe) / max(predicting, 1e-9),
        "clusters": learner.n_clusters(),
        "true_clusters": stream.n_clusters,
        "memory_above_data_mib": max(0, peak - before) / 1024,
    }
    if stream.test is None:
        result |= over_time(stream.labels, labels)
    else:
        density = learner.log_density(stream.test)
        result |= {
            "ari": adjusted_rand_score(stream.test_labels, found),
            "nmi": normalized_mutual_info_score(stream.test_labels, found),
            "ceiling": stream.ceiling,
            "log_density": density,
            "short_of_truth_nats": stream.log_density - density,
        }
    return result


def memory_kib(name: str) -> int:
    """Return the present size of this process (`VmRSS`), or its peak since the last reset (`VmHWM`; Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def over_time(truth: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return the agreement within windows after the first (median and worst tenth), and over the whole stream."""
    windows = [slice(s, s + WINDOW) for s in range(WINDOW, len(truth) - WINDOW + 1, WINDOW)] or [slice(0, len(truth))]
    scores = [adjusted_rand_score(truth[w], labels[w]) for w in windows]
    return {
        "ari": adjusted_rand_score(truth, labels),
        "nmi": normalized_mutual_info_score(truth, labels),
        "window_ari_median": float(np.median(scores)),
        "window_ari_tenth": float(np.quantile(scores, 0.1)),
    }


def floors(workload: str, rows: int, seed: int) -> dict[str, object]:
    """Measure the lower limits: a BLAS product of the rows with the true means, and a full E-step at the true K."""
    stream = WORKLOADS[workload](min(rows, 20_000), np.random.default_rng(seed))
    x, k = stream.x, stream.n_clusters
    d = x.shape[1]
    means = np.random.default_rng(0).normal(size=(k, d))
    roots = np.tile(np.eye(d), (k, 1, 1))
    single, singles = x.astype(np.float32), means.astype(np.float32)

    def product() -> None:
        for start in range(0, len(x), CHUNK):
            single[start : start + CHUNK] @ singles.T

    def e_step() -> None:
        for start in range(0, len(x), CHUNK):
            part = x[start : start + CHUNK]
            for root, mean in zip(roots, means, strict=True):
                z = (part - mean) @ root
                np.einsum("nd,nd->n", z, z)

    return {"blas_product_rows_per_cpu_s": rate(product, len(x)), "e_step_rows_per_cpu_s": rate(e_step, len(x))}


def rate(work: Callable[[], None], rows: int) -> float:
    """Return the rows per CPU second, over at least a quarter of a second."""
    work()
    began, turns = time.process_time(), 0
    while time.process_time() - began < 0.25:
        work()
        turns += 1
    return turns * rows / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=list(WORKLOADS), required=True)
    parser.add_argument("--learner", choices=[*MAKERS, "floors"], required=True)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    what = (options.workload, options.rows, options.seed)
    print(json.dumps(floors(*what) if options.learner == "floors" else measure(options.learner, *what)))


if __name__ == "__main__":
    main()
