"""CPU time per point of the one-pass kernel for each family, next to scikit-learn's MiniBatchKMeans with the right K.

Run: python benchmarks/micro/one_pass.py [--short] [--repeats 7]. Writes benchmarks/results/one_pass.csv: one line per
measurement, the median over repeats, with the machine. Learners take turns within the same minute, on one thread.
Compare ratios within a run, because times depend on other work of the machine.

Two lower limits stand beside them: one float32 BLAS product of the points with the K means, and the Mahalanobis part of
a full-covariance E-step in float64, one BLAS product per component.

Points come from K unit Gaussians whose centres are about c sqrt(D) apart. Before the clock starts, each learner has
seen 100 points of each cluster, and at least 20 D. It keeps the K components that it has found (no births), and then
learns chunks of 1,024 rows.
"""

import argparse
import csv
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import sklearn
from sklearn.cluster import MiniBatchKMeans
from threadpoolctl import threadpool_limits

from shoal.families.diagonal import NormalInverseGamma
from shoal.families.gaussian import NormalInverseWishart
from shoal.families.known_covariance import KnownCovariance
from shoal.families.predictive_cache import refresh
from shoal.sequential.one_pass import one_pass_inplace
from shoal.sequential.passes import Components, PassRules, new_components
from shoal.sequential.stream_kernels import warm_kernels

RESULTS = Path(__file__).resolve().parents[1] / "results" / "one_pass.csv"
CHUNK = 1_024
SIZES = ((2, 9, 4.0), (16, 10, 2.0), (16, 50, 2.0), (16, 200, 2.0), (64, 50, 1.0), (128, 50, 1.0), (128, 200, 1.0))
SHORT = ((2, 9, 4.0), (16, 10, 2.0), (16, 50, 2.0), (64, 50, 1.0))
BUDGET_S = 0.25  # work per measurement; it determines the number of chunks


class Figure(NamedTuple):
    what: str
    features: int
    components: int
    separation: float
    chunk: int
    cpu_ns_per_point: float
    times_minibatchkmeans: float
    times_product: float
    times_e_step: float


def draw(d: int, k: int, separation: float, rng: np.random.Generator) -> tuple[np.ndarray, Callable[[int], np.ndarray]]:
    """Draw `_seen(d)` points of each cluster in order, and return a source of more points in random order."""
    centres = separation / np.sqrt(2.0) * rng.normal(size=(k, d))

    def more(n: int) -> np.ndarray:
        return centres[rng.integers(k, size=n)] + rng.normal(size=(n, d))

    return np.repeat(centres, _seen(d), axis=0) + rng.normal(size=(_seen(d) * k, d)), more


def _seen(d: int) -> int:
    return max(100, 20 * d)


def priors(d: int, separation: float) -> dict[str, Any]:
    spread = separation**2 / 2
    return {
        "known_covariance, spherical": KnownCovariance(np.zeros(d), spread, 1.0),
        "known_covariance, full": KnownCovariance(np.zeros(d), spread * np.eye(d), np.eye(d)),
        "diagonal": NormalInverseGamma.weak(d, 1.0),
        "gaussian": NormalInverseWishart.weak(d, 1.0),
    }


def kernel_learner(prior: Any, seen: np.ndarray, k: int, pair_rule: Any) -> Callable[[np.ndarray], None]:
    components = new_components(prior, k + 1, pair_rule)
    for j, part in enumerate(np.split(seen, k)):
        for target, source in zip(components.stats, prior.suffstats(part, np.ones((len(part), 1))), strict=True):
            target[j] = source[0]
    components = Components(components.stats, refresh(prior, components.stats, k), *components[2:])
    rules = PassRules(1.0, 0.5, 1e-3, pair_rule, k)
    labels, log_density = np.zeros(CHUNK, dtype=np.int64), np.zeros(CHUNK)

    def learn(x: np.ndarray) -> None:
        one_pass_inplace(prior, rules, components, k, 0, x, labels[: len(x)], log_density[: len(x)])

    return learn


def minibatch_learner(seen: np.ndarray, k: int) -> Callable[[np.ndarray], None]:
    model = MiniBatchKMeans(k, batch_size=CHUNK, n_init=1, random_state=0)
    model.partial_fit(np.random.default_rng(0).permutation(seen))
    return lambda x: model.partial_fit(x)


def floors(d: int, k: int) -> dict[str, Callable[[np.ndarray], None]]:
    """Measure the lower limits: a product with the means, and an E-step."""
    rng = np.random.default_rng(0)
    means, roots = rng.normal(size=(k, d)), np.tile(np.eye(d), (k, 1, 1))
    means32 = means.T.astype(np.float32)
    kept = np.empty((CHUNK, k))

    def product(x: np.ndarray) -> None:
        np.matmul(x, means32)

    def e_step(x: np.ndarray) -> None:
        for j in range(k):
            z = (x - means[j]) @ roots[j]
            np.einsum("nd,nd->n", z, z, out=kept[:, j])

    return {"float32 product": product, "E-step": e_step}


def cpu_ns(learn: Callable[[np.ndarray], None], chunks: np.ndarray) -> float:
    start = time.process_time_ns()
    for chunk in chunks:
        learn(chunk)
    return (time.process_time_ns() - start) / (chunks.shape[0] * chunks.shape[1])


def measure(d: int, k: int, separation: float, repeats: int) -> list[Figure]:
    seen, more = draw(d, k, separation, np.random.default_rng(0))
    learners = {"MiniBatchKMeans": minibatch_learner(seen, k)}
    for name, prior in priors(d, separation).items():
        learners[name] = kernel_learner(prior, seen, k, "none")
    learners["gaussian, entropy pair sums"] = kernel_learner(priors(d, separation)["gaussian"], seen, k, "entropy")
    learners |= floors(d, k)
    for learn in learners.values():  # the first call of a kernel loads it from the disk
        learn(more(CHUNK))
    rounds = {what: _rounds(cpu_ns(learn, more(CHUNK)[None])) for what, learn in learners.items()}
    times: dict[str, list[float]] = {what: [] for what in learners}
    for _ in range(repeats):
        for what, learn in learners.items():
            chunks = more(rounds[what] * CHUNK).reshape(-1, CHUNK, d)
            if what == "float32 product":
                chunks = chunks.astype(np.float32)
            times[what].append(cpu_ns(learn, chunks))
    medians = {what: statistics.median(ns) for what, ns in times.items()}
    bases = [medians[name] for name in ("MiniBatchKMeans", "float32 product", "E-step")]
    return [Figure(what, d, k, separation, CHUNK, ns, *(ns / base for base in bases)) for what, ns in medians.items()]


def _rounds(ns_per_point: float) -> int:
    """Return the number of chunks that fill the budget, from 1 to 100."""
    return max(1, min(100, int(BUDGET_S * 1e9 / (ns_per_point * CHUNK))))


def one_at_a_time(repeats: int) -> Figure:
    """Measure the cost of a call: 16 features, 10 components, one point per call."""
    seen, more = draw(16, 10, 2.0, np.random.default_rng(0))
    learn = kernel_learner(priors(16, 2.0)["gaussian"], seen, 10, "entropy")
    ns = statistics.median(cpu_ns(learn, more(2_000)[:, None, :]) for _ in range(repeats))
    return Figure("gaussian, a call a point", 16, 10, 2.0, 1, ns, *(3 * [float("nan")]))


def machine() -> str:
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}"
    cpus = f"{numba.config.NUMBA_DEFAULT_NUM_THREADS} CPUs, 1 thread used"
    return f"{platform.machine()}, {cpus}, {versions}, scikit-learn {sklearn.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="four of the sizes only")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    start = time.perf_counter()
    warm_kernels()
    print(f"kernels ready after {time.perf_counter() - start:.1f} s")
    date = datetime.now(UTC).date().isoformat()
    RESULTS.parent.mkdir(exist_ok=True)
    with threadpool_limits(1), RESULTS.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["date", "machine", *Figure._fields])
        figures = [one_at_a_time(options.repeats)]
        for size in SHORT if options.short else SIZES:
            figures += measure(*size, options.repeats)
        for figure in figures:
            writer.writerow([date, machine(), *(f"{v:.4g}" if isinstance(v, float) else v for v in figure)])
            print(
                f"{figure.what:30s} D={figure.features:<4} K={figure.components:<4} c={figure.separation:g} "
                f"{figure.cpu_ns_per_point:10,.0f} ns a point {figure.times_minibatchkmeans:7.2f} x MiniBatchKMeans "
                f"{figure.times_product:7.2f} x product {figure.times_e_step:7.2f} x E-step"
            )


if __name__ == "__main__":
    main()
