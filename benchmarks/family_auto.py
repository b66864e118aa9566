"""The automatic family beside fixed ones, on labelled sets: agreement of components and clusters with the classes.

    SHOAL_DATA=DIR python benchmarks/family_auto.py [--set digits ...] [--rows 3000] [--orders 2] [--out FILE.csv]

Sets are those of `real_sets.py`, and some drawn from one family each. Rows are in random order, the same for all
families. The warm-up is of 1,000 rows, or half of them where they are fewer. Agreement is the adjusted Rand index over
all rows, as the mean over the orders. The best fixed family is the one whose refined clusters agree best.
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from real_sets import Labelled, available, load
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from shoal import StreamingDPMixture
from shoal.families import FAMILIES

RESULTS = Path(__file__).parent / "results" / "family_auto.csv"
FIELDS = ("set", "family", "used", "components_one_pass", "clusters_one_pass", "components", "clusters", "n_components")
REAL = ("gaussian", "diagonal", "student")
OF_DOMAIN = {
    "counts": ("poisson", "negative_binomial"),
    "binary values": ("bernoulli",),
    "proportions": ("dirichlet",),
    "unit vectors": ("von_mises_fisher",),
}
N_DRAWN = 3_000


def drawn(make: Callable[[np.random.Generator, np.ndarray], np.ndarray]) -> Callable[[], Labelled]:
    """Six groups of one law, of equal weight."""

    def rows() -> Labelled:
        rng = np.random.default_rng(0)
        y = rng.integers(6, size=N_DRAWN)
        return Labelled(np.asarray(make(rng, y), dtype=np.float64), y)

    return rows


def bursty(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    mean = rng.gamma(2.0, 6.0, (6, 8))[y]
    return rng.poisson(mean * rng.gamma(2.0, 0.5, mean.shape))


def proportions(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    precision = 0.5 + 60.0 * rng.dirichlet(np.ones(8), 6)
    return np.stack([rng.dirichlet(precision[k]) for k in y])


def directions(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    mean = rng.normal(size=(6, 24))
    x = (mean / np.linalg.norm(mean, axis=1, keepdims=True))[y] + 0.12 * rng.normal(size=(len(y), 24))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def low_rank(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    axes, mean = rng.normal(size=(10, 160)), 3.0 * rng.normal(size=(6, 10))
    return (mean[y] + rng.normal(size=(len(y), 10))) @ axes + 0.3 * rng.normal(size=(len(y), 160))


def full(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    root = 0.6 * rng.normal(size=(6, 6, 6))
    return 5.0 * rng.normal(size=(6, 6))[y] + np.einsum("nij,nj->ni", root[y], rng.normal(size=(len(y), 6)))


def heavy_tails(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    return 7.0 * rng.normal(size=(6, 4))[y] + rng.standard_t(2.5, (len(y), 4))


def lattice(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    return np.round(rng.uniform(500.0, 1_500.0, (6, 5))[y] + 40.0 * rng.normal(size=(len(y), 5)))


DRAWN = {
    "drawn, poisson": drawn(lambda rng, y: rng.poisson(rng.gamma(2.0, 4.0, (6, 6))[y])),
    "drawn, small counts": drawn(lambda rng, y: rng.poisson(rng.gamma(0.5, 2.0, (6, 12))[y])),
    "drawn, bursty counts": drawn(bursty),
    "drawn, rounded reals": drawn(lattice),
    "drawn, binaries": drawn(lambda rng, y: rng.random((len(y), 20)) < rng.beta(0.5, 0.5, (6, 20))[y]),
    "drawn, proportions": drawn(proportions),
    "drawn, unit vectors": drawn(directions),
    "drawn, low rank": drawn(low_rank),
    "drawn, heavy tails": drawn(heavy_tails),
    "drawn, diagonal": drawn(
        lambda rng, y: 4.0 * rng.normal(size=(6, 6))[y] + rng.normal(size=(len(y), 6)) * rng.uniform(0.3, 2, (6, 6))[y]
    ),
    "drawn, full": drawn(full),
}


def families_of(x: np.ndarray) -> list[str]:
    """The fixed families to compare for rows (N, D)."""
    names = list(REAL)
    for name, kind in FAMILIES.items():
        if name in OF_DOMAIN.get(kind.domain.name, ()):
            inside = bool(kind.domain.allowed(x).all())
            if inside and (kind.domain.fault is None or bool((kind.domain.fault(x) <= 1e-4).all())):
                names.append(name)
    return [*names, "subspace"] if x.shape[1] >= 128 else names


def measured(data: Labelled, family: str) -> dict[str, Any]:
    """Agreement after one pass and with refinement, of components and of default clusters."""
    warmup = min(1_000, len(data.y) // 2)
    out: dict[str, Any] = {}
    for refinement, name in ((None, "_one_pass"), ("auto", "")):
        model = StreamingDPMixture(family, refinement=refinement, warmup_points=warmup).fit(data.x)
        for level in ("component", "cluster"):
            out[f"{level}s{name}"] = float(adjusted_rand_score(data.y, model.predict(data.x, level=level)))
        out |= {"used": model.family_, "n_components": float(len(model.weights_))}
    return out


def shown(row: dict[str, Any]) -> str:
    """Components and clusters of one pass, then of refinement."""
    return " / ".join(f"{row[key]:.3f}" for key in FIELDS[3:7])


def main() -> None:
    """Write a line for each set and family, and print one for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*available(), *DRAWN]
    parser.add_argument("--set", nargs="+", choices=names, default=names, dest="sets")
    parser.add_argument("--rows", type=int, default=N_DRAWN, help="most rows of a set")
    parser.add_argument("--orders", type=int, default=2, help="random orders of the rows")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    lines = []
    for name in arguments.sets:
        whole = DRAWN[name]() if name in DRAWN else load(name, arguments.rows)
        means: dict[str, dict[str, Any]] = {}
        for family in ("auto", *families_of(whole.x)):
            found = []
            for seed in range(arguments.orders):
                order = np.random.default_rng(seed).permutation(len(whole.y))
                with threadpool_limits(1):
                    found.append(measured(Labelled(whole.x[order], whole.y[order]), family))
            mean = {key: round(float(np.mean([each[key] for each in found])), 3) for key in found[0] if key != "used"}
            means[family] = mean | {"used": ", ".join(sorted({each["used"] for each in found}))}
            lines.append({"set": name, "family": family, **means[family]})
        fixed = {family: mean for family, mean in means.items() if family != "auto"}
        best = max(fixed, key=lambda family: fixed[family]["clusters"])
        auto = means["auto"]
        cells = (name, auto["used"], shown(auto), shown(means["gaussian"]), best, shown(means[best]))
        print("| " + " | ".join(cells) + " |", flush=True)
        with arguments.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    main()
