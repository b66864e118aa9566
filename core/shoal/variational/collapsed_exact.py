"""One sweep of the collapsed methods with exact expectations, every q(z_n) in turn.

What q(z_n) needs is E f(M) with M the count over all other points: those before n, already new, and those after it,
still old. Taking a point out of a distribution of counts divides by its flip, which is unstable for probabilities near
1/2 and ever worse when repeated. So nothing is taken out. With P_n the distribution of the count over the points before
n and

    F_n(a) = E f(a + count over the points after n),   F_{n-1}(a) = (1 - p_n) F_n(a) + p_n F_n(a + 1)

the expectation is sum_a P_n(a) F_n(a): F runs backwards over old probabilities before the sweep, P forwards over new
ones during it, both are averages, and no digit is lost. F is kept at the end of every stretch of about sqrt(N / 2)
points and worked out again within it. Cost O(N^2 T) a sweep, memory O(N^(3/2) T).
"""

import numpy as np

from shoal.points.arrays import Array
from shoal.variational.truncated_labels import LabelTerms, masses_above
from shoal.variational.truncated_rounds import LogLikelihood


def exact_sweep_inplace(resp: Array, terms: LabelTerms, log_likelihood: LogLikelihood) -> None:
    """Each q(z_n) of resp (N, T) in turn at its best given the others: the exact bound rises with every one."""
    stretches = _stretches(len(resp))
    kept = _backwards(resp, terms, stretches)
    before = np.zeros((terms.own.size + terms.tail.size, len(resp) + 1))
    before[:, 0] = 1.0
    for stretch, values in zip(stretches, kept, strict=True):
        after = _within(resp, terms, stretch, values)
        scores = log_likelihood(stretch)
        for offset, n in enumerate(range(stretch.start, stretch.stop)):
            expected = np.einsum("ca,ca->c", before[:, : n + 1], after[offset])
            resp[n] = _softmax(scores[offset] + conditional(expected, terms))
            _flip(before, _flips(resp[n], terms), n)


def conditional(expected: Array, terms: LabelTerms) -> Array:
    """E log p(z_n = i | others) (T,) up to a constant, from the expectations of its functions: own, then tails."""
    n_labels, n_tails = terms.own.size, terms.tail.size
    passed = np.zeros(n_labels)
    passed[1 : n_tails + 1] = np.cumsum(expected[n_labels:])
    passed[n_tails + 1 :] = passed[n_tails]
    return np.asarray(expected[:n_labels] + passed)


def _functions(terms: LabelTerms, counts: Array) -> Array:
    """Forward differences (C, A) of the terms at `counts` (A,): log(own + m) and log((tail + m) / (tail + m + 1))."""
    tail = terms.tail[:, None] + counts
    return np.concatenate([np.log(terms.own[:, None] + counts), -np.log1p(1.0 / tail)])


def _flips(resp: Array, terms: LabelTerms) -> Array:
    """Probability (..., C) that a point is in each count, from its responsibilities (..., T)."""
    above = np.clip(masses_above(resp)[..., : terms.tail.size], 0.0, 1.0)
    return np.concatenate([resp, above], axis=-1)


def _flip(before: Array, p: Array, n: int) -> None:
    """Add a point with probabilities p (C,) to the distributions `before` of counts over n points."""
    hit = p[:, None] * before[:, : n + 1]
    before[:, : n + 1] *= (1.0 - p)[:, None]
    before[:, 1 : n + 2] += hit


def _stretches(n_points: int) -> list[slice]:
    step = max(1, int(np.sqrt(n_points / 2.0)))
    return [slice(start, min(start + step, n_points)) for start in range(0, n_points, step)]


def _backwards(resp: Array, terms: LabelTerms, stretches: list[slice]) -> list[Array]:
    """F at the last point of every stretch: (C, n + 1) for point n."""
    values = _functions(terms, np.arange(float(len(resp))))
    kept = []
    for stretch in reversed(stretches):
        kept.append(values)
        if stretch.start > 0:
            for p in _flips(resp[stretch], terms)[::-1]:
                values = _earlier(values, p)
    return kept[::-1]


def _within(resp: Array, terms: LabelTerms, stretch: slice, values: Array) -> list[Array]:
    """F at every point of a stretch, from that at its last."""
    found = [values]
    for p in _flips(resp[stretch], terms)[:0:-1]:
        found.append(_earlier(found[-1], p))
    return found[::-1]


def _earlier(values: Array, p: Array) -> Array:
    """F one point earlier (C, A - 1) from F (C, A) and the flips p (C,) of its point."""
    step = np.diff(values, axis=1)
    step *= p[:, None]
    step += values[:, :-1]
    return np.asarray(step)


def _softmax(score: Array) -> Array:
    weights = np.exp(score - score.max())
    return np.asarray(weights / weights.sum())
