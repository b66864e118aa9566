"""Choice of a family from the rows of a warm-up: by their domain, and among the families of a domain by prediction.

Each candidate learns half of the rows in one pass under its own automatic prior, and predicts the others; then the
other way round. The score is the mean log predictive density of all rows, each predicted by a mixture that has not seen
it. A simpler family is taken where the best one gains no more than one standard error of the paired differences.

Whole numbers have probabilities under families of counts, and densities under families of real numbers. The latter
learn and predict rows with uniform noise of width one added. The mean log density of these is at most the log
probability of the whole numbers under the same mixture, rounded (Theis, van den Oord and Bethge 2016, section 3.1). So
the comparison never favours the real numbers.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from shoal.families.auto import candidates_for
from shoal.mixture import StreamSettings, snapshot_of
from shoal.points.arrays import Array
from shoal.sequential.learn import empty_state, learn_inplace
from shoal.sequential.prior import FEWEST_ROWS, choose_prior
from shoal.sequential.prior.jitter import noise

MOST_ROWS = 2_000
"""The comparison uses at most so many rows, evenly spaced over the warm-up."""


class FamilyChoice(NamedTuple):
    """A family, and why it was chosen, in words."""

    family: str
    reason: str


def choose_family(rows: Array, settings: StreamSettings, *, conjugate: bool = False) -> FamilyChoice:
    """The family of raw rows (N, D), N >= 1: a function of the arguments alone. `conjugate`: only such a one."""
    found = candidates_for(rows, conjugate)
    if len(found.names) == 1:
        return FamilyChoice(found.names[0], found.what)
    if len(rows) < 2 * FEWEST_ROWS:
        return FamilyChoice(found.names[0], f"{found.what}; they are too few to compare families")
    rows = rows[:: -(-len(rows) // MOST_ROWS)]
    scores = {}
    for name in found.names:
        own = settings.with_family(name, None)
        dequantised = found.whole_numbers and own.domain.located
        scores[name] = _predicted(_with_noise(rows) if dequantised else rows, own)
    means = {name: float(score.mean()) for name, score in scores.items()}
    best = max(means, key=lambda name: means[name])
    chosen = next(name for name in found.names if _as_good(scores[best], scores[name]))
    shown = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
    return FamilyChoice(chosen, f"{found.what}; nats a row that was held out: {shown}")


def _as_good(best: Array, other: Array) -> bool:
    """Whether the best scores (N,) are at most one standard error above the others."""
    gain = best - other
    return bool(gain.mean() <= gain.std() / np.sqrt(len(gain)))


def _predicted(rows: Array, settings: StreamSettings) -> Array:
    """(N,) log predictive densities of rows (N, D), each by a mixture of the half that it is not in."""
    out = np.empty(len(rows))
    half = noise(0, len(rows), np.zeros(1, dtype=np.int64))[:, 0] > 0.0  # every second row may be of one kind
    for inside in (half, ~half):
        learnt, asked = settings.domain.held(rows[inside]), settings.domain.held(rows[~inside])
        chosen = choose_prior(learnt, settings, thorough=False)
        state = empty_state(settings, chosen.prior, chosen.location, chosen.scale, chosen.jitter)
        state, _ = learn_inplace(state, learnt, np.empty(learnt.shape[0], dtype=np.int64))
        out[~inside] = snapshot_of(state).log_density(asked)
    return out


def _with_noise(rows: Array) -> Array:
    """Rows with noise that looks uniform on (-1/2, 1/2): a function of place and column alone."""
    return rows + ndtr(noise(0, len(rows), np.arange(rows.shape[1]))) - 0.5
