"""Split-merge sampling: proposals to split a component or merge two, between sweeps of collapsed Gibbs sampling.

Jain and Neal (2004), "A split-merge Markov chain Monte Carlo procedure for the Dirichlet process mixture model", with
restricted Gibbs scans; or Dahl (2005), "Sequentially-allocated merge-split sampler for conjugate and nonconjugate
Dirichlet process mixture models". Two points are drawn. If they share a component, its points are divided between them;
otherwise their two components are merged. The Metropolis-Hastings ratio decides:

    split / merged = alpha G(n_i) G(n_j) / G(n_i + n_j) * m(S_i) m(S_j) / m(S_i + S_j)

over the probability of that division, which `split_merge_kernel` computes (a merge is certain given the two points).
"""

from typing import Any, Literal, NamedTuple, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from shoal.errors import SettingError
from shoal.families import AnyFamily, log_marginal, take
from shoal.families.predictive_cache import empty_cache, has_sampling_kernels, kernel_points, kernel_prior, refresh
from shoal.mixture import BatchFit, ProgressCallback
from shoal.points.arrays import Array, IntArray
from shoal.sampling.chain import Chain, grow_inplace
from shoal.sampling.gibbs import CollapsedSampler, first_state
from shoal.sampling.plain import divide_plainly
from shoal.sampling.runs import Schedule, ScheduleOptions, as_fit, run_chains
from shoal.sampling.split_merge_kernel import divide_pair

Allocation: TypeAlias = Literal["restricted", "sequential"]


class Proposals(NamedTuple):
    """Settings of the proposals: Jain and Neal's (5, 1, 1) by default."""

    allocation: Allocation = "restricted"
    scans: int = 5
    """Restricted scans before the last one, >= 0; `sequential` has none."""
    a_sweep: int = 1
    """Proposals before each sweep of Gibbs sampling, >= 1."""


class Proposal(NamedTuple):
    """The result of one proposal; for observing only."""

    split: bool
    accepted: bool
    log_ratio: float
    """Log of the Metropolis-Hastings ratio."""


class _Division(NamedTuple):
    """Points of one or two components, divided between two anchors."""

    rows: IntArray  # (M,) points, the anchors first
    labels: IntArray  # (M,) 0 or 1
    stats: Any  # 2 rows
    cache: Any
    log_probability: float


def fit_split_merge(
    family: AnyFamily,
    x: Array,
    *,
    concentration: float = 1.0,
    allocation: Allocation = "restricted",
    restricted_scans: int = 5,
    proposals: int = 1,
    resp_init: Array | None = None,
    rng: np.random.Generator,
    progress: ProgressCallback = None,
    **schedule: Unpack[ScheduleOptions],
) -> BatchFit:
    """Sample partitions of points x (N, D) from the posterior of the Dirichlet process mixture.

    A sweep is so many `proposals` of splits or merges, then one draw of each label. `allocation`: "restricted", with
    `restricted_scans` of Gibbs sampling between the two before the last scan, or "sequential". The rest is as in
    `gibbs.fit_gibbs`. In addition to the result of `runs.as_fit`, `extra["proposals"]` (2, 2) int64 has splits, then
    merges, each proposed and accepted. Cost of a proposal: restricted_scans + 2 times the points of the components in
    question, with two scores each. Raises SettingError for another `allocation`.
    """
    if allocation not in ("restricted", "sequential"):
        raise SettingError(f'allocation is {allocation!r}; choose "restricted" or "sequential"')
    plan, how = Schedule(**schedule), Proposals(allocation, restricted_scans, proposals)
    counts = np.zeros((2, 2), dtype=np.int64)

    def start() -> SplitMergeSampler:
        chain = first_state(family, concentration, x, resp_init, rng)
        return SplitMergeSampler(family, concentration, x, chain, rng, how, counts)

    fit = as_fit(family, x, plan, run_chains(start, len(x), plan, progress))
    extra: dict[str, npt.NDArray[Any]] = {**fit.extra, "proposals": counts}
    return fit._replace(extra=extra)


class SplitMergeSampler(CollapsedSampler):
    """A chain over partitions; a sweep proposes splits or merges, then draws each label once."""

    def __init__(
        self,
        family: AnyFamily,
        concentration: float,
        x: Array,
        chain: Chain,
        rng: np.random.Generator,
        how: Proposals,
        counts: IntArray,
    ) -> None:
        super().__init__(family, concentration, x, chain, rng)
        self.how, self.counts = how, counts

    def sweep(self) -> None:
        """Make proposals, then a sweep of Gibbs sampling."""
        for _ in range(self.how.a_sweep if len(self.x) > 1 else 0):
            made = propose_inplace(self.family, self.concentration, self.chain, self.x, self.rng, self.how)
            self.counts[0 if made.split else 1] += [1, made.accepted]
        super().sweep()


def propose_inplace(
    family: AnyFamily, concentration: float, chain: Chain, x: Array, rng: np.random.Generator, how: Proposals
) -> Proposal:
    """Propose one split or merge of `chain`, and accept or reject it; statistics up to date, N >= 2."""
    i, j = (int(v) for v in rng.choice(len(x), size=2, replace=False))
    own, other = int(chain.labels[i]), int(chain.labels[j])
    split = own == other
    division = _divide(family, chain, x, i, j, rng, how)
    parts = take(division.stats, slice(0, 2)) if split else take(chain.stats, [own, other])
    whole = take(chain.stats, [own]) if split else family.add(take(parts, [0]), take(parts, [1]))
    gain = _log_split_over_merged(family, concentration, parts, whole)
    log_ratio = gain - division.log_probability if split else division.log_probability - gain
    accepted = bool(np.log1p(-rng.random()) < log_ratio)  # 1 - u is in (0, 1]
    if accepted and split:
        _split_inplace(chain, own, division)
    elif accepted:
        _merge_inplace(family, chain, own, other, whole)
    return Proposal(split, accepted, log_ratio)


def _divide(
    family: AnyFamily, chain: Chain, x: Array, i: int, j: int, rng: np.random.Generator, how: Proposals
) -> _Division:
    """The points of i's and j's components divided between i and j: drawn if they share one, else as they are."""
    labels = chain.labels
    member = (labels == labels[i]) | (labels == labels[j])
    member[[i, j]] = False
    others = np.flatnonzero(member)
    sequential = how.allocation == "sequential"
    if sequential:
        others = rng.permutation(others)
    rows = np.concatenate([[i, j], others])
    target = np.empty(0, dtype=np.int64)
    if labels[i] != labels[j]:
        target = (labels[rows] == labels[j]).astype(np.int64)
    stats, cache, sides = family.empty_stats(3), empty_cache(family, 3), np.empty(rows.size, dtype=np.int64)
    uniforms = rng.random(rows.size * (1 if sequential else how.scans + 2))
    given = (uniforms, target, how.scans, sequential)
    if has_sampling_kernels(family):
        prior = kernel_prior(family)
        room = (prior.empty, prior.constants, stats, cache, sides)
        log_q = divide_pair(kernel_points(family, x[rows]), *given, *room)
    else:
        log_q = divide_plainly(family, x[rows], *given, stats, sides)
    return _Division(rows, sides, stats, cache, float(log_q))


def _log_split_over_merged(family: AnyFamily, concentration: float, parts: Any, whole: Any) -> float:
    """log p(x, partition) with two parts (2 rows) minus that with one whole (1 row), nats."""
    sizes = parts[0]
    prior = float(np.log(concentration) + gammaln(sizes).sum() - gammaln(sizes.sum()))
    return prior + float(log_marginal(family, parts).sum() - log_marginal(family, whole)[0])


def _split_inplace(chain: Chain, own: int, division: _Division) -> None:
    """Make side 0 a new component, the last; side 1 keeps the row."""
    new = chain.n_components
    chain.n_components += 1
    grow_inplace(chain)
    for target, source in zip((*chain.stats, *chain.cache), (*division.stats, *division.cache), strict=True):
        target[new], target[own] = source[0], source[1]
    chain.labels[division.rows[division.labels == 0]] = new


def _merge_inplace(family: AnyFamily, chain: Chain, own: int, other: int, whole: Any) -> None:
    """Merge both in row `own`; the last component moves to the free row."""
    chain.labels[chain.labels == other] = own
    for target, source in zip((*chain.stats, *chain.cache), (*whole, *refresh(family, whole)), strict=True):
        target[own] = source[0]
    last = chain.n_components - 1
    chain.n_components = last
    if other != last:
        for field in (*chain.stats, *chain.cache):
            field[other] = field[last]
        chain.labels[chain.labels == last] = other
