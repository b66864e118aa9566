"""Choice of a family from the rows of a warm-up: by their domain, and by trials of the families of a domain.

The family that predicts best is not always one whose components are groups. Counts of narrow support are predicted well
by hundreds of Poisson components, and heavy tails by one component that covers every group. So another family takes the
place of the domain's default only if three things hold in refined trials (`family_trial`):

- Prediction. It predicts held-out rows better by more than `CLEAR` standard errors of the paired differences.
- Simplicity. It needs no more components, or up to `MOST_COMPONENTS` times as many if they agree at least as well. A
  family of the wrong shape covers a group by several, which agree badly. One of the right shape may find groups that
  the default misses.
- Stability. Its components agree between the halves of the rows as well as those of the default, but for `SLACK`, and
  are more than one. Agreement is the adjusted Rand index (Ben-Hur, Elisseeff and Guyon 2002, with disjoint halves).

Refined trials cost about a second, and with 128 features or more they are left out. A cheap trial of one pass comes
first. It leaves out families that predict much worse, and those with too few rows a component, unless the default has
even fewer. A family with heavy tails (`has_latent_variables`) needs more of them: with few rows, the predictive density
of any family has heavy tails.

Whole numbers have probabilities under families of counts, and densities under families of real numbers. The latter
learn and predict rows with uniform noise of width one added. The mean log density of these is at most the log
probability of the whole numbers under the same mixture, rounded (Theis, van den Oord and Bethge 2016, section 3.1).

Densities of proportions and of directions are of another measure than those of real numbers. There the domain's family
stays unless the family of real numbers needs fewer components, agrees better by more than `SLACK`, and agrees by more
than `LEAST_AGREEMENT`. A family that covers two groups by one component needs fewer, too, and agrees nearly as well as
one that tells them apart. Where the domain's family finds one component alone, another that finds groups takes its
place if these agree nearly always (`GROUPS`).
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from shoal.families import FAMILIES
from shoal.families.auto import EMBEDDING, Candidates, candidates_for
from shoal.families.capabilities import has_latent_variables
from shoal.mixture import StreamSettings
from shoal.points.arrays import Array
from shoal.sequential.family_trial import FamilyTrial, trial
from shoal.sequential.prior import FEWEST_ROWS
from shoal.sequential.prior.jitter import noise

MOST_ROWS = 1_000
"""The comparison uses at most so many rows, evenly spaced over the warm-up."""

CLEAR = 3.0
"""Standard errors of a clear difference."""

SLACK = 0.05
"""Adjusted Rand index by which two halves agree more or less by chance, about, with some hundreds of rows."""

GROUPS = 0.9
"""Adjusted Rand index from which components are groups, where the domain's family finds only one. One Dirichlet is
skewed if a share is often near zero, and two Gaussians cover it. They had more than .5 for 5 of 30 random Dirichlets,
more than .9 for none."""

LEAST_AGREEMENT = 0.5
"""Adjusted Rand index below which components are no groups, even where those of the domain's family agree still less.
Of 400 rows of one Dirichlet, its own components had .06 and those of Gaussians .28."""

MOST_COMPONENTS = 1.25
"""Most components of another family, relative to the default's, if they agree at least as well."""

FEWEST_ROWS_OF_ONE = 15
"""Rows a component, on average, below which one pass shows that a family splinters. It stays in the comparison if the
default splinters more: in 1,000 long texts a Poisson component had one text, and a negative binomial one had eight."""

ROWS_A_FEATURE = 2
"""Rows a component and feature from which heavy tails can be told from few rows."""


_FRACTION = np.array([0.5])


class FamilyChoice(NamedTuple):
    """A family, and why it was chosen, in words."""

    family: str
    reason: str


def choose_family(rows: Array, settings: StreamSettings) -> FamilyChoice:
    """The family of raw rows (N, D), N >= 1: a function of the arguments alone."""
    found = candidates_for(rows)
    if not found.others:
        return FamilyChoice(found.default, found.what)
    if len(rows) < 2 * FEWEST_ROWS:
        return FamilyChoice(found.default, f"{found.what}; they are too few to compare families")
    return _compared(rows[:: -(-len(rows) // MOST_ROWS)], settings, found)


def _compared(rows: Array, settings: StreamSettings, found: Candidates) -> FamilyChoice:
    """The choice by trials of the candidates."""
    names = (found.default, *found.others)
    own = {name: settings.with_family(name, None) for name in names}
    noisy = _with_noise(rows) if found.whole_numbers else rows
    taken = {name: noisy if own[name].domain.allowed(_FRACTION).all() else rows for name in names}
    passed = {name: trial(taken[name], own[name], refined=False) for name in names}
    default = passed[found.default]
    worth = [name for name in found.others if not found.comparable or _promising(name, passed[name], default, rows)]
    shown = {name: _words(passed[name], found.comparable) for name in names if name not in worth}
    chosen = found.default
    if worth:
        few = rows.shape[1] < EMBEDDING
        refined = {
            n: trial(taken[n], own[n], refined=True) if few and own[n].conjugate else passed[n]
            for n in (found.default, *worth)
        }
        default = refined[found.default]
        better = {name: refined[name] for name in worth if _better(refined[name], default, found.comparable)}
        chosen = _best(better) if better else found.default
        shown |= {name: _words(each, found.comparable) for name, each in refined.items()}
    facts = ", ".join(f"{name} {shown[name]}" for name in names)
    return FamilyChoice(chosen, f"{found.what}; by halves of them: {facts}")


def _promising(name: str, own: FamilyTrial, default: FamilyTrial, rows: Array) -> bool:
    """Whether one pass over rows (N, D) leaves a family in the comparison."""
    n, k = len(rows), own.total_components
    if own.z_score(default) <= -CLEAR:
        return False
    if has_latent_variables(FAMILIES[name]) and n < ROWS_A_FEATURE * rows.shape[1] * k:
        return False
    return n >= FEWEST_ROWS_OF_ONE * k or k < default.total_components


def _better(own: FamilyTrial, default: FamilyTrial, comparable: bool) -> bool:
    """Whether a family takes the place of the default, by refined trials."""
    if default.finds_groups and not own.finds_groups:
        return False
    if not comparable:
        fewer = own.total_components < default.total_components or not default.finds_groups
        least = max(default.agreement + SLACK, LEAST_AGREEMENT) if default.finds_groups else GROUPS
        return fewer and own.finds_groups and own.agreement > least
    more = own.total_components > default.total_components
    return (
        own.z_score(default) > CLEAR
        and own.total_components <= MOST_COMPONENTS * default.total_components
        and own.agreement >= default.agreement - (0.0 if more else SLACK)
    )


def _best(better: dict[str, FamilyTrial]) -> str:
    """Of families in order, those that predict not clearly worse than the best; of these, the first whose components
    come back as well as any."""
    best = max(better.values(), key=lambda each: float(each.log_density.mean()))
    close = {name: each for name, each in better.items() if best.z_score(each) <= CLEAR}
    most = max(each.agreement for each in close.values())
    return next(name for name, each in close.items() if each.agreement >= most - SLACK)


def _words(own: FamilyTrial, comparable: bool) -> str:
    """What a trial found."""
    first, second = own.n_components
    score = f"{float(own.log_density.mean()):.3f} nats a held-out row, " if comparable else ""
    return f"{score}{first} and {second} components, agreement {own.agreement:.2f}"


def _with_noise(rows: Array) -> Array:
    """Rows with noise that looks uniform on (-1/2, 1/2): a function of place and column alone."""
    return rows + ndtr(noise(0, len(rows), np.arange(rows.shape[1]))) - 0.5
