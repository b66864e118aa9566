"""Held-out log density of the count families on real documents, compared with one component under the same prior.

Run: SHOAL_DATA=folder python benchmarks/counts_quality.py [m10 nips] [--families multinomial poisson bernoulli].
`StreamingDPMixture` learns 85 % of the documents with its defaults, in random order; the rest are held out (`nips` has
its own split). `bernoulli` sees which terms occur. CPU seconds do not include compilation. NMI is with the labels, if
there are any.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import normalized_mutual_info_score

from shoal import StreamingDPMixture


def rows_of(archive: Any, prefix: str = "") -> csr_array:
    parts = (archive[f"{prefix}data"].astype(float), archive[f"{prefix}indices"].astype(np.int32))
    return csr_array((*parts, archive[f"{prefix}indptr"]), shape=tuple(archive[f"{prefix}shape"]))


def split(name: str) -> tuple[csr_array, csr_array, Any]:
    """Return the documents to learn, the held-out ones, and the labels of the held-out ones or None."""
    archive = np.load(Path(os.environ["SHOAL_DATA"]) / f"{name}_bow.npz", allow_pickle=False)
    if name == "nips":
        return rows_of(archive, "train_"), rows_of(archive, "test_"), None
    x = rows_of(archive)
    order = np.random.default_rng(0).permutation(x.shape[0])
    cut = int(0.85 * len(order))
    return x[order[:cut]], x[order[cut:]], archive["y"][order[cut:]]


def measure(name: str, family: str) -> None:
    learnt, held, labels = split(name)
    if family == "bernoulli":
        learnt.data[:], held.data[:] = 1.0, 1.0
    StreamingDPMixture(family, warmup_points=50).fit(learnt[:60])
    start = time.process_time()
    model = StreamingDPMixture(family).fit(learnt)
    seconds = time.process_time() - start
    alone = StreamingDPMixture(family, prior=model._fitted.state.prior, max_components=1).fit(learnt)
    nmi = "" if labels is None else f"{normalized_mutual_info_score(labels, model.predict(held)):.3f}"
    print(name, family, len(model.component_ids_), f"{model.score(held):.2f}", f"{alone.score(held):.2f}", nmi, end=" ")
    print(f"{seconds:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=["m10", "nips"])
    parser.add_argument("--families", nargs="*", default=["multinomial", "poisson", "bernoulli"])
    chosen = parser.parse_args()
    for name in chosen.sets:
        for family in chosen.families:
            measure(name, family)


if __name__ == "__main__":
    main()
