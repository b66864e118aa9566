"""CPU time per document of the `multinomial` kernel and of predictions, by the size of the vocabulary.

Run: python benchmarks/micro/words_present.py [--repeats 7]. Writes benchmarks/results/words_present.csv: one line per
measurement, the least over repeats, with the machine. Documents have 100 different words for every vocabulary. There
are 20 mature components without births, on one thread. Compare ratios: a document should cost by its words.
"""

import argparse
import csv
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from shoal.families import DirichletMultinomial
from shoal.families.predictive_cache import refresh
from shoal.points.rows import SparseRows
from shoal.sequential.one_pass import one_pass_inplace
from shoal.sequential.passes import Components, PassRules, Piece, new_components

RESULTS = Path(__file__).resolve().parents[1] / "results" / "words_present.csv"
VOCABULARIES = (2_000, 13_000, 100_000)
WORDS, COMPONENTS, DOCUMENTS = 100, 20, 1_000


class Figure(NamedTuple):
    what: str
    vocabulary: int
    words_present: int
    components: int
    cpu_us_per_document: float


def documents(n: int, vocabulary: int, rng: np.random.Generator) -> SparseRows:
    """Draw n documents of 100 words, one from each hundredth of the vocabulary, with geometric counts of mean 1.5."""
    stratum = vocabulary // WORDS
    columns = rng.integers(0, stratum, (n, WORDS)) + stratum * np.arange(WORDS)
    values = rng.geometric(1 / 1.5, n * WORDS).astype(float)
    return SparseRows.of(csr_array((values, columns.ravel(), np.arange(n + 1) * WORDS), shape=(n, vocabulary)))


def least_cpu_us(work: Callable[[], None], n: int, repeats: int) -> float:
    found = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        found.append((time.process_time() - start) / n * 1e6)
    return min(found)


def measured(vocabulary: int, repeats: int) -> list[Figure]:
    rng = np.random.default_rng(vocabulary)
    prior = DirichletMultinomial(np.full(vocabulary, 0.5))
    x = documents(DOCUMENTS, vocabulary, rng)
    stats = prior.suffstats(x, np.eye(COMPONENTS)[rng.integers(COMPONENTS, size=DOCUMENTS)])
    components = new_components(prior, COMPONENTS + 1)
    for target, source in zip(components.stats, stats, strict=True):
        target[:COMPONENTS] = source
    components = Components(components.stats, refresh(prior, components.stats, COMPONENTS), *components[2:])
    rules = PassRules(1.0, 0.5, 1e-3, "none", COMPONENTS)
    labels, log_density = np.zeros(DOCUMENTS, dtype=np.int64), np.zeros(DOCUMENTS)

    def learn() -> None:
        one_pass_inplace(prior, rules, components, COMPONENTS, 0, Piece(x, labels, log_density))

    predictive = prior.predictive(prior.posterior(stats))
    learn()
    kernel = least_cpu_us(learn, DOCUMENTS, repeats)
    predict = least_cpu_us(lambda: prior.log_predictive_from(predictive, x), DOCUMENTS, repeats)
    return [
        Figure("one pass", vocabulary, WORDS, COMPONENTS, round(kernel, 3)),
        Figure("log predictive", vocabulary, WORDS, COMPONENTS, round(predict, 3)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    with threadpool_limits(1):
        figures = [figure for vocabulary in VOCABULARIES for figure in measured(vocabulary, repeats)]
    machine = f"{platform.machine()} {platform.processor()}; numba {numba.__version__}; numpy {np.__version__}"
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*Figure._fields, "when", "machine"])
        for figure in figures:
            writer.writerow([*figure, datetime.now(UTC).isoformat(timespec="seconds"), machine])
            print(*figure, sep="\t")


if __name__ == "__main__":
    main()
