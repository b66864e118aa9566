"""Kurihara, Welling and Vlassis (2006), MNIST: 60,000 digits in 50 principal components, VDP and Fast-VDP.

    SHOAL_DATA=FOLDER python benchmarks/papers/fast_vdp_mnist.py [--quick] [--what vdp-paper vdp ...]

Prior: points are divided by one number, the root of their mean variance per component (0.9325), without whitening. The
prior is normal-inverse-Wishart with mean 0, mean_strength 0.01, dof D + 2 and scale dof * V * I; the concentration is
1. The paper gives neither its prior nor the scale of its components. V = 0.2 gives Fast-VDP about as many clusters as
in the paper; `priors` compares values. A bound and its ratio depend on the unit: here it is that of the components
(pixels in 0..1). Differences of `nats_a_point` do not.

Methods:

- `vdp-paper`: the paper's rule with the default tolerance of 1e-6 nats per point. It takes hours.
- `vdp-paper-loose`: the same with `tol` = 2.5e-4. Moves and rounds end at a relative change of the free energy of about
  1e-5 and 1e-6. Times and ratios over the paper's rule refer to this fit.
- `vdp-loose`: the default search with that tolerance. `vdp`: with its own.
- `fast-vdp`: leaves of 30 points and 20 final rounds on single points. `fast-vdp-short`: 8 rounds.
- `fast-vdp-tied`: the default, without rounds on single points.

Columns:

- `elbo`: the bound that the method reports.
- `untied`: the bound when each point has its own responsibilities. The tied fit gets one more E- and M-step for it, not
  in its time.
- `cpu_s`: the whole fit, with the tree and the final assignment.
- `held_out`: mean log density of 10,000 test digits. `agreement`: adjusted Rand index with the digits.

A fit of VDP that receives SIGTERM stops. Its row has the bound and the CPU seconds so far, and `converged` is False.
Times over it are then lower limits, and there is no ratio to it.
"""

import signal
import time
from argparse import Namespace

import numpy as np
from record import Table, by_size, data_file, floats, options, path_of, plot, timed
from sklearn.metrics import adjusted_rand_score

from shoal.families import NormalInverseWishart
from shoal.mixture import BatchFit, Progress, log_density
from shoal.variational import fit_fast_vdp, fit_vdp

WHAT = ("vdp-paper-loose", "vdp-paper", "vdp-loose", "vdp", "fast-vdp", "fast-vdp-short", "fast-vdp-tied", "priors")
FAST = {"fast-vdp": (30.0, 20), "fast-vdp-short": (30.0, 8), "fast-vdp-tied": (None, 0)}
"""Leaf size and rounds on points."""
TOL = {"vdp-paper-loose": 2.5e-4, "vdp-loose": 2.5e-4}
VARIANCE = 0.2
VARIANCES = (0.05, 0.1, 0.2, 0.3, 0.5)
PAPER = {"vdp-paper-loose": (72_037.0, 88), "vdp-paper": (72_037.0, 88), "fast-vdp": (3_379.0, 96)}
PAPER_RATIO, PAPER_SPEEDUP = 1.044, 21.0
COLUMNS = (
    "method variance points features components cpu_s elbo untied nats_a_point held_out agreement rounds converged "
    "times_vdp_paper ratio_to_vdp_paper ratio_to_best_vdp paper_components paper_cpu_s paper_times paper_ratio"
)


class Digits:
    """Training and test digits in units of the root mean variance, and the change of a log density by that unit."""

    def __init__(self, n_train: int, n_test: int) -> None:
        with np.load(data_file("mnist_pca50.npz"), allow_pickle=False) as data:
            x, test = data["X_train"].astype(np.float64), data["X_test"].astype(np.float64)
            self.digits = data["y_train"][:n_train]
        unit = float(np.sqrt(x.var(axis=0).mean()))
        self.x, self.test = np.ascontiguousarray(x[:n_train] / unit), test[:n_test] / unit
        self.shift = x.shape[1] * np.log(unit)

    def prior(self, variance: float) -> NormalInverseWishart:
        return NormalInverseWishart.weak(self.x.shape[1], variance)


class GivenUpError(Exception):
    """SIGTERM stopped the fit. Holds its state."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self.progress = progress


class Watch:
    """Reports the progress of a long fit, and stops it on SIGTERM."""

    def __init__(self) -> None:
        self.stop, self.said = False, 0.0
        self.last: Progress | None = None

    def give_up(self, *_: object) -> None:
        self.stop = True

    def __call__(self, progress: Progress) -> None:
        if progress.message == "dividing":  # a state that was kept, not a trial
            self.last = progress
            if time.process_time() - self.said > 20.0:
                self.said = time.process_time()
                print(f"{self.said:.0f} CPU s: {progress}", flush=True)
        if self.stop and self.last is not None:
            raise GivenUpError(self.last)


def fit(data: Digits, method: str, variance: float, seed: int) -> BatchFit:
    rng, prior = np.random.default_rng(seed), data.prior(variance)
    if method.startswith("fast-vdp"):
        leaf_points, rounds = FAST[method]
        settings = {"leaf_points": leaf_points, "point_rounds": rounds}
        return fit_fast_vdp(prior, data.x, concentration=1.0, rng=rng, **settings)
    settings = {"moves": "paper" if method.startswith("vdp-paper") else "default", "tol": TOL.get(method, 1e-5)}
    watch = Watch()
    before = signal.signal(signal.SIGTERM, watch.give_up)
    try:
        return fit_vdp(prior, data.x, concentration=1.0, rng=rng, progress=watch, **settings)
    finally:
        signal.signal(signal.SIGTERM, before)


def freed(data: Digits, found: BatchFit, variance: float) -> float:
    """The bound after all points have divided once, each for itself (what they give the tail goes with the rest)."""
    assert found.resp is not None
    resp = found.resp / found.resp.sum(axis=1, keepdims=True)
    rng = np.random.default_rng(0)
    again = fit_vdp(data.prior(variance), data.x, concentration=1.0, resp_init=resp, max_iter=1, tol=0.0, rng=rng)
    return float(again.elbo)


def measure(table: Table, data: Digits, method: str, variance: float, seed: int) -> None:
    n, start = len(data.x), time.process_time()
    try:
        found, seconds = timed(lambda: fit(data, method, variance, seed))
    except GivenUpError as given_up:
        own, components = given_up.progress.elbo - n * data.shift, given_up.progress.n_components
        so_far = {"elbo": own, "untied": own, "nats_a_point": own / n, "rounds": given_up.progress.round}
        place = {"method": method, "variance": variance, "points": n, "features": data.x.shape[1]}
        seconds = time.process_time() - start
        table.add(**place, **so_far, components=components, cpu_s=seconds, converged=False)
        return
    assert found.resp is not None
    untied = freed(data, found, variance) if method == "fast-vdp-tied" else found.elbo
    references = {}
    for name, reference in (("paper", "vdp-paper-loose"), ("best", "vdp")):
        rows = table.where(method=reference, variance=variance, points=n)
        references[name] = rows[0] if rows else None
    own = untied - n * data.shift
    paper, best = references["paper"], references["best"]
    row = {
        "method": method,
        "variance": variance,
        "points": n,
        "features": data.x.shape[1],
        "components": len(found.log_weight),
        "cpu_s": seconds,
        "elbo": found.elbo - n * data.shift,
        "untied": own,
        "nats_a_point": own / n,
        "held_out": float(log_density(data.prior(variance), found, data.test).mean() - data.shift),
        "agreement": float(adjusted_rand_score(data.digits, found.resp.argmax(axis=1))),
        "rounds": found.n_rounds,
        "converged": found.converged,
    }
    if paper is not None:
        row["times_vdp_paper"] = float(paper["cpu_s"]) / seconds
        if paper["converged"] == "True":
            row["ratio_to_vdp_paper"] = own / float(paper["untied"])
    if best is not None and best["converged"] == "True":
        row["ratio_to_best_vdp"] = own / float(best["untied"])
    key = "fast-vdp" if method in FAST else method
    if key in PAPER:
        row["paper_cpu_s"], row["paper_components"] = PAPER[key]
    if method.startswith("fast-vdp"):
        row["paper_times"], row["paper_ratio"] = PAPER_SPEEDUP, PAPER_RATIO
    table.add(**row)


def draw(arguments: Namespace, table: Table) -> None:
    """Draw the speed over VDP against the loss of the bound, and the effect of the prior."""
    rows = [row for row in table.rows if row["ratio_to_vdp_paper"]]
    speed = {row["method"]: (floats([row], "times_vdp_paper"), floats([row], "ratio_to_vdp_paper")) for row in rows}
    marks = {f"paper: {PAPER_RATIO} at {PAPER_SPEEDUP:.0f} times": PAPER_RATIO}
    panels = [
        {"series": speed, "x": "times as fast as VDP", "y": "free energy ratio", "log": "x", "marks": marks},
    ] * bool(rows)
    tied = sorted(table.where(method="fast-vdp-tied"), key=lambda row: float(row["variance"]))
    if tied:
        series = {"fast-vdp-tied": (floats(tied, "variance"), floats(tied, "held_out"))}
        panels.append({"series": series, "x": "variance of the prior", "y": "held-out log density", "log": "x"})
    if panels:
        plot(path_of(arguments, "fast_vdp_mnist", ".png"), panels, "digits, 50-D")


def main() -> None:
    parser = options(__doc__, what=WHAT)
    parser.add_argument("--points", type=int, help="digits to fit (60,000; --quick 6,000)")
    arguments = parser.parse_args()
    data = Digits(arguments.points or by_size(arguments, 60_000, 6_000, 300), by_size(arguments, 10_000, 10_000, 200))
    table = Table(path_of(arguments, "fast_vdp_mnist", ".csv"), COLUMNS, ("method", "variance", "points"))
    for method in WHAT[:-1]:
        if method in arguments.what:
            measure(table, data, method, VARIANCE, arguments.seed)
    if "priors" in arguments.what:
        for variance in by_size(arguments, VARIANCES, VARIANCES, VARIANCES[-1:]):
            measure(table, data, "fast-vdp-tied", variance, arguments.seed)
    draw(arguments, table)


if __name__ == "__main__":
    main()
