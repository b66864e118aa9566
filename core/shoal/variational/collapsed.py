"""Inference with the weights integrated out and a fixed number of components: CTSB, O-CTSB and CFSD.

Kurihara, Welling and Teh (2007), section 3.3: q(z) q(eta) alone, each q(z_n) in turn proportional to the exponential of

    E log p(x_n | eta_i) + E log p(z_n = i | the other labels)                                 (eq. 21, with ERRATA 2.2)

where the second term is a sum of expectations of functions of one count without n each (eq. 24-27, ERRATA 2.3, 2.4).

expectations="taylor"   to second order, as in the paper. Cost O(N T) a round. Neither the bound nor its rise is
                        guaranteed (ERRATA 2.5, 2.6): the value is labelled approximate, `elbo_is_exact` False. Where it
                        is cheap `extra["exact_elbo"]` (1,) gives the exact bound of the final q.
expectations="exact"    by convolution. Cost O(N^2 T) a round. The bound is one, on the evidence of the truncated model,
                        and rises with every q(z_n); at the same q it is never below the uncollapsed one (ERRATA 2.7).

The other keywords are those of `truncated`. The predictive weights are those of the expected counts: exact for CFSD;
for CTSB they sum to one, and differ by little from the exact expectation, a product of dependent ratios (2.13).
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, Unpack

import numpy as np

from shoal.errors import SettingError
from shoal.families import AnyFamily
from shoal.mixture.batch import BatchFit
from shoal.points.arrays import Array
from shoal.variational.collapsed_exact import exact_sweep_inplace
from shoal.variational.collapsed_kernel import taylor_sweep_inplace
from shoal.variational.poisson_binomial import count_moments, exact_value, taylor_value
from shoal.variational.truncated import FitOptions, fit_with
from shoal.variational.truncated_labels import Labels, Sticks, Symmetric
from shoal.variational.truncated_rounds import LogLikelihood, row_slices

Expectations: TypeAlias = Literal["taylor", "exact"]

CHEAP = 1 << 22
"""Responsibilities up to which the exact bound of a Taylor fit is worked out at its end: a few seconds."""


def fit_ctsb(
    family: AnyFamily, x: Array, *, expectations: Expectations = "taylor", **options: Unpack[FitOptions]
) -> BatchFit:
    """Truncated stick breaking, collapsed: points x (N, D), keywords as above."""
    return _fit(family, x, Sticks(options["concentration"]), expectations, False, "ctsb", options)


def fit_o_ctsb(
    family: AnyFamily, x: Array, *, expectations: Expectations = "taylor", **options: Unpack[FitOptions]
) -> BatchFit:
    """CTSB with the components put in order between the halves of a round, where the bound is the better for it."""
    return _fit(family, x, Sticks(options["concentration"]), expectations, True, "o-ctsb", options)


def fit_cfsd(
    family: AnyFamily, x: Array, *, expectations: Expectations = "taylor", **options: Unpack[FitOptions]
) -> BatchFit:
    """Finite symmetric Dirichlet, collapsed."""
    return _fit(family, x, Symmetric(options["concentration"]), expectations, False, "cfsd", options)


@dataclass(frozen=True)
class Collapsed:
    """q(z) q(eta) with the weights integrated out: every q(z_n) in turn."""

    labels: Labels
    expectations: Expectations

    @property
    def is_exact(self) -> bool:
        """Taylor values are approximate."""
        return self.expectations == "exact"

    def divide_inplace(self, resp: Array, base: Array, log_likelihood: LogLikelihood) -> None:
        """One q(z_n) after another, in the order of the points, under q(eta) as it is."""
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
    fitted = fit_with(family, x, division, ordered=ordered, message=message, **options)
    run = fitted.run
    if division.is_exact or run.resp.size > CHEAP:
        return fitted.result()
    better = Collapsed(labels, "exact").log_prior(run.resp, run.base) - division.log_prior(run.resp, run.base)
    return fitted.result(exact_elbo=np.array([fitted.history[-1] + better]))
