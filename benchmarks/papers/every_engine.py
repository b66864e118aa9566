"""Every engine on every real data set that suits it: one table.

    SHOAL_DATA=FOLDER python benchmarks/papers/every_engine.py [--quick] [--data galaxy mnist ...] [--limit-s 30]

`sample` has at most 2,000 random rows to learn and 1,000 others held out. `whole` has all other rows of longer sets to
learn. Rows are in random order; other benchmarks measure streams that drift.

All engines have concentration 1 and one prior: that of `prior="auto"` on the rows to learn. For the words of the papers
it has ten pseudo-counts per term, as in Daume (2007). Points are in the prior's coordinates. `shoal, own prior` is
`StreamingDPMixture` with its defaults, which estimates the prior again when it refines. Samplers make 30 sweeps and
keep 20 more. Everything else has its default.

Other programs see the same coordinates. They are scikit-learn's BayesianGaussianMixture (Dirichlet process, 30
components, 500 rounds), its MiniBatchKMeans (told the number of classes, or 10; for counts, on term frequencies), and
river's DBSTREAM (radius: the median distance to the 20th neighbour, not tuned).

- `held_out`: mean log density of the held-out rows in nats, in the units of the data.
- `nmi`, `ari`: with the labels, on held-out rows.
- `components`: those that hold more than half a point; for DBSTREAM, its clusters.
- `cpu_s`: the fit, with compiled kernels.
- `peak_mib`: most memory of fit and scoring, above that of libraries and data.
- `outcome`: empty, or "over N s" of CPU, or why an engine refuses the set.

Each run is a process of its own.
"""

import importlib.util
import itertools
import multiprocessing
import resource
import signal
import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
from real_sets import SETS, RealSet
from record import Table, by_size, floats, options, path_of, plot
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from shoal import DPMixture, ShoalError, StreamingDPMixture
from shoal.points.rows import SparseRows

COLUMNS = (
    "data family features size points held_out_points classes method held_out nmi ari components cpu_s peak_mib outcome"
)
BATCH = (
    *("vdp", "fast-vdp", "tsb", "o-tsb", "ctsb", "o-ctsb", "fsd", "cfsd", "tfv"),
    *("gibbs", "blocked-gibbs", "split-merge", "search"),
)
SAMPLERS = ("gibbs", "blocked-gibbs", "split-merge")
STREAMS: dict[str, dict[str, Any]] = {
    "sva": {"method": "sva", "refinement": None},
    "sva-pm": {"method": "sva-pm", "refinement": None},
    "shoal, one pass": {"refinement": None, "window": 0},
    "shoal": {},
    "shoal, own prior": {"prior": "auto"},
}
PEERS = ("BayesianGaussianMixture", "MiniBatchKMeans", "DBSTREAM")
METHODS = (*BATCH, *STREAMS, *PEERS)


class NotSuitedError(Exception):
    """An engine does not accept such a set."""


# The engines: each gives a way to score, a way to label and the number of components


class Fitted:
    """The results of an engine after its fit."""

    def __init__(self, score: Callable[[], float] | None, label: Callable[[], Any], components: int) -> None:
        self.score, self.label, self.components = score, label, components


def fit(method: str, data: RealSet, **more: Any) -> Fitted:
    """`more`: settings of a stream."""
    if method in BATCH:
        sweeps = {"n_samples": 20, "burn_in": 30} if method in SAMPLERS else {}
        model: Any = DPMixture(data.prior, method, random_state=0, **sweeps).fit(data.x)
        return Fitted(
            lambda: model.score(data.test), lambda: model.predict(data.test), int((model.masses_ > 0.5).sum())
        )
    if method in STREAMS:
        settings = {"prior": data.prior, "random_state": 0} | STREAMS[method] | more
        model = StreamingDPMixture(data.prior.name, **settings).fit(data.x)
        return Fitted(lambda: model.score(data.test), lambda: model.predict(data.test), len(model.component_ids_))
    return {"BayesianGaussianMixture": bayesian, "MiniBatchKMeans": k_means, "DBSTREAM": dbstream}[method](data)


def bayesian(data: RealSet) -> Fitted:
    from sklearn.mixture import BayesianGaussianMixture

    if not data.located:
        raise NotSuitedError("no Gaussian data")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 500 rounds need not converge
        model = BayesianGaussianMixture(
            n_components=min(30, len(data.x)),
            covariance_type="diag" if data.prior.name == "diagonal" else "full",
            weight_concentration_prior_type="dirichlet_process",
            weight_concentration_prior=1.0,
            max_iter=500,
            random_state=0,
        ).fit(data.x)
    used = int((model.weights_ * len(data.x) > 0.5).sum())
    return Fitted(lambda: float(model.score(data.test)), lambda: model.predict(data.test), used)


def k_means(data: RealSet) -> Fitted:
    from sklearn.cluster import MiniBatchKMeans

    x, test = (_frequencies(part) for part in (data.x, data.test))
    k = min(data.n_classes or 10, x.shape[0])
    model = MiniBatchKMeans(k, n_init=3, random_state=0).fit(x)
    return Fitted(None, lambda: model.predict(test), k)


def _frequencies(x: Any) -> Any:
    from scipy.sparse import csr_array
    from sklearn.preprocessing import normalize

    return normalize(csr_array(x), norm="l1") if isinstance(x, SparseRows) else x


def dbstream(data: RealSet) -> Fitted:
    from river.cluster import DBSTREAM
    from scipy.spatial.distance import cdist

    if isinstance(data.x, SparseRows):
        raise NotSuitedError("no sparse rows")
    near = data.x[:500]
    radius = float(np.median(np.sort(cdist(near, near), axis=1)[:, min(20, len(near) - 1)]))
    model = DBSTREAM(clustering_threshold=radius or 1.0, fading_factor=1e-5, intersection_factor=0.05)
    for row in data.x.tolist():
        model.learn_one(dict(enumerate(row)))
    model.predict_one(dict(enumerate(data.test[0].tolist())))  # it clusters at the first prediction

    def labels() -> Any:
        return np.array([model.predict_one(dict(enumerate(row))) for row in data.test.tolist()])

    return Fitted(None, labels, int(model.n_clusters))


# One run, in a process of its own


def run(method: str, data: RealSet, limit_s: int) -> dict[str, Any]:
    """Return the columns of one run. It runs in a fork, which has the libraries, compiled kernels and data already."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, method, data, limit_s))
    child.start()
    theirs.close()
    try:
        found: dict[str, Any] = ours.recv()
    except EOFError:
        child.join()
        over = child.exitcode == -signal.SIGXCPU
        found = {"outcome": f"over {limit_s} s" if over else f"failed, exit code {child.exitcode}"}
    child.join()
    return found


def _child(pipe: Any, method: str, data: RealSet, limit_s: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    first, began = _memory(), time.process_time()
    try:
        fitted = fit(method, data)
    except (NotSuitedError, ShoalError) as error:
        pipe.send({"outcome": f"refuses: {str(error).partition(';')[0]}"})
        return
    found: dict[str, Any] = {"cpu_s": time.process_time() - began, "components": fitted.components, "outcome": ""}
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if fitted.score is not None:
        found["held_out"] = float(fitted.score()) - data.log_volume
    if data.y is not None:
        labels = fitted.label()
        found["nmi"] = float(normalized_mutual_info_score(data.y, labels))
        found["ari"] = float(adjusted_rand_score(data.y, labels))
    found["peak_mib"] = float(max(0, _memory() - first) / 1024)
    pipe.send(found)


def _memory() -> int:
    """Return the most memory that this process has used, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def warm(methods: list[str], data: RealSet) -> None:
    """Load libraries and compile kernels. No time includes it, and forks inherit it."""
    for method in methods:
        for n in (40, 80):
            try:  # streams with a short warm-up, so that they refine
                fitted = fit(method, data.head(n), **({"warmup_points": 30} if method in STREAMS else {}))
            except (NotSuitedError, ShoalError, ValueError):
                continue
            if fitted.score is not None:
                fitted.score()
            fitted.label()


def draw(arguments: Namespace, table: Table) -> None:
    """Draw each engine's distance from the best of each set, in nats per held-out row, up to fifty."""
    panels = []
    for size in dict.fromkeys(row["size"] for row in table.rows):
        series = {}
        for data in dict.fromkeys(row["data"] for row in table.where(size=size)):
            rows = [row for row in table.where(size=size, data=data) if row["held_out"]]
            behind = max(floats(rows, "held_out"), default=0.0) - np.array(floats(rows, "held_out"))
            shown = [(float(loss), row["method"]) for loss, row in zip(behind, rows, strict=True) if loss <= 50.0]
            series[data] = ([loss for loss, _ in shown], [method for _, method in shown])
        panels.append({"series": series, "x": f"nats behind the best ({size})", "y": ""})
    plot(path_of(arguments, "every_engine", ".png"), panels, "every engine on every real set")


def main() -> None:
    parser = options(__doc__, data=tuple(SETS), methods=METHODS, sizes=("sample", "whole"))
    parser.add_argument("--limit-s", type=int, default=0, help="CPU seconds a fit may take; 0: 30, quick 10, tiny 5")
    arguments = parser.parse_args()
    limit_s = arguments.limit_s or by_size(arguments, 30, 10, 5)
    n, n_held_out = by_size(arguments, (2_000, 1_000), (500, 300), (60, 30))
    methods = [m for m in arguments.methods if m != "DBSTREAM" or importlib.util.find_spec("river")]
    if len(methods) < len(arguments.methods):
        print("river is not installed: DBSTREAM is left out (pip install river)")
    table = Table(path_of(arguments, "every_engine", ".csv"), COLUMNS, ("data", "family", "size", "method"))
    sizes = by_size(arguments, {"sample": n, "whole": None}, {"sample": n}, {"sample": n})
    for size, name in itertools.product((size for size in sizes if size in arguments.sizes), arguments.data):
        data = SETS[name](sizes[size], n_held_out, arguments.seed)
        if size == "whole" and len(data.x) <= n:
            continue
        warm(methods, data)
        for method in methods:
            table.add(
                data=name,
                family=data.prior.name,
                features=data.x.shape[1],
                size=size,
                points=len(data.x),
                held_out_points=len(data.test),
                classes=data.n_classes or "",
                method=method,
                **run(method, data, limit_s),
            )
    draw(arguments, table)


if __name__ == "__main__":
    main()
