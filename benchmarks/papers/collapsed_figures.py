"""Kurihara, Welling and Teh (2007), figures 2 to 6: six variational methods and collapsed Gibbs by held-out density.

    python benchmarks/papers/collapsed_figures.py [--quick] [--figure synthetic mnist] [--repeats 30]

Figures 2 and 3 vary the number of points N, and figures 4 and 5 the truncation T, absolute and relative to Gibbs. The
data are ten Gaussians in 16-D, c = 2, with 1,000 test points. Figure 6 needs SHOAL_DATA: 5,000 MNIST digits for
training and all 10,000 test digits, in 50 principal components divided by one number. Its prior is that of
`fast_vdp_mnist.py`. The concentration is 1. The paper gives neither its priors nor the number of data sets; for MNIST
it has 30 splits.

In every data set, all methods start from the same responsibilities (`seeded_resp`: soft, around points far apart).
Gibbs starts from labels drawn from them. If it assigned points one after another, it would stay in one component in
16-D, because a single point would have to start the second. Variational methods stop by the same rule. Gibbs keeps
`SWEEPS` samples after as many of burn-in.

One file has the mean log density of the test points for every data set and method. The other, `-summary`, has their
means. For every pair that the paper orders, it also has the mean paired difference over data sets with its standard
error. Present rows are kept, so several runs can fill a table. The full synthetic form takes about twenty minutes, and
MNIST two to four minutes per split.
"""

import statistics
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
from record import Table, by_size, data_file, floats, options, path_of, plot, timed
from synthetic import prior_for, ten_gaussians

from shoal.families import AnyFamily, NormalInverseWishart
from shoal.mixture import BatchFit, log_density
from shoal.sampling import fit_gibbs, pool_samples
from shoal.variational import fit_cfsd, fit_ctsb, fit_fsd, fit_o_ctsb, fit_o_tsb, fit_tsb, seeded_resp

ENGINES: dict[str, Callable[..., BatchFit]] = {
    "tsb": fit_tsb,
    "o-tsb": fit_o_tsb,
    "ctsb": fit_ctsb,
    "o-ctsb": fit_o_ctsb,
    "fsd": fit_fsd,
    "cfsd": fit_cfsd,
}
METHODS = (*ENGINES, "gibbs")
PAIRS = (("ctsb", "tsb"), ("o-ctsb", "o-tsb"), ("cfsd", "fsd"), ("o-tsb", "tsb"), ("o-ctsb", "ctsb"))
"""The paper: the first of each at least as good as the second."""
SWEEPS = (200, 50, 5)
COLUMNS = "figure points truncation repeat method held_out components elbo rounds cpu_s held_out_truth"
SUMMARY = "figure points truncation repeats what mean standard_error better_in paper verdict"


class Data:
    """A training and a test set, with their prior and the density of the truth where it is known."""

    def __init__(self, x: np.ndarray, test: np.ndarray, prior: AnyFamily, truth: float | str = "") -> None:
        self.x, self.test, self.prior, self.truth = x, test, prior, truth


def synthetic(n: int, repeat: int) -> Data:
    rng = np.random.default_rng(1_000 + repeat)
    mixture = ten_gaussians(16, 2.0, rng)
    test = mixture.draw(1_000, rng)
    return Data(mixture.draw(n, rng), test, prior_for(16), float(mixture.log_density(test).mean()))


def mnist(n: int, repeat: int) -> Data:
    with np.load(data_file("mnist_pca50.npz"), allow_pickle=False) as data:
        x, test = data["X_train"].astype(np.float64), data["X_test"].astype(np.float64)
    unit = float(np.sqrt(x.var(axis=0).mean()))
    rows = np.random.default_rng(2_000 + repeat).choice(len(x), n, replace=False)
    return Data(np.ascontiguousarray(x[rows]) / unit, test / unit, NormalInverseWishart.weak(x.shape[1], 0.2))


def measure(table: Table, data: Data, place: dict[str, Any], sweeps: int) -> None:
    """Run every method that has no row yet on one data set."""
    for method in METHODS:
        if table.where(**place, method=method):
            continue
        rng = np.random.default_rng(int(place["repeat"]))

        def work(name: str = method, rng: np.random.Generator = rng) -> tuple[BatchFit, BatchFit]:
            if name in ENGINES:
                fit = ENGINES[name](data.prior, data.x, concentration=1.0, truncation=place["truncation"], rng=rng)
                return fit, fit
            start = seeded_resp(data.x, place["truncation"], rng)
            schedule = {"n_samples": sweeps, "burn_in": sweeps}
            fit = fit_gibbs(data.prior, data.x, concentration=1.0, resp_init=start, rng=rng, **schedule)
            return fit, pool_samples(data.prior, data.x, fit)

        (fit, density), seconds = timed(work)
        table.add(
            **place,
            method=method,
            held_out=float(log_density(data.prior, density, data.test).mean()),
            components=int((fit.stats[0] > 0.5).sum()),
            elbo=fit.elbo,
            rounds=fit.n_rounds,
            cpu_s=seconds,
            held_out_truth=data.truth,
        )


def summarise(rows: list[dict[str, str]], summary: Table) -> None:
    """Compute means and paired differences at every setting of the figures."""
    for figure, points, truncation in dict.fromkeys((r["figure"], r["points"], r["truncation"]) for r in rows):
        here = [r for r in rows if (r["figure"], r["points"], r["truncation"]) == (figure, points, truncation)]
        by_method = {m: {r["repeat"]: float(r["held_out"]) for r in here if r["method"] == m} for m in METHODS}
        place = {"figure": figure, "points": points, "truncation": truncation}
        for method, found in by_method.items():
            _add(summary, place, f"{method}", list(found.values()))
        for first, second in (*PAIRS, *((method, "gibbs") for method in ENGINES)):
            both = sorted(by_method[first].keys() & by_method[second].keys())
            gaps = [by_method[first][repeat] - by_method[second][repeat] for repeat in both]
            _add(summary, place, f"{first} - {second}", gaps, (first, second) in PAIRS)


def _add(summary: Table, place: dict[str, str], what: str, values: list[float], ordered: bool = False) -> None:
    if not values:
        return
    mean = statistics.mean(values)
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    row: dict[str, Any] = {**place, "repeats": len(values), "what": what, "mean": mean, "standard_error": error}
    if " - " in what:
        row["better_in"] = sum(value > 0.0 for value in values)
    if ordered:
        row["paper"] = "at least 0"
        far = abs(mean) > 2.0 * error
        row["verdict"] = ("confirmed" if mean > 0.0 else "contradicted") if far else "no difference beyond 2 errors"
    summary.add(**row)


def synthetic_places(arguments: Namespace) -> list[tuple[str, int, int]]:
    points = by_size(arguments, (50, 100, 200, 400, 800, 1_600), (100, 400), (60,))
    truncations = by_size(arguments, (5, 10, 20, 30, 40, 60), (5, 10, 40), ())
    at = by_size(arguments, 400, 200, 60)
    return [("2-3", n, 20) for n in points] + [("4-5", at, t) for t in truncations]


def draw(arguments: Namespace, summary: Table, figure: str) -> None:
    axis = "points" if figure == "2-3" else "truncation"
    relative = [f"{method} - gibbs" for method in ENGINES]
    panels = []
    for names, words in ((METHODS, "mean log density of test points, nats"), (relative, "the same less that of Gibbs")):
        series = {}
        for name in names:
            rows = summary.where(figure=figure, what=name)
            if rows:
                series[name] = (floats(rows, axis), floats(rows, "mean"), floats(rows, "standard_error"))
        panels.append({"series": series, "x": axis, "y": words, "log": "x"})
    name = f"collapsed_figures_{figure.replace('-', '_')}"
    plot(path_of(arguments, name, ".png"), panels, f"figures {figure}: ten Gaussians, 16-D, c = 2")


def draw_mnist(arguments: Namespace, summary: Table) -> None:
    """Draw figure 6: mean density of each method over the splits, and paired differences, with standard errors."""
    rows = summary.where(figure="6")
    panels = []
    for words, chosen in (
        ("held-out log density", [row for row in rows if " - " not in row["what"]]),
        ("paired differences", [row for row in rows if " - " in row["what"] and "gibbs" not in row["what"]]),
    ):
        errors = [float(row["standard_error"] or "nan") for row in chosen]
        series = {words: (floats(chosen, "mean"), [row["what"] for row in chosen], None, errors)}
        panels.append({"series": series, "x": "nats, with standard errors", "y": ""})
    plot(path_of(arguments, "collapsed_figures_6", ".png"), panels, "figure 6: digits, 50-D")


def main() -> None:
    parser = options(__doc__, figure=("synthetic", "mnist"))
    parser.add_argument("--repeats", type=int, help="data sets a place (10 synthetic, 30 splits of MNIST)")
    arguments = parser.parse_args()
    key = ("figure", "points", "truncation", "repeat", "method")
    sweeps = by_size(arguments, *SWEEPS)
    for kind in arguments.figure:
        name = f"collapsed_figures_{kind}"
        table = Table(path_of(arguments, name, ".csv"), COLUMNS, key)
        summary = Table(path_of(arguments, f"{name}_summary", ".csv"), SUMMARY, (*key[:3], "what"))
        if kind == "synthetic":
            for repeat in range(arguments.repeats or by_size(arguments, 10, 4, 2)):
                for figure, n, truncation in synthetic_places(arguments):
                    place = {"figure": figure, "points": n, "truncation": truncation, "repeat": repeat}
                    measure(table, synthetic(n, repeat), place, sweeps)
            summarise(table.rows, summary)
            draw(arguments, summary, "2-3")
            if summary.where(figure="4-5"):
                draw(arguments, summary, "4-5")
            continue
        n, truncation = by_size(arguments, (5_000, 30), (1_000, 30), (200, 5))
        for repeat in range(arguments.repeats or by_size(arguments, 30, 3, 1)):
            place = {"figure": "6", "points": n, "truncation": truncation, "repeat": repeat}
            measure(table, mnist(n, repeat), place, sweeps)
            summarise(table.rows, summary)
        draw_mnist(arguments, summary)


if __name__ == "__main__":
    main()
