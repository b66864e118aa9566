"""One plot of peers.csv: agreement with the true clusters against learning rate, one panel per stream.

    python benchmarks/peers/plot.py [peers.csv] [peers.png]

Agreement is the adjusted Rand index. For drifting streams it is over the whole stream by lasting ids. A dashed line is
the ceiling: the index of the true model.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot

RESULTS = Path(__file__).resolve().parents[1] / "results"
COLUMNS = 4
PEER = {
    "MiniBatchKMeans": ("#e08a00", "*"),
    "Birch": ("#7a5aa6", "s"),
    "BayesianGaussianMixture": ("#555555", "D"),
    "DBSTREAM": ("#8c8c8c", "v"),
    "DenStream": ("#8c8c8c", "P"),
    "CluStream": ("#8c8c8c", "X"),
}
FAMILY = {"known_covariance": "#1b7f5c", "diagonal": "#1f5fa8", "gaussian": "#b0413e"}


def style(learner: str) -> tuple[str, str]:
    """Colour and marker."""
    if not learner.startswith("shoal"):
        return PEER[learner.split(",")[0]]
    family, how = learner.removeprefix("shoal ").split(", ")
    return FAMILY[family], "o" if how == "refined" else "^"


def draw(lines: list[dict[str, str]], path: Path) -> None:
    panels: dict[str, list[dict[str, str]]] = defaultdict(list)
    for line in lines:
        if line["ari"]:
            panels[line["workload"]].append(line)
    if not panels:
        return  # only the lower limits
    rows = -(-len(panels) // COLUMNS)
    figure, axes = pyplot.subplots(rows, COLUMNS, figsize=(4.6 * COLUMNS, 3.8 * rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (workload, found) in zip(axes.flat, panels.items(), strict=False):
        for line in found:
            colour, marker = style(line["learner"])
            rate, ari = float(line["learn_rows_per_cpu_s"]), float(line["ari"])
            axis.scatter(rate, ari, s=46, color=colour, marker=marker, label=line["learner"], zorder=3)
        ceiling = found[0].get("ceiling") or ""
        if ceiling not in ("", "nan"):
            axis.axhline(float(ceiling), color="#444444", linestyle="--", linewidth=0.8)
        axis.set(xscale="log", title=workload, xlabel="rows learnt per CPU second", ylabel="adjusted Rand index")
        axis.set_ylim(-0.03, 1.05)
        axis.grid(alpha=0.25)
    names = dict.fromkeys(line["learner"] for line in lines if line["ari"])
    marks = [pyplot.Line2D([], [], color=style(n)[0], marker=style(n)[1], linestyle="", label=n) for n in names]
    figure.legend(handles=marks, loc="lower center", ncols=4, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0.0, 0.24 / rows, 1.0, 1.0))
    figure.savefig(path, dpi=120)


def main() -> None:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "peers.csv"
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else source.with_suffix(".png")
    with source.open(newline="") as file:
        draw(list(csv.DictReader(file)), target)
    print(target)


if __name__ == "__main__":
    main()
