"""Comparison with scikit-learn's BayesianGaussianMixture(weight_concentration_prior_type="dirichlet_process").

    python benchmarks/papers/against_sklearn.py [--quick] [--data ten grid mnist] [--method ...]

All methods have the same points, normal-inverse-Wishart prior, concentration, truncation, full covariances and one
start. `tsb-k-means` and `o-tsb-k-means` start where scikit-learn does: at k-means with as many centres as components.
The time of k-means is counted. They stop as scikit-learn does, after a round that gains less than 1e-3 nats in all.
`tsb` is scikit-learn's own model with its order of updates. scikit-learn uses its default `tol` (1e-3), or 1e-5 as
`sklearn-tight`, and at most 1,000 rounds.

scikit-learn's `lower_bound_` omits constants. So one function computes the bound of every fit: that of stick-breaking
truncated at T, from the method's responsibilities, with components in their best order (`fit_o_tsb` without rounds).
`held_out` is the posterior predictive log density of the same responsibilities. `own_held_out` is scikit-learn's
`score`, the density at expected parameters. `vdp` and `fast-vdp` have no truncation; with more than T components they
have no truncated bound. MNIST (the first 10,000 digits, 50-D) needs SHOAL_DATA. CPU seconds are the least of three runs
for 2,000 points, and one run for more. The script takes about ten minutes.
"""

import os
import warnings
from argparse import Namespace
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from record import Table, best_of, by_size, data_file, options, path_of, plot
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from synthetic import prior_for, ten_gaussians

from shoal.families import NormalInverseWishart
from shoal.mixture import BatchFit, log_density
from shoal.variational import fit_fast_vdp, fit_o_tsb, fit_tsb, fit_vdp

METHODS = ("sklearn", "sklearn-tight", "tsb-k-means", "o-tsb", "o-tsb-k-means", "vdp", "fast-vdp")
COLUMNS = (
    "data points features truncation seed method cpu_s times_as_fast_as_sklearn bound bound_gain_nats_a_point held_out "
    "held_out_gain own_held_out components rounds"
)


class Task(NamedTuple):
    name: str
    x: np.ndarray
    test: np.ndarray
    prior: NormalInverseWishart
    truncation: int


def tasks(name: str, seed: int, size: int) -> Task:
    rng = np.random.default_rng(seed)
    if name == "ten":
        mixture = ten_gaussians(16, 2.0, rng)
        return Task(name, mixture.draw(size, rng), mixture.draw(10_000, rng), prior_for(16), 20)
    if name == "grid":
        centres = 4.0 * np.array([(i, j) for i in range(3) for j in range(3)], dtype=float)
        x = centres[rng.integers(9, size=size + 10_000)] + rng.normal(size=(size + 10_000, 2))
        return Task(name, x[:size], x[size:], NormalInverseWishart([4.0, 4.0], 0.01, 4.0, 4.0 * np.eye(2)), 20)
    with np.load(data_file("mnist_pca50.npz"), allow_pickle=False) as data:
        x, test = data["X_train"].astype(np.float64), data["X_test"].astype(np.float64)
    unit = float(np.sqrt(x.var(axis=0).mean()))
    return Task(name, np.ascontiguousarray(x[:size] / unit), test / unit, NormalInverseWishart.weak(50, 0.2), 40)


def sklearn_fit(task: Task, tol: float, seed: int) -> BayesianGaussianMixture:
    prior = task.prior
    model = BayesianGaussianMixture(
        n_components=task.truncation,
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=1.0,
        mean_prior=prior.mean,
        mean_precision_prior=prior.mean_strength,
        degrees_of_freedom_prior=prior.dof,
        covariance_prior=prior.scale_matrix,
        max_iter=1_000,
        tol=tol,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(task.x)


def judged(task: Task, resp: np.ndarray) -> BatchFit:
    """Fit the truncated model to fixed responsibilities (N, T), with components in their best order."""
    if resp.shape[1] < task.truncation:
        resp = np.hstack([resp, np.zeros((len(resp), task.truncation - resp.shape[1]))])
    resp = resp / resp.sum(axis=1, keepdims=True)
    resp = resp[:, np.argsort(-resp.sum(axis=0), kind="stable")]  # the best order, with a concentration of one
    rng = np.random.default_rng(0)
    return fit_o_tsb(task.prior, task.x, concentration=1.0, resp_init=resp, max_iter=0, rng=rng)


def fit_of(task: Task, method: str, seed: int) -> Callable[[], object]:
    def rng() -> np.random.Generator:
        return np.random.default_rng(seed)

    def from_k_means(fit: Callable[..., BatchFit]) -> BatchFit:
        centres = KMeans(task.truncation, n_init=1, random_state=seed).fit_predict(task.x)
        start = np.eye(task.truncation)[centres]
        rules = {"tol": 1e-3 / len(task.x), "max_iter": 1_000}
        return fit(task.prior, task.x, concentration=1.0, resp_init=start, rng=rng(), **rules)

    works: dict[str, Callable[[], object]] = {
        "sklearn": lambda: sklearn_fit(task, 1e-3, seed),
        "sklearn-tight": lambda: sklearn_fit(task, 1e-5, seed),
        "o-tsb": lambda: fit_o_tsb(task.prior, task.x, concentration=1.0, truncation=task.truncation, rng=rng()),
        "tsb-k-means": lambda: from_k_means(fit_tsb),
        "o-tsb-k-means": lambda: from_k_means(fit_o_tsb),
        "vdp": lambda: fit_vdp(task.prior, task.x, concentration=1.0, rng=rng()),
        "fast-vdp": lambda: fit_fast_vdp(task.prior, task.x, concentration=1.0, point_rounds=10, rng=rng()),
    }
    return works[method]


def measure(table: Table, task: Task, methods: list[str], seed: int, repeats: int) -> None:
    first: dict[str, float] = {}
    n = len(task.x)
    for method in methods:
        found, seconds = best_of(repeats, fit_of(task, method, seed))
        if isinstance(found, BayesianGaussianMixture):
            resp, rounds, own = found.predict_proba(task.x), found.n_iter_, float(found.score(task.test))
        else:
            assert isinstance(found, BatchFit)
            assert found.resp is not None
            resp, rounds, own = found.resp, found.n_rounds, ""
        fits = resp.shape[1] <= task.truncation
        bound = judged(task, resp).elbo if fits else float("nan")
        density = judged(task, resp) if isinstance(found, BayesianGaussianMixture) else found
        held_out = float(log_density(task.prior, density, task.test).mean())
        if not first:
            first = {"cpu_s": seconds, "bound": bound, "held_out": held_out}
        table.add(
            data=task.name,
            points=n,
            features=task.x.shape[1],
            truncation=task.truncation,
            seed=seed,
            method=method,
            cpu_s=seconds,
            times_as_fast_as_sklearn=first["cpu_s"] / seconds,
            bound=bound if fits else "",
            bound_gain_nats_a_point=(bound - first["bound"]) / n if fits else "",
            held_out=held_out,
            held_out_gain=held_out - first["held_out"],
            own_held_out=own,
            components=int((resp.sum(axis=0) > 0.5).sum()),
            rounds=rounds,
        )


def places(arguments: Namespace) -> list[tuple[str, int, int]]:
    """Return data, points and seed, large sets first. An interrupted run has each set once before any set twice."""
    wanted = list(arguments.data)
    if "mnist" in wanted and "SHOAL_DATA" not in os.environ:
        print("mnist is left out: SHOAL_DATA is not set")
        wanted.remove("mnist")
    drawn = [name for name in wanted if name != "mnist"]
    sizes, seeds = by_size(arguments, (20_000, 2_000), (2_000,), (100,)), range(by_size(arguments, 3, 2, 1))
    first = [(name, size, 0) for size in sizes for name in drawn]
    digits = [("mnist", arguments.digits or by_size(arguments, 10_000, 2_000, 100), 0)] if "mnist" in wanted else []
    return first + digits + [(name, size, seed) for seed in seeds[1:] for size in sizes for name in drawn]


def main() -> None:
    parser = options(__doc__, data=("ten", "grid", "mnist"), method=METHODS[1:])
    parser.add_argument("--digits", type=int, help="points of mnist (10,000; --quick 2,000)")
    arguments = parser.parse_args()
    table = Table(path_of(arguments, "against_sklearn", ".csv"), COLUMNS, ("data", "points", "seed", "method"))
    for name, size, seed in places(arguments):
        repeats = by_size(arguments, 1 if size > 2_000 else 3, 3, 1)
        wanted = [METHODS[0], *(method for method in METHODS if method in arguments.method)]
        measure(table, tasks(name, arguments.seed + seed, size), wanted, seed, repeats)
    panels = []
    for column, words in (("times_as_fast_as_sklearn", "times as fast"), ("held_out_gain", "held-out gain, nats")):
        series = {}
        for method in METHODS[1:]:
            rows = table.where(method=method)
            series[method] = (list(range(len(rows))), [float(row[column]) for row in rows])
        panels.append({"series": series, "x": "run (rows of the table)", "y": words, "log": "y" * (not panels)})
    plot(path_of(arguments, "against_sklearn", ".png"), panels, "beside scikit-learn's BayesianGaussianMixture")


if __name__ == "__main__":
    main()
