"""Why whole papers do not form a few clusters under `prior="auto"`: NIPS by the strength of the multinomial prior.

    SHOAL_DATA=FOLDER python benchmarks/papers/nips_prior.py [--quick]

The script learns the first 1,000 papers of `nips_bow`, with all 7,605 terms, in one pass. The Dirichlet-multinomial
priors have pseudo-counts that follow the terms' shares (each smoothed by half a count) and sum to `strength`. This is
the comparison by which `prior="auto"` chooses, over a wider range.

- `nats`: mean log density of the last three quarters of the papers, each from those before it.
- `components`: births end at a quarter of the papers.
- `words`: 0 for whole papers, otherwise papers thinned at random to this average number of words.
"""

import time

import numpy as np
from real_sets import counts, read
from record import Table, by_size, floats, options, path_of, plot
from scipy.sparse import csr_array

from shoal.families import DirichletMultinomial
from shoal.mixture import StreamSettings
from shoal.points.rows import SparseRows
from shoal.sequential.prior.choose import FEWEST_ROWS
from shoal.sequential.prior.race import Trials, n_scored

STRENGTHS = tuple(2**j for j in range(7, 18, 2))
WORDS = (0, 20, 60, 200)


def thinned(x: SparseRows, words: int, rng: np.random.Generator) -> SparseRows:
    """Keep each word with probability words / length."""
    share = np.minimum(1.0, words / np.maximum(1.0, np.asarray(x.sum(axis=1)).ravel()))
    kept = rng.binomial(x.data.astype(np.int64), np.repeat(share, np.diff(x.indptr)))
    return SparseRows.of(csr_array((kept.astype(float), x.indices, x.indptr), shape=x.shape))


def main() -> None:
    arguments = options(__doc__).parse_args()
    n = by_size(arguments, 1_000, 300, FEWEST_ROWS)
    x = counts(read("nips_bow"), "train_")[:n]
    settings = StreamSettings(n_features=x.shape[1], family="multinomial")
    columns = "words strength papers nats components cpu_s"
    table = Table(path_of(arguments, "nips_prior", ".csv"), columns, ("words", "strength"))
    for words in WORDS:
        rows = thinned(x, words, np.random.default_rng(arguments.seed)) if words else x
        share = np.asarray(rows.sum(axis=0)).ravel() + 0.5
        share /= share.sum()
        for strength in STRENGTHS:
            start = time.process_time()
            prior = DirichletMultinomial(strength * share)
            trial = Trials(settings, prior, rows).run(prior, len(rows))
            table.add(
                words=words,
                strength=strength,
                papers=n,
                nats=float(trial.score / n_scored(len(rows))),
                components=len(np.unique(trial.labels)),
                cpu_s=time.process_time() - start,
            )
    series = {}
    for words in WORDS:
        kept = table.where(words=words)
        label = f"{words} words a paper" if words else "whole papers"
        series[label] = (floats(kept, "strength"), floats(kept, "components"))
    panel = {"series": series, "x": "sum of the pseudo counts", "y": "components", "log": "xy"}
    plot(path_of(arguments, "nips_prior", ".png"), [panel], "NIPS papers: components by the prior")


if __name__ == "__main__":
    main()
