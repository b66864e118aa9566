"""Draw the pictures of the documents, from real runs: python docs/pictures/make.py [NAME ...]

Needs matplotlib. `promises.png` shows one run of a server; the others come out the same each time. `map.png` is
`build/screenshots/map-light.png`, which `tests/browser/test_views.py` makes.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse
from sklearn.datasets import make_moons

from shoal import StreamingDPMixture
from shoal.families import NormalInverseWishart
from shoal.plotting import BoundDisplay, HierarchyDisplay, LifelineDisplay, MixtureDisplay

HERE = Path(__file__).parent
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#5b4b8a"]
GREY = "#8a8a8a"
plt.rcParams |= {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def colour(number: int) -> str:
    """Colour of a number, in turn."""
    return COLOURS[int(number) % len(COLOURS)]


def plane(axes: Any, title: str) -> None:
    """Make a frame with a title and equal scales."""
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal")


def ellipses(axes: Any, model: StreamingDPMixture, colours: dict[int, str] | None = None, least: float = 0.0) -> None:
    """Every component heavier than `least` as an ellipse of two standard deviations."""
    for k, (weight, mean, cov) in enumerate(zip(model.weights_, model.means_, model.covariances_, strict=True)):
        if weight < least:
            continue
        values, vectors = np.linalg.eigh(cov)
        angle = float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))
        width, height = 4.0 * np.sqrt(values[::-1])
        identity = int(model.component_ids_[k])
        edge = "#222222" if colours is None else colours[identity]
        axes.add_patch(Ellipse(mean, width, height, angle=angle, fill=False, edgecolor=edge, linewidth=1.4))


def save(name: str, figure: Any) -> None:
    """Write a picture."""
    figure.savefig(HERE / f"{name}.png", dpi=110, metadata={"Software": None}, bbox_inches="tight")
    plt.close(figure)


def crescents() -> np.ndarray:
    """Two crescents and a round group."""
    moons, _ = make_moons(3000, noise=0.06, random_state=0)
    rng = np.random.default_rng(0)
    return rng.permutation(np.concatenate([4.0 * moons, [13.0, 1.0] + 0.6 * rng.normal(size=(1000, 2))]))


def component() -> None:
    """Two crescents and a round group: several components, three clusters."""
    x = crescents()
    model = StreamingDPMixture(random_state=0).fit(x)
    labels = model.predict(x, level="cluster")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.7))
    shown = slice(None, None, 3)
    left.scatter(*x[shown].T, s=2, color=GREY, linewidths=0)
    ellipses(left, model)
    plane(left, f"{len(model.component_ids_)} components")
    right.scatter(*x[shown].T, s=2, c=[colour(list(np.unique(labels)).index(label)) for label in labels[shown]])
    plane(right, f"{len(np.unique(labels))} clusters")
    save("component", figure)


def one_pass() -> None:
    """The same stream after ever more points."""
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [7.0, 1.0], [3.0, 6.0], [9.0, 7.0]])
    x = centres[rng.integers(4, size=4000)] + rng.normal(size=(4000, 2))
    x[:1200] = centres[rng.integers(3, size=1200)] + rng.normal(size=(1200, 2))  # the fourth cluster comes later
    prior = NormalInverseWishart(mean=x.mean(axis=0), mean_strength=0.05, dof=6.0, scale=3.0 * np.eye(2))
    model = StreamingDPMixture(prior=prior, refinement=None, random_state=0)
    figure, frames = plt.subplots(1, 4, figsize=(10, 2.6))
    done = 0
    for frame, until in zip(frames, (5, 50, 1200, 4000), strict=True):
        model.partial_fit(x[done:until])
        done = until
        frame.scatter(*x[:until].T, s=3, color=GREY, alpha=0.6, linewidths=0)
        ellipses(frame, model, least=0.01)
        frame.set_xlim(-4, 13)
        frame.set_ylim(-4, 11)
        plane(frame, f"after {until:,} points")
    save("one-pass", figure)


def refinement() -> None:
    """Nine clusters close to each other, two of which one pass has joined, before and after a refinement."""
    rng = np.random.default_rng(1)
    centres = 3.8 * np.indices((3, 3)).reshape(2, -1).T
    x = centres[rng.integers(9, size=6000)] + rng.normal(size=(6000, 2))
    model = StreamingDPMixture(refinement=None, random_state=0).partial_fit(x)
    figure, frames = plt.subplots(1, 2, figsize=(8, 3.2))
    for frame, words in zip(frames, ("one pass", "refined"), strict=True):
        if words == "refined":
            model.refine()
        frame.scatter(*x[::3].T, s=2, color=GREY, alpha=0.6, linewidths=0)
        ellipses(frame, model, least=0.005)
        plane(frame, f"{words}: {len(model.component_ids_)} components")
    save("refinement", figure)


def identity() -> None:
    """Life lines of the components of a drifting stream, of which one cluster splits and another one comes and goes."""
    rng = np.random.default_rng(5)
    n = 24_000
    when = np.arange(n)
    group = rng.integers(4, size=n)
    x = rng.normal(size=(n, 2)) + np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0], [12.0, 12.0]])[group]
    apart = np.clip((when - 8_000) / 4_000, 0.0, 1.0)  # the first group divides in two
    x[:, 1] += np.where(group == 0, np.where(rng.random(n) < 0.5, -4.0, 4.0) * apart, 0.0)
    gone = (group == 3) & (when > 6_000) & (when < 16_000)  # the last group is away for a while
    x[gone] = rng.normal(size=(int(gone.sum()), 2)) + np.array([12.0, 0.0])
    model = StreamingDPMixture(half_life=1_500, random_state=0)
    marks: dict[int, list[tuple[int, float]]] = {}
    for start in range(0, n, 250):
        model.partial_fit(x[start : start + 250])
        for one, mean, weight in zip(model.component_ids_, model.means_, model.weights_, strict=True):
            if weight > 0.02:
                marks.setdefault(int(one), []).append((start + 250, float(mean[0] + 0.6 * mean[1])))
    figure, axes = plt.subplots(figsize=(9, 3.2))
    for number, (one, places) in enumerate(sorted(marks.items())):
        if len(places) < 6:
            continue
        at, level = np.array(places).T
        breaks = np.flatnonzero(np.diff(at) > 1_000) + 1
        for part_at, part in zip(np.split(at, breaks), np.split(level, breaks), strict=True):
            axes.plot(part_at, part, color=colour(number), linewidth=3, solid_capstyle="round")
            axes.annotate(f"{one}", (part_at[0], part[0]), xytext=(-4, 4), textcoords="offset points", ha="right")
    for event in model.events_:
        if event.kind in ("split", "returned") and event.offset > 2_000:
            axes.axvline(event.offset, color=GREY, linewidth=0.8, linestyle=":")
            axes.text(event.offset, axes.get_ylim()[1], f" {event.kind}", fontsize=8, color=GREY, va="top")
    axes.set_xlabel("points of the stream")
    axes.set_ylabel("place of the component")
    axes.set_yticks([])
    axes.set_xlim(-600, n)
    save("identity", figure)


def clusters() -> None:
    """The points of `component`, with the tree of their components and where it is cut."""
    x = crescents()
    model = StreamingDPMixture(random_state=0).fit(x)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), width_ratios=(3, 2), layout="constrained")
    MixtureDisplay.from_estimator(model, x[::3], ax=left)
    HierarchyDisplay.from_estimator(model, ax=right)
    left.set_title("components in the colours of their clusters", fontsize=10, loc="left")
    right.set_title("the tree, and where it is cut", fontsize=10, loc="left")
    save("clusters", figure)


def forgetting() -> None:
    """A cluster that moves: without a half-life it leaves a trail, with one its component follows."""
    rng = np.random.default_rng(5)
    n = 12_000
    path = np.column_stack([np.linspace(0.0, 14.0, n), 2.0 * np.sin(np.linspace(0.0, 3.0, n))])
    moves = rng.random(n) < 0.5
    x = np.where(moves[:, None], path, [7.0, -5.0]) + 0.7 * rng.normal(size=(n, 2))
    figure, frames = plt.subplots(1, 2, figsize=(10, 3.2))
    for frame, half_life in zip(frames, (None, 1000), strict=True):
        model = StreamingDPMixture(half_life=half_life, random_state=0).fit(x)
        shades = np.where(np.arange(n) >= n - 2000, COLOURS[0], "#c8c8c8")
        frame.scatter(*x[::3].T, s=2, c=shades[::3], linewidths=0)
        ellipses(frame, model, least=0.005)
        words = "no half-life" if half_life is None else f"half-life of {half_life:,} points"
        plane(frame, f"{words}: {len(model.component_ids_)} components")
    save("forgetting", figure)


def plots() -> None:
    """The four displays of one stream, whose groups come and go and come back."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(9, 4)) * 5
    those = [range(4), range(6), range(2, 8), range(3, 9), range(3, 9), [0, 1, 4, 5, 6, 7, 8]]
    x = np.vstack([centres[rng.choice(list(some), size=1500)] + rng.normal(size=(1500, 4)) for some in those])
    model = StreamingDPMixture(half_life=600).fit(x)
    figure, axes = plt.subplots(2, 2, figsize=(13, 8.6), layout="constrained")
    MixtureDisplay.from_estimator(model, x[-4000:], ax=axes[0, 0])
    LifelineDisplay.from_estimator(model, ax=axes[0, 1])
    HierarchyDisplay.from_estimator(model, n_clusters=4, ax=axes[1, 0])
    BoundDisplay.from_stream(model, x, ax=axes[1, 1])
    save("plots", figure)


def priors() -> None:
    """The same points under three priors: two of one's own, whose scale is wrong, and the automatic one."""
    rng = np.random.default_rng(7)
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 5.0]])
    x = centres[rng.integers(3, size=3000)] + rng.normal(size=(3000, 2))
    mean = x.mean(axis=0)
    strong = {"mean": mean, "mean_strength": 0.01, "dof": 2_000.0}
    choices = [
        ("components expected too small", NormalInverseWishart(**strong, scale=2_000.0 * 0.04 * np.eye(2))),
        ('prior="auto"', "auto"),
        ("components expected too large", NormalInverseWishart(**strong, scale=2_000.0 * 16.0 * np.eye(2))),
    ]
    figure, frames = plt.subplots(1, 3, figsize=(10, 3.0))
    for frame, (words, prior) in zip(frames, choices, strict=True):
        model = StreamingDPMixture(prior=prior, random_state=0).partial_fit(x)
        frame.scatter(*x[::2].T, s=2, color=GREY, alpha=0.6, linewidths=0)
        ellipses(frame, model, least=0.004)
        frame.set_xlim(-5, 11)
        frame.set_ylim(-5, 10)
        plane(frame, f"{words}: {len(model.component_ids_)}")
    save("priors", figure)


def promises() -> None:
    """Points that a server has acknowledged and learned, over the clock, while it is killed and started again."""
    shoal = Path(sys.executable).with_name("shoal")
    points = np.random.default_rng(0).normal(size=(2_000, 16)).tolist()
    environment = os.environ | {"SHOAL_CHECKPOINT_INTERVAL_S": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [str(shoal), "serve", "--port", "8123", "--data", folder]

        def start() -> subprocess.Popen[bytes]:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while True:
                try:
                    if httpx.get("http://127.0.0.1:8123/readyz").status_code == 200:
                        return process
                except httpx.TransportError:
                    time.sleep(0.02)

        process = start()
        began, seen, acknowledged, killed, back = time.monotonic(), [], [], 0.0, 0.0
        try:
            for number in range(120):
                if number == 60:
                    process.kill()
                    process.wait()
                    killed = time.monotonic() - began
                    time.sleep(0.5)
                    process = start()
                    back = time.monotonic() - began
                key = {"Idempotency-Key": str(number)}
                reply = httpx.post("http://127.0.0.1:8123/ingest", json={"points": points}, headers=key, timeout=60.0)
                acknowledged.append((time.monotonic() - began, reply.json()["log_offset"]))
                told = httpx.get("http://127.0.0.1:8123/components?limit=1")
                if told.status_code == 200:
                    seen.append((time.monotonic() - began, told.json()["log_offset"]))
        finally:
            process.terminate()
            process.wait()
    figure, axes = plt.subplots(figsize=(8, 3))
    axes.step(*np.array(acknowledged).T, where="post", color=COLOURS[0], label="acknowledged: on disk")
    axes.step(*np.array(seen).T, where="post", color=COLOURS[1], label="learned: readers see them")
    axes.axvspan(killed, back, color=GREY, alpha=0.25, linewidth=0)
    axes.text(killed, 0.02 * acknowledged[-1][1], " kill -9", fontsize=9)
    axes.set_xlabel("seconds")
    axes.set_ylabel("points")
    axes.legend(frameon=False, loc="upper left")
    save("promises", figure)


PICTURES: dict[str, Callable[[], None]] = {
    "component": component,
    "one-pass": one_pass,
    "refinement": refinement,
    "identity": identity,
    "clusters": clusters,
    "forgetting": forgetting,
    "plots": plots,
    "priors": priors,
    "promises": promises,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
