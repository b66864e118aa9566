"""Inference with the weights integrated out and a fixed number of components: CTSB, O-CTSB and CFSD.

Kurihara, Welling and Teh (2007), section 3.3: q(z) q(eta) alone, each q(z_n) in turn proportional to the exponential of

    E log p(x_n | eta_i) + E log p(z_n = i | the other labels)                                 (eq. 21, with ERRATA 2.2)

The second term is a sum of expectations, each of a function of one count without n (eq. 24-27, ERRATA 2.3, 2.4).

expectations="taylor"   to second order, as in the paper. Cost O(N T) a round. Neither the bound nor its rise is
                        guaranteed (ERRATA 2.5, 2.6): the value is labelled approximate, `elbo_is_exact` False. For
                        small data `extra["exact_elbo"]` (1,) is the exact bound of the final q.
expectations="exact"    by convolution. Cost O(N^2 T) a round. The value is a bound on the evidence of the truncated
                        model and rises with every q(z_n). At the same q it is never below the uncollapsed bound
                        (ERRATA 2.7).

The other keywords are those of `truncated`. The predictive weights are those of the expected counts. They are exact for
CFSD. For CTSB they sum to one and differ by little from the exact expectation, a product of dependent ratios (2.13).

The exact sweep needs E f(M) for each q(z_n), with M the count over all other points: new values before n, old values
after it. To remove a point from a distribution of counts, one divides by its flip. That is unstable for probabilities
near 1/2, and repetition makes it worse, so no point is ever removed. Let P_n be the distribution of the count over the
points before n, and

    F_n(a) = E f(a + count over the points after n),   F_{n-1}(a) = (1 - p_n) F_n(a) + p_n F_n(a + 1)

Then the expectation is sum_a P_n(a) F_n(a). F runs backwards over old probabilities before the sweep, P forwards over
new ones during it. Both are averages, and no digit is lost. F is stored at the end of every stretch of about
sqrt(N / 2) points and computed again within it. Cost O(N^2 T) a sweep, memory O(N^(3/2) T).
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, Unpack

import numpy as np

from shoal.errors import SettingError
from shoal.families import AnyFamily
from shoal.mixture import BatchFit
from shoal.points.arrays import Array
from shoal.variational.collapsed_kernel import taylor_sweep_inplace
from shoal.variational.label_priors import Labels, LabelTerms, Sticks, Symmetric, masses_above
from shoal.variational.poisson_binomial import CountMoments, count_moments, exact_value, taylor_value
from shoal.variational.truncated import FitOptions, LogLikelihood, fit_with, row_slices

Expectations: TypeAlias = Literal["taylor", "exact"]

CHEAP = 1 << 22
"""Responsibilities (N T) up to which the exact bound of a Taylor fit is computed at its end: a few seconds."""


def fit_ctsb(
    family: AnyFamily, x: Array, *, expectations: Expectations = "taylor", **options: Unpack[FitOptions]
) -> BatchFit:
    """Truncated stick breaking, collapsed: points x (N, D), keywords as above."""
    return _fit(family, x, Sticks(options["concentration"]), expectations, False, "ctsb", options)


def fit_o_ctsb(
    family: AnyFamily, x: Array, *, expectations: Expectations = "taylor", **options: Unpack[FitOptions]
) -> BatchFit:
    """As `fit_ctsb`, with the components put in their best order in every round, where that raises the bound."""
    return _fit(family, x, Sticks(options["concentration"]), expectations, True, "o-ctsb", options)


def fit_cfsd(
    family: AnyFamily, x: Array, *, expectations: Expectations = "taylor", **options: Unpack[FitOptions]
) -> BatchFit:
    """Finite symmetric Dirichlet, collapsed: points x (N, D), keywords as above."""
    return _fit(family, x, Symmetric(options["concentration"]), expectations, False, "cfsd", options)


@dataclass(frozen=True)
class Collapsed:
    """q(z) q(eta) with the weights integrated out: every q(z_n) in turn."""

    labels: Labels
    expectations: Expectations

    @property
    def is_exact(self) -> bool:
        """Whether the expectations are exact; Taylor values are approximate."""
        return self.expectations == "exact"

    def divide_inplace(self, resp: Array, base: Array, log_likelihood: LogLikelihood) -> None:
        """Update one q(z_n) after another, in the order of the points, with q(eta) fixed."""
        terms = self.labels.terms(base, len(resp))
        if self.is_exact:
            exact_sweep_inplace(resp, terms, log_likelihood)
            return
        moments = count_moments(resp, terms.tail.size)
        for rows in row_slices(*resp.shape):
            taylor_sweep_inplace(
                resp[rows], np.ascontiguousarray(log_likelihood(rows)), terms.own, terms.tail, *moments
            )

    def log_prior(self, resp: Array, base: Array) -> float:
        """E log p(z), nats."""
        terms = self.labels.terms(base, len(resp))
        if self.is_exact:
            return exact_value(terms, resp)
        return taylor_value(terms, count_moments(resp, terms.tail.size))


def _fit(
    family: AnyFamily,
    x: Array,
    labels: Labels,
    expectations: Expectations,
    ordered: bool,
    message: str,
    options: FitOptions,
) -> BatchFit:
    if expectations not in ("taylor", "exact"):
        raise SettingError(f'expectations is {expectations!r}; choose "taylor" or "exact"')
    division = Collapsed(labels, expectations)
    run = fit_with(family, x, division, ordered=ordered, message=message, **options)
    if division.is_exact or run.resp.size > CHEAP:
        return run.result()
    better = Collapsed(labels, "exact").log_prior(run.resp, run.base) - division.log_prior(run.resp, run.base)
    return run.result(exact_elbo=np.array([run.history[-1] + better]))


def exact_sweep_inplace(resp: Array, terms: LabelTerms, log_likelihood: LogLikelihood) -> None:
    """Set each q(z_n) of resp (N, T) in turn to its best given the others: the exact bound rises with every one."""
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
    """E log p(z_n = i | others) (T,) up to a constant, from expectations of its functions: own, then tails."""
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


def taylor_sweep_reference_inplace(resp: Array, log_likelihood: Array, terms: LabelTerms) -> None:
    """The sweep of `collapsed_kernel` in plain NumPy: the moments of the counts are summed again for every point.

    Update resp (N, T) row by row; `log_likelihood` (N, T) is E log p(x_n | eta_i).
    """
    others = np.ones(len(resp), dtype=bool)
    for n in range(len(resp)):
        others[n] = False
        moments = count_moments(resp[others], terms.tail.size)
        score = log_likelihood[n] + conditional(_second_order(terms, moments), terms)
        weights = np.exp(score - score.max())
        resp[n] = weights / weights.sum()
        others[n] = True


def _second_order(terms: LabelTerms, moments: CountMoments) -> Array:
    """E log(own + m), then E [log(tail + m) - log(tail + m + 1)], each f(mean) + f''(mean) variance / 2."""
    own, tail = terms.own + moments.mean, terms.tail + moments.tail_mean
    labels = np.log(own) - 0.5 * moments.variance / own**2
    tails = np.log(tail) - np.log(tail + 1.0) - 0.5 * moments.tail_variance * (tail**-2 - (tail + 1.0) ** -2)
    return np.concatenate([labels, tails])
