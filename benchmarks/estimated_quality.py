"""Held-out log density of proportions and unit vectors on real data, compared with one component.

Run: SHOAL_DATA=folder python benchmarks/estimated_quality.py. The data are topic proportions of NIPS papers (their own
split), and embeddings of log lines as unit vectors (14,000 learned in random order, the rest held out). The methods are
the default and "sva-pm". CPU seconds do not include compilation. NMI is with the labels, if there are any.
"""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import normalized_mutual_info_score

from shoal import StreamingDPMixture
from shoal.points.arrays import Array


def topics(folder: Path) -> tuple[Array, Array, Any]:
    """Return the proportions to learn and the held-out ones, without labels."""
    archive = np.load(folder / "nips_lda50.npz")
    x = archive["theta"].astype(float)
    return x[np.random.default_rng(0).permutation(len(x))], archive["theta_test"].astype(float), None


def embeddings(folder: Path) -> tuple[Array, Array, Any]:
    """Return the unit vectors to learn, the held-out ones, and their templates. Omit lines without a known word."""
    archive = np.load(folder / "loghub_embed.npz")
    x = archive["X"].astype(float)
    length = np.linalg.norm(x, axis=1)
    kept = np.flatnonzero(length > 0.0)
    order = np.random.default_rng(0).permutation(kept)
    x = x[order] / length[order, None]
    return x[:14_000], x[14_000:], archive["y"][order[14_000:]]


def measure(name: str, family: str, method: str, rows: tuple[Array, Array, Any]) -> None:
    learnt, held, labels = rows
    StreamingDPMixture(family, warmup_points=50).fit(learnt[:60])
    start = time.process_time()
    model = StreamingDPMixture(family, method=method).fit(learnt)
    seconds = time.process_time() - start
    alone = StreamingDPMixture(family, prior=model._fitted.state.prior, max_components=1).fit(learnt)
    nmi = "-" if labels is None else f"{normalized_mutual_info_score(labels, model.predict(held)):.3f}"
    print(
        name,
        family,
        method,
        len(model.component_ids_),
        f"{model.score(held):.2f}",
        f"{alone.score(held):.2f}",
        nmi,
        end=" ",
    )
    print(f"{seconds:.1f} s", flush=True)


def main() -> None:
    folder = Path(os.environ["SHOAL_DATA"])
    for method in ("default", "sva-pm"):
        measure("nips_lda50", "dirichlet", method, topics(folder))
        measure("loghub_embed", "von_mises_fisher", method, embeddings(folder))


if __name__ == "__main__":
    main()
