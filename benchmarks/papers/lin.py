"""Lin (2013): one pass by sequential variational approximation, against samplers and truncation-free inference.

    SHOAL_DATA=FOLDER python benchmarks/papers/lin.py [--quick] [--what synthetic descriptors documents]

Columns:

- `held_out`: mean log predictive density of held-out points, in nats per point, given what the method has learned by
  then (equation 12). The paper does not define its "joint log-likelihood".
- `cpu_s`: all work of the method until then, with compiled kernels and without scoring.
- `at`: points learned by a one-pass method, sweeps of a sampler, or passes of `tfv`. A sampler's row describes the one
  state after that many sweeps. Each row runs the chain again from the same seed.

Every method has the same prior and concentration 1:

- `sva`: Algorithm 1 with the prior included, which corrects the paper. A component is born if its responsibility
  exceeds .5, or .01; the paper gives no value.
- `sva-pm`: with the paper's pruning and merging at the paper's offsets, and this library's thresholds.
- `gibbs`: collapsed (the paper's CGS), starting from points assigned one after another. `gibbs, random start`: starting
  from labels drawn evenly from twenty.
- `split-merge`: with restricted Gibbs scans (MC-SM), starting from points assigned one after another.
- `tfv`: truncation-free variational inference in batches of 256.
- `shoal, one pass` and `shoal`: this library, without and with refinement.

`synthetic`: 10,000 points of nine round unit Gaussians in two dimensions, with centres four apart on a grid, and 10,000
more held out; five sets. The prior has the true variance, and means around the grid's centre with variance 16. `truth`
is the true density.

`descriptors`: 128 numbers per image, as gradient histograms of image patches. The images are the digits of MNIST (28 x
28, from 50 principal components), in four by four cells of 7 x 7 pixels. Each cell has the gradient's length by eight
directions, shared between the two nearest. The vector is normalized, cut at .2 and normalized again. The components are
Gaussians with one known round variance, chosen on 1,000 rows by how well it predicts. 10,000 rows to learn, 2,000 held
out.

`documents`: topic proportions of NIPS papers (1,350 and 150, 50 topics), with Dirichlet components of a given precision
under one pseudo count per topic, by stochastic gradient. `step` is that of the component's own mass with natural
gradients, or the paper's global one with plain gradients. No conjugate prior exists, so no other engine can compare.
`alone` is one component under the same prior.
"""

import itertools
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from record import Table, by_size, data_file, floats, options, path_of, plot

from shoal import DPMixture, StreamingDPMixture
from shoal.estimators.batch_fit import place_prior
from shoal.families import DirichletByGradient, KnownCovariance

WHAT = ("synthetic", "descriptors", "documents")
COLUMNS = ["set", "method", "at", "cpu_s", "held_out", "truth", "components"]
STREAMS: dict[str, dict[str, Any]] = {
    "sva": {"method": "sva"},
    "sva, births at .01": {"method": "sva", "birth_threshold": 0.01},
    "sva-pm": {"method": "sva-pm", "check_schedule": "paper"},
    "sva-pm, births at .01": {"method": "sva-pm", "check_schedule": "paper", "birth_threshold": 0.01},
    "shoal, one pass": {},
    "shoal": {"refinement": "auto", "window": 100_000},
}
BATCHES = ("tfv", "gibbs", "gibbs, random start", "split-merge")
STARTS = 20


class Task(NamedTuple):
    """Points to learn and points to score."""

    prior: Any
    x: np.ndarray  # (N, D)
    held_out: np.ndarray  # (M, D)
    truth: float | str  # mean log density of the held-out points under what made them; "" where unknown
    log_volume: float = 0.0  # of the scaling: taken from each log density


class Measured(NamedTuple):
    at: int
    cpu_s: float
    held_out: float
    components: int


# The contenders


def streamed(task: Task, settings: dict[str, Any], marks: list[int]) -> Iterator[Measured]:
    """Run one pass, and score it after these numbers of points."""
    model = StreamingDPMixture(
        task.prior.name, prior=task.prior, **{"refinement": None, "window": 0, "random_state": 0, **settings}
    )
    seconds, start = 0.0, 0
    for end in marks:
        began = time.process_time()
        model.partial_fit(task.x[start:end])
        seconds, start = seconds + time.process_time() - began, end
        yield Measured(end, seconds, model.score(task.held_out) - task.log_volume, len(model.component_ids_))


def iterated(task: Task, method: str, marks: list[int], seed: int) -> Iterator[Measured]:
    """Run a batch method, and score it after these numbers of rounds."""
    name, _, start = method.partition(", ")
    for rounds in marks:
        more = {"max_iter": rounds} if name == "tfv" else {"burn_in": rounds - 1, "n_samples": 1}
        model = DPMixture(task.prior, name, random_state=seed, **more)
        even = np.full((len(task.x), STARTS), 1.0 / STARTS) if start else None
        began = time.process_time()
        model.fit(task.x, resp_init=even)
        seconds = time.process_time() - began
        yield Measured(rounds, seconds, model.score(task.held_out) - task.log_volume, int((model.masses_ > 0.5).sum()))


def measure(table: Table, task: Task, seed: int, marks: dict[str, list[int]]) -> None:
    """Run every method on one set."""
    small = task._replace(x=task.x[:60], held_out=task.held_out[:10])
    for method in (*STREAMS, *BATCHES):
        if method in STREAMS:
            points = [m for m in marks["points"] if m < len(task.x)] + [len(task.x)]
            list(streamed(small, STREAMS[method] | {"warmup_points": 30}, [60]))  # compile: no time counts it
            found = streamed(task, STREAMS[method], points)
        else:
            list(iterated(small, method, [2], 0))
            found = iterated(task, method, marks["epochs" if method == "tfv" else "sweeps"], seed)
        for one in found:
            table.add(set=seed, method=method, truth=task.truth, **one._asdict())


def curves(table: Table, sets: int, truth: float | None) -> dict[str, Any]:
    """Draw held-out density, or its distance from a known truth, against seconds: means over sets."""
    series = {}
    for method in (*STREAMS, *BATCHES):
        x, y = [], []
        for at in dict.fromkeys(row["at"] for row in table.where(method=method)):
            rows = table.where(method=method, at=at)
            if len(rows) == sets:
                x.append(float(np.mean(floats(rows, "cpu_s"))))
                short = np.array(floats(rows, "held_out"))
                y.append(float(np.mean(short if truth is None else np.array(floats(rows, "truth")) - short)))
        series[method] = (x, y)
    return series


# Synthetic


def nine(n: int, n_held_out: int, seed: int) -> Task:
    rng = np.random.default_rng(seed)
    centres = 4.0 * np.array(list(itertools.product(range(3), repeat=2)), dtype=float)
    x = centres[rng.integers(9, size=n + n_held_out)] + rng.normal(size=(n + n_held_out, 2))
    distance = np.square(x[n:, None] - centres).sum(axis=2)
    truth = float((np.logaddexp.reduce(-0.5 * distance, axis=1) - np.log(9.0 * 2.0 * np.pi)).mean())
    return Task(KnownCovariance([4.0, 4.0], 16.0, 1.0), x[:n], x[n:], truth)


def synthetic(arguments: Any) -> None:
    n, n_sets = by_size(arguments, (10_000, 5), (10_000, 2), (500, 1))
    sweeps = by_size(arguments, [1, 2, 5, 10, 20, 50, 100], [1, 2, 5, 10, 20, 50], [1, 2])
    epochs = by_size(arguments, [1, 2, 5, 10, 20], [1, 2, 5, 10, 20], [1, 2])
    table = Table(path_of(arguments, "lin_synthetic", ".csv"), COLUMNS, ("set", "method", "at"))
    for seed in range(arguments.seed, arguments.seed + n_sets):
        marks = {"points": [100, 300, 1_000, 3_000], "sweeps": sweeps, "epochs": epochs}
        measure(table, nine(n, n, seed), seed, marks)
    panels = [{"series": curves(table, n_sets, 0.0), "x": "CPU seconds", "y": "nats short of the truth", "log": "xy"}]
    plot(path_of(arguments, "lin_synthetic", ".png"), panels, "Lin (2013), synthetic data, ours")


# Descriptors


def histograms(images: np.ndarray) -> np.ndarray:
    """Return the gradient histograms (N, 128) of images (N, 28, 28)."""
    down, across = np.gradient(images, axis=(1, 2))
    length = np.hypot(down, across)
    turn = np.arctan2(down, across) % (2 * np.pi) * (8 / (2 * np.pi))  # in eighths
    low = np.floor(turn)
    far = turn - low
    found = np.zeros((len(images), 4, 4, 8))
    for eighth in range(8):
        share = np.where(low % 8 == eighth, 1.0 - far, 0.0) + np.where((low + 1) % 8 == eighth, far, 0.0)
        found[..., eighth] = (length * share).reshape(-1, 4, 7, 4, 7).sum(axis=(2, 4))
    flat = found.reshape(len(images), 128)
    for ceiling in (0.2, 1.0):
        flat = np.minimum(flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12), ceiling)
    return flat


def descriptors_of(n: int, n_held_out: int) -> Task:
    with np.load(data_file("mnist_pca50.npz"), allow_pickle=False) as data:
        mean, components = data["mean"].astype(float), data["components"].astype(float)
        parts = [data[name][:m] for name, m in (("X_train", n), ("X_test", n_held_out))]
    x, held_out = (histograms((mean + part @ components).reshape(-1, 28, 28)) for part in parts)
    placed = place_prior("known_covariance", x, 1.0, np.random.default_rng(0))
    return Task(placed.prior, placed.standardise(x), placed.standardise(held_out), "", placed.log_volume)


def descriptors(arguments: Any) -> None:
    n, n_held_out = by_size(arguments, (10_000, 2_000), (2_000, 500), (200, 50))
    sweeps = by_size(arguments, [1, 3, 10, 30], [1, 3, 10], [1])
    epochs = by_size(arguments, [1, 3, 10], [1, 3, 10], [1])
    table = Table(path_of(arguments, "lin_descriptors", ".csv"), COLUMNS, ("set", "method", "at"))
    task = descriptors_of(n, n_held_out)
    measure(table, task, arguments.seed, {"points": [300, 1_000, 3_000], "sweeps": sweeps, "epochs": epochs})
    panels = [{"series": curves(table, 1, None), "x": "CPU seconds", "y": "held-out nats a point", "log": "x"}]
    plot(path_of(arguments, "lin_descriptors", ".png"), panels, f"Lin (2013), {n} descriptors of digits, 128-D")


# Documents


def documents(arguments: Any) -> None:
    with np.load(data_file("nips_lda50.npz"), allow_pickle=False) as data:
        x, held_out = (data[name].astype(float) for name in ("theta", "theta_test"))
    x = x[np.random.default_rng(arguments.seed).permutation(len(x))][: by_size(arguments, 1_350, 400, 60)]
    d, n = x.shape[1], len(x)
    columns = ["precision", "step", "method", "cpu_s", "held_out", "alone", "components"]
    table = Table(path_of(arguments, "lin_documents", ".csv"), columns, ("precision", "step", "method"))
    precisions = by_size(arguments, (8, 16, 32, 64), (16, 32), (32,))
    for precision, step in itertools.product(precisions, ("mass", "paper")):
        prior = DirichletByGradient(precision, np.ones(d), step=step, n_points=None if step == "mass" else n)
        task = Task(prior, x, held_out, "")
        alone = list(streamed(task, {"max_components": 1}, [n]))[-1]
        for method in ("sva", "sva-pm"):
            settings = STREAMS[method] | {"max_components": 500}
            one = list(streamed(task, settings, [n]))[-1]
            table.add(
                precision=precision,
                step=step,
                method=method,
                cpu_s=one.cpu_s,
                held_out=one.held_out,
                alone=alone.held_out,
                components=one.components,
            )
    draw_documents(arguments, table)


def draw_documents(arguments: Any, table: Table) -> None:
    series = {}
    for step, method in itertools.product(("mass", "paper"), ("sva", "sva-pm")):
        rows = sorted(table.where(step=step, method=method), key=lambda row: float(row["precision"]))
        gain = [float(row["held_out"]) - float(row["alone"]) for row in rows]
        series[f"{method}, step of the {'mass' if step == 'mass' else 'paper'}"] = (floats(rows, "precision"), gain)
    panel = {"series": series, "x": "precision", "y": "held-out nats above one component", "log": "x"}
    plot(path_of(arguments, "lin_documents", ".png"), [panel], "Lin (2013), topic proportions of papers")


def main() -> None:
    arguments = options(__doc__, what=WHAT).parse_args()
    for name, run in (("synthetic", synthetic), ("descriptors", descriptors), ("documents", documents)):
        if name in arguments.what:
            run(arguments)


if __name__ == "__main__":
    main()
