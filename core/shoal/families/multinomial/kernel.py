"""The one-pass steps of the Dirichlet-multinomial: a document reads and changes the counts of its own terms."""

import math
from typing import Any

from shoal.families.counts.kernel import (
    ALL,
    FEW,
    LARGEST,
    LEAST,
    add_counts,
    clear_counts,
    length_of,
    log_factorial,
    log_factorials_of,
    log_rise_over_factorial,
    remove_counts,
)
from shoal.families.multinomial.types import MultinomialCache
from shoal.families.steps_kernel import absorb, clear_row, implements, release, score_all
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled


@compiled()
def describe(x: Any, i: int, scratch: Array) -> None:
    """Of document i: length, log multinomial coefficient, and log factorials of its few-fold words, into column 0."""
    n = length_of(x, i)
    scratch[0, 0] = n
    scratch[1, 0] = log_factorial(n) - log_factorials_of(x, i, ALL)
    scratch[2, 0] = log_factorials_of(x, i, FEW)


@compiled()
def _score(cache: Any, stats: Any, constants: Array, x: Any, i: int, n: int, score: Array, scratch: Array) -> None:
    length, factorials = scratch[0, 0], scratch[2, 0]
    first, last = x.indptr[i], x.indptr[i + 1]
    for k in range(n):
        product, logs = 1.0, -factorials
        for p in range(first, last):
            word, count = x.indices[p], x.values[p]
            b = constants[0, word] + stats.total[k, word]
            if count > FEW:
                logs += log_rise_over_factorial(b, count)
                continue
            product *= b
            for j in range(1, int(count)):
                if not LEAST < product < LARGEST:
                    logs += math.log(product)
                    product = 1.0
                product *= b + j
            if not LEAST < product < LARGEST:
                logs += math.log(product)
                product = 1.0
        score[k] = logs + math.log(product) - log_rise_over_factorial(cache.strength[k], length)


@implements(score_all, MultinomialCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    describe(x, i, scratch)
    _score(cache, stats, constants, x, i, n, score, scratch)


@implements(absorb, MultinomialCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    add_counts(stats, x, i, k, resp, scratch[1, 0])
    cache.strength[k] += resp * scratch[0, 0]


@implements(clear_row, MultinomialCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    cache.strength[k] = empty.strength[0]
    clear_counts(stats, k)


@implements(release, MultinomialCache)
def _release(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    describe(x, i, scratch)
    remove_counts(stats, x, i, k)
    stats.log_coefficient[k] -= scratch[1, 0]
    cache.strength[k] -= scratch[0, 0]
    return True
