"""Blei and Jordan (2004): variational inference against two Gibbs samplers, on data of the same shape.

    python benchmarks/papers/blei_jordan.py [--quick] [--what dimensions autocorrelation]

The script repeats table 1 and figures 3 and 4. Data are 100 points to fit and 100 held out. They come from a Dirichlet
process mixture (concentration 1) of Gaussians with one known covariance, S_ij = .5^|i-j|, and means from N(0, c S), c =
15 / D. With this scale, two means lie 5.5 standard deviations apart in every dimension. There are ten sets for each
dimension from 5 to 50. The prior and the concentration are the true ones; the paper draws the concentration from a
Gamma prior. The truncation is 20.

Methods:

- `tsb`: the paper's variational method, from one start, to a change of 1e-8 nats per point.
- `blocked-gibbs`: the paper's TDP Gibbs sampler. `gibbs`: its collapsed one. Samplers make 200 sweeps and keep 1,000.
- `split-merge` and `vdp`, for comparison.

Columns:

- `cpu_s`: the whole fit.
- `held_out`: sum of the log predictive densities of the 100 held-out points, in nats. `truth`: the same under the true
  parameters.
- `effective`: effective sample size of the log joint (of 1,000). `cpu_s_effective`: CPU seconds for 100 effective
  samples, including burn-in.
- `components`: for a sampler, the mean over samples; otherwise, those that are the best one of some point.

`autocorrelation` is that of the size of the largest component, in 50 dimensions, mean over sets of chains of 5,000.
"""

from typing import Any, NamedTuple

import numpy as np
from record import Table, by_size, floats, options, path_of, plot, timed

from shoal import DPMixture
from shoal.families import KnownCovariance
from shoal.sampling.ess import autocovariance

N, HELD_OUT, TRUNCATION, SEPARATION = 100, 100, 20, 15.0
SAMPLERS = ("blocked-gibbs", "gibbs", "split-merge")
METHODS = ("tsb", "vdp", *SAMPLERS)
COLUMNS = [
    *("method", "dimension", "set", "cpu_s", "held_out", "truth", "components", "true_components", "bound"),
    *("effective", "cpu_s_effective"),
]
LAGS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100)


class Made(NamedTuple):
    """A data set and the parameters that it was drawn from."""

    prior: KnownCovariance
    x: np.ndarray  # (N, D)
    held_out: np.ndarray
    labels: np.ndarray
    truth: float


def make(dimension: int, seed: int) -> Made:
    rng = np.random.default_rng([seed, dimension])
    place = np.arange(dimension)
    covariance = 0.5 ** np.abs(place[:, None] - place)
    prior = KnownCovariance(np.zeros(dimension), SEPARATION / dimension * covariance, covariance)
    sticks = np.append(rng.beta(1.0, 1.0, size=199), 1.0)
    weights = sticks * np.append(1.0, np.cumprod(1.0 - sticks[:-1]))
    means = rng.multivariate_normal(np.zeros(dimension), np.asarray(prior.prior_covariance), size=200)
    labels = rng.choice(200, size=N + HELD_OUT, p=weights / weights.sum())
    x = means[labels] + rng.multivariate_normal(np.zeros(dimension), covariance, size=len(labels))
    heights = prior.log_likelihood(
        type(prior.sample_parameters(prior.posterior(prior.empty_stats(1)), rng))(means), x[N:]
    )
    with np.errstate(divide="ignore"):
        truth = float(np.logaddexp.reduce(heights + np.log(weights), axis=1).sum())
    return Made(prior, x[:N], x[N:], labels[:N], truth)


def model(method: str, data: Made, seed: int, n_samples: int) -> DPMixture:
    more: dict[str, Any] = {"n_samples": n_samples, "burn_in": 200} if method in SAMPLERS else {"tol": 1e-8}
    if method in ("tsb", "blocked-gibbs"):
        more["truncation"] = TRUNCATION
    return DPMixture(data.prior, method, 1.0, random_state=seed, **more)


def measure(table: Table, method: str, dimension: int, seed: int, n_samples: int) -> None:
    data = make(dimension, seed)
    fitted, seconds = timed(lambda: model(method, data, seed, n_samples).fit(data.x))
    row = {
        "method": method,
        "dimension": dimension,
        "set": seed,
        "cpu_s": seconds,
        "held_out": float(fitted.score_samples(data.held_out).sum()),
        "truth": data.truth,
        "components": int(fitted.labels_.max()) + 1,
        "true_components": len(np.unique(data.labels)),
        "bound": float(fitted.elbo_),
    }
    if method in SAMPLERS:
        row["components"] = float((fitted.samples_.max(axis=1) + 1).mean())
        row["effective"] = fitted.effective_sample_size_["log_joint"]
        row["cpu_s_effective"] = 100.0 * seconds / row["effective"]
    table.add(**row)


def dimensions(arguments: Any) -> None:
    """Repeat table 1 and figure 3."""
    chosen = by_size(arguments, (5, 10, 20, 30, 40, 50), (5, 20, 50), (5,))
    n_sets, n_samples = by_size(arguments, (10, 1_000), (4, 400), (1, 50))
    table = Table(path_of(arguments, "blei_jordan", ".csv"), COLUMNS, ("method", "dimension", "set"))
    make_kernels()
    for seed in range(n_sets):
        for dimension in chosen:
            for method in METHODS:
                measure(table, method, dimension, arguments.seed + seed, n_samples)

    def mean(method: str, name: str) -> tuple[list[int], list[float], list[float]]:
        values = [np.array(floats(table.where(method=method, dimension=d), name)) for d in chosen]
        return list(chosen), [float(v.mean()) for v in values], [float(v.std() / np.sqrt(len(v))) for v in values]

    shortfall: dict[str, Any] = {}
    for method in METHODS:
        gaps = []
        for d in chosen:
            rows = table.where(method=method, dimension=d)
            gaps.append(np.mean(np.array(floats(rows, "truth")) - np.array(floats(rows, "held_out"))))
        shortfall[method] = (list(chosen), gaps)
    panels = [
        {"series": {m: mean(m, "cpu_s") for m in METHODS}, "x": "dimension", "y": "CPU seconds a fit", "log": "y"},
        {"series": shortfall, "x": "dimension", "y": "held-out nats short of the truth's (100 points)"},
        {"series": {m: mean(m, "components") for m in METHODS}, "x": "dimension", "y": "components"},
    ]
    plot(path_of(arguments, "blei_jordan", ".png"), panels, "Blei and Jordan (2004), table 1 and figure 3, our data")


def make_kernels() -> None:
    """Compile the kernels, so that no time includes it."""
    data = make(5, 10_000)
    for method in METHODS:
        model(method, data, 0, 2).fit(data.x)


def autocorrelation(arguments: Any) -> None:
    """Repeat figure 4."""
    dimension, n_sets, n_samples = by_size(arguments, (50, 5, 5_000), (50, 2, 1_000), (5, 1, 200))
    columns = ["method", "dimension", "lag", "autocorrelation", "sets", "samples"]
    table = Table(path_of(arguments, "blei_jordan_autocorrelation", ".csv"), columns, ("method", "dimension", "lag"))
    series = {}
    for method in SAMPLERS:
        rows = []
        for seed in range(n_sets):
            data = make(dimension, arguments.seed + seed)
            samples = model(method, data, seed, n_samples).fit(data.x).samples_
            largest = np.array([np.bincount(labels).max() for labels in samples], dtype=float)
            covariance = autocovariance(largest[None])[0]
            if covariance[0] > 0.0:
                rows.append(covariance[list(LAGS)] / covariance[0])
        values = np.mean(rows, axis=0) if rows else np.full(len(LAGS), np.nan)
        for lag, value in zip(LAGS, values, strict=True):
            table.add(
                method=method,
                dimension=dimension,
                lag=lag,
                autocorrelation=float(value),
                sets=len(rows),
                samples=n_samples,
            )
        series[method] = (list(LAGS), values.tolist())
    panel = {"series": series, "x": "lag (sweeps)", "y": "autocorrelation of the largest component's size"}
    plot(
        path_of(arguments, "blei_jordan_autocorrelation", ".png"), [panel], "Blei and Jordan (2004), figure 4, our data"
    )


def main() -> None:
    arguments = options(__doc__, what=("dimensions", "autocorrelation")).parse_args()
    for name, run in (("dimensions", dimensions), ("autocorrelation", autocorrelation)):
        if name in arguments.what:
            run(arguments)


if __name__ == "__main__":
    main()
