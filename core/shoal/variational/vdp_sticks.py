"""The stick-breaking prior v_i ~ Beta(a1, a2) with an infinite variational family: sticks beyond T keep the prior.

Kurihara, Welling and Vlassis (2006), eq. 4-7 and 12, as put right by ERRATA 1.1-1.5. Concentration alpha is Beta(1,
alpha). Arrays over components stand in the order of the sticks.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, psi

from shoal.errors import SettingError
from shoal.points.arrays import Array


class StickPrior(NamedTuple):
    """Beta(a1, a2) of every stick, both > 0."""

    a1: float
    a2: float

    @property
    def log_tail(self) -> float:
        """log of sum_{i>T} exp(S_i) less what sticks up to T and the point contribute: E_p log v - log(1 - exp(E_p
        log(1 - v))), ERRATA 1.1."""
        total = psi(self.a1 + self.a2)
        log_stop, log_go = psi(self.a1) - total, psi(self.a2) - total
        return float(log_stop - np.log(-np.expm1(log_go)))


def stick_prior(concentration: float | None, sticks: tuple[float, float] | None) -> StickPrior:
    """Beta(1, concentration), or the pair `sticks`; exactly one is given. Raises SettingError."""
    if (concentration is None) == (sticks is None):
        raise SettingError("give either `concentration` or `sticks=(a1, a2)`, and not both")
    a1, a2 = (1.0, concentration) if sticks is None else sticks
    prior = StickPrior(float(a1), float(a2))  # type: ignore[arg-type]
    if not all(np.isfinite(value) and value > 0.0 for value in prior):
        raise SettingError(f"sticks are Beta({prior.a1}, {prior.a2}); both parameters must be positive numbers")
    return prior


def masses_after(mass: Array, tail: float) -> Array:
    """N_{>i} (T,): the mass of the later components and of the tail (ERRATA 1.5)."""
    after = np.empty_like(mass)
    if mass.size:
        after[:-1] = np.cumsum(mass[:0:-1])[::-1]
        after[-1] = 0.0
    return after + tail


def stick_posterior(prior: StickPrior, mass: Array, tail: float) -> Array:
    """Parameters (T, 2) of the optimal q(v_i), eq. 14."""
    return np.stack([prior.a1 + mass, prior.a2 + masses_after(mass, tail)], axis=1)


def stick_bound(prior: StickPrior, mass: Array, tail: float) -> float:
    """E log p(z | v) - KL(q(v) || p(v)) at the optimal q(v) of T sticks, nats (ERRATA 0.3, every stick free)."""
    sticks = stick_posterior(prior, mass, tail)
    return float(betaln(sticks[:, 0], sticks[:, 1]).sum() - mass.size * betaln(prior.a1, prior.a2))


def expected_log_sticks(sticks: Array) -> tuple[Array, Array]:
    """E log v_i and E log(1 - v_i), (T,) each, of q(v_i) = Beta(sticks[i])."""
    total = psi(sticks.sum(axis=1))
    return psi(sticks[:, 0]) - total, psi(sticks[:, 1]) - total


def expected_log_weights(prior: StickPrior, sticks: Array) -> Array:
    """(T + 1,): E log pi_i of the components, and last the log of the summed exp(E log pi_i) of the tail."""
    log_stop, log_go = expected_log_sticks(sticks)
    passed = np.concatenate([[0.0], np.cumsum(log_go)])
    result: Array = np.append(log_stop, prior.log_tail) + passed
    return result


def log_mean_weights(sticks: Array) -> Array:
    """(T + 1,): log E pi_i and, for the prior predictive, the log of what is left (ERRATA 1.2); exp sums to one."""
    log_total = np.log(sticks.sum(axis=1))
    log_stop, log_go = np.log(sticks[:, 0]) - log_total, np.log(sticks[:, 1]) - log_total
    result: Array = np.append(log_stop, 0.0) + np.concatenate([[0.0], np.cumsum(log_go)])
    return result


def stick_divergence(prior: StickPrior, sticks: Array) -> float:
    """sum_i KL(Beta(sticks[i]) || Beta(a1, a2)), nats."""
    log_stop, log_go = expected_log_sticks(sticks)
    change = (sticks[:, 0] - prior.a1) * log_stop + (sticks[:, 1] - prior.a2) * log_go
    log_norm = betaln(prior.a1, prior.a2) - betaln(sticks[:, 0], sticks[:, 1])
    return float((change + log_norm).sum())
