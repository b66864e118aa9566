"""Density of held-out rows and number of components on real sets, by family and prior.

Run: SHOAL_DATA=folder python benchmarks/held_out.py [set ...]. Four fifths of the rows, in random order, are learned
and refined once more at the end; the last fifth is held out. Sets of more than 32 features are reduced to principal
components of the learned rows. Columns: components; mean log density of learned and of held-out rows in nats, and their
difference; agreement (adjusted Rand index) of held-out rows; CPU seconds, compilation left out.
"""

import csv
import sys
import time
from pathlib import Path

from real_sets import Labelled, load
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture

SETS = {"digits": 1_797, "cytometry, drawn": 10_000, "log lines, templates": 14_000, "mnist": 10_000}
FEATURES = 32
WAYS = [(family, prior) for family in ("gaussian", "student", "diagonal") for prior in ("auto", "hierarchical")]
COLUMNS = ("set", "family", "prior", "components", "learned", "held out", "gap", "agreement", "cpu_s")
RESULTS = Path(__file__).parent / "results" / "held_out.csv"


def measure(name: str, data: Labelled, family: str, prior: str) -> list[str]:
    """One line of the table."""
    x, n = data.x, len(data.x) * 4 // 5
    if x.shape[1] > FEATURES:
        x = PCA(FEATURES, svd_solver="full").fit(x[:n]).transform(x)
    StreamingDPMixture(family, prior=prior, warmup_points=200).fit(x[:400]).refine()
    start = time.process_time()
    model = StreamingDPMixture(family, prior=prior).fit(x[:n])
    model.refine()
    seconds = time.process_time() - start
    learned, held = model.score(x[:n]), model.score(x[n:])
    agreement = adjusted_rand_score(data.y[n:], model.predict(x[n:]))
    numbers = (f"{learned:.2f}", f"{held:.2f}", f"{learned - held:.2f}", f"{agreement:.3f}", f"{seconds:.1f}")
    return [name, family, prior, str(len(model.weights_)), *numbers]


def main() -> None:
    lines = []
    for name in sys.argv[1:] or SETS:
        data = load(name, SETS[name])
        for family, prior in WAYS:
            lines.append(measure(name, data, family, prior))
            print("  ".join(lines[-1]), flush=True)
    if not sys.argv[1:]:
        with RESULTS.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])


if __name__ == "__main__":
    main()
