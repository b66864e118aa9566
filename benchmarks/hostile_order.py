"""Agreement of streams without refinement under hostile orders and changes of scale.

    python benchmarks/hostile_order.py [--seeds 4] [--out FILE.csv]

Nine unit Gaussians on a grid (spacing 8, and 5 where the name says so) and ten Gaussians in 16 dimensions, 12,000
points each. The adjusted Rand index is on 5,000 fresh points, drawn as at the end of the stream.
"""

import argparse
import csv
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture

N, N_TEST, CHUNK = 12_000, 5_000, 1_000
EARLY = N // 10


class Drawn(NamedTuple):
    """A stream, fresh points and their clusters."""

    x: np.ndarray
    test: np.ndarray
    labels: np.ndarray


def drawn(order: str, centres: np.ndarray, rng: np.random.Generator) -> Drawn:
    """Points of unit Gaussians at the centres (K, D), in an order."""
    k, d = centres.shape
    z, labels = rng.integers(k, size=N), rng.integers(k, size=N_TEST)
    if order == "one cluster first":
        z[:2_000] = 0
    elif order == "sorted":
        z = np.sort(z)
    x, test = centres[z] + rng.normal(size=(N, d)), centres[labels] + rng.normal(size=(N_TEST, d))
    if order == "a hundred times wider":
        x[:EARLY] /= 100.0
    elif order == "a hundred times narrower":
        x[EARLY:], test = x[EARLY:] / 100.0, test / 100.0
    return Drawn(x, test, labels)


def grid(spacing: float) -> np.ndarray:
    return spacing * np.stack(np.divmod(np.arange(9.0), 3.0), axis=1)


ORDERS = ("shuffled", "one cluster first", "sorted", "a hundred times wider", "a hundred times narrower")


def measure(family: str, data: Drawn) -> dict[str, Any]:
    model = StreamingDPMixture(family, refinement=None)
    began = time.process_time()
    for start in range(0, N, CHUNK):
        model.partial_fit(data.x[start : start + CHUNK])
    return {
        "components": len(model.component_ids_),
        "ari": round(float(adjusted_rand_score(data.labels, model.predict(data.test))), 3),
        "rescaled": sum(event.kind == "rescaled" for event in model.events_),
        "cpu_s": round(time.process_time() - began, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    for clusters in ("nine, spacing 8", "nine, spacing 5", "ten in 16-D"):
        for order in ORDERS:
            for family in ("gaussian", "diagonal"):
                for seed in range(arguments.seeds):
                    rng = np.random.default_rng([seed, len(order)])
                    centres = rng.normal(size=(10, 16)) * 3.0 if "16" in clusters else grid(float(clusters[-1]))
                    row = {"clusters": clusters, "order": order, "family": family, "seed": seed}
                    rows.append(row | measure(family, drawn(order, centres, rng)))
                    print(*rows[-1].values(), flush=True)
    if arguments.out is not None:
        with arguments.out.open("w", newline="") as out:
            writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
