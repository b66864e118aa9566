"""The automatic family beside fixed ones, on small labelled sets: agreement of the components with the classes.

    python benchmarks/family_auto.py

Rows are in random order, the same for all families. The warm-up takes half of the rows. Agreement is the adjusted Rand
index over all rows,
after one pass and with refinement, as the mean over three orders.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture

SETS = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
FAMILIES = ("auto", "gaussian", "diagonal", "student", "poisson", "negative_binomial")
ORDERS = 3


def main() -> None:
    """Print one line a set and family."""
    for name, load in SETS.items():
        data = load()
        x, labels = data.data.astype(float), data.target
        for family in FAMILIES:
            counts = bool((x == np.floor(x)).all() and (x >= 0).all())
            if family in ("poisson", "negative_binomial") and not counts:
                continue
            cells = []
            for refinement in (None, "auto"):
                found, sizes, chosen = [], [], set()
                for seed in range(ORDERS):
                    order = np.random.default_rng(seed).permutation(len(x))
                    model = StreamingDPMixture(family, refinement=refinement, warmup_points=len(x) // 2).fit(x[order])
                    found.append(adjusted_rand_score(labels[order], model.predict(x[order])))
                    sizes.append(len(model.weights_))
                    chosen.add(model.family_)
                cells.append(f"{np.mean(found):.3f} ({np.mean(sizes):.0f})")
            print(f"| {name} | {family} | {', '.join(sorted(chosen))} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
