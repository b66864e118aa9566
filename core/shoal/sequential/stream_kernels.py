"""The kernels of a stream: which they are, whether they are compiled, and compiling them.

A kernel is compiled once for each family's predictive cache and kept on disk. A process that learns for its caller
(`compile_kernels`) compiles before the first point. A process that also serves (`kernels_ready`) has a child compile,
and learns once those are there that learning needs.
"""

from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from shoal.families import FAMILIES, AnyFamily, is_conjugate
from shoal.families.auto import usual_candidates
from shoal.families.capabilities import blocks_of, has_scatter, is_refitted
from shoal.families.predictive_cache import cache_type, empty_cache, example_priors, has_kernels, renewal
from shoal.mixture import MixtureState, StreamSettings, ceiling_call, predict_call
from shoal.runtime.cache import cache_is_writable
from shoal.runtime.compiling import CompilingChild, announce, needs_compiler, yield_to_others
from shoal.sequential.forgetting import decay_call
from shoal.sequential.kernel import sva_pass
from shoal.sequential.one_pass import OnePass, standardise_arguments, standardise_into
from shoal.sequential.passes import PassRules, Piece, new_components
from shoal.sequential.prior.choose import LARGEST_OWN_SEARCH, search_family, univariate_arguments
from shoal.sequential.prior.univariate_kernel import cluster_columns
from shoal.sequential.warmup_search import warm_search

Calls: TypeAlias = list[tuple[Any, tuple[Any, ...]]]
"""Kernels, and arguments of the types that streams call them with, on next to nothing."""

_ready: set[frozenset[type[Any]]] = set()
_children: dict[frozenset[type[Any]], CompilingChild] = {}
"""By the predictive caches of a stream's families."""


def call_all(calls: Calls) -> None:
    """Compile the kernels, or load them from the cache on disk."""
    for kernel, arguments in calls:
        kernel(*arguments)


def one_pass_calls(family: AnyFamily) -> Calls:
    """The kernels that learn a point, and the one that the search for a prior runs over single features."""
    standard = standardise_arguments(np.zeros((1, 1)), np.zeros(1), np.ones(1), np.empty((1, 1)))
    calls: Calls = [(standardise_into, standard)]
    if family.domain.located:
        columns = univariate_arguments(np.zeros((1, 1)), StreamSettings(n_features=1), np.zeros((1, 1), dtype=np.int64))
        calls.append((cluster_columns, columns))
    if not has_kernels(family):
        return calls
    rules, x = PassRules(1.0, 0.5, 1e-3, "none", 2), np.zeros((1, family.n_features))
    piece = Piece(x, np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1))
    arguments = OnePass(family, rules, 1).kernel_arguments(new_components(family, 2), 0, 0, piece)
    return [*calls, (sva_pass, arguments)]


def later_calls(family: AnyFamily) -> Calls:
    """The kernels that predict, and those of checks, renewals and decays, in the order of their first use."""
    if not has_kernels(family):
        return []
    stats, cache = family.empty_stats(1), empty_cache(family, 1)
    screen = ceiling_call(family, family.empty_stats(2), np.zeros((2, 2)), np.ones(2, dtype=np.bool_), 1.0, 0.0)
    decay = decay_call(stats) if has_scatter(family) else None
    calls = (predict_call(family), renewal(family, stats, cache, 1), screen, decay)
    return [call for call in calls if call is not None]


def warm_kernels() -> None:
    """Compile, or load from the cache on disk, the kernels of the streams of every family."""
    for kind in FAMILIES.values():
        for family in example_priors(kind):
            warm_family(family)


def warm_family(family: AnyFamily) -> None:
    """Compile, or load from the cache on disk, the kernels that streams of this family call."""
    _warm_search(family)
    call_all(one_pass_calls(family) + later_calls(family))


def _warm_search(family: AnyFamily) -> None:
    """Compile the kernels of the search that follows fits of a warm-up, where the family has one."""
    if is_conjugate(type(family)) and not is_refitted(family):
        warm_search(family)


def compile_kernels(state: MixtureState) -> None:
    """Compile the kernels that this stream needs, unless they are; says on stderr, once a process, if they are not."""
    key = _key(state)
    if key in _ready:
        return
    calls = _calls(_families(state))
    if any(needs_compiler(*call) for call in calls):
        announce(f"the kernels of family {state.settings.family!r} (some twenty seconds)")
    call_all(calls)
    _ready.add(key)


def kernels_ready(state: MixtureState) -> bool:
    """Whether the kernels that learn this stream are compiled, by this or another process. Does not wait: where they
    are not, a child process is compiling them from now on, and then those of the families that an automatic one is
    chosen from, which are needed at the end of the warm-up only.

    True where there can be no such process, or it has failed: then the first call of a kernel compiles it.
    """
    families, key = _families(state), _key(state)
    if key in _ready:
        return True
    child = next((child for others, child in _children.items() if key <= others), None)
    if child is None and any(needs_compiler(*call) for call in _calls(families)):
        child = _child_for(families, _further(state))
    if child is not None:
        _children[key] = child
        if child.running and any(needs_compiler(*call) for call in _learning_calls(families)):
            return False
    _ready.add(key)
    return True


def _key(state: MixtureState) -> frozenset[type[Any]]:
    if state.frozen and state.prior is not None and state.watch is None:  # at almost every call, of one row too
        return frozenset((cache_type(state.prior),))
    return frozenset(map(cache_type, _families(state)))


def _families(state: MixtureState) -> list[AnyFamily]:
    """The family of the stream, and those that a search for its prior runs, while it is not chosen or is watched."""
    settings = state.settings
    own = state.prior or FAMILIES[settings.family].weak(settings.n_features)
    families = [own, *_searched_blocks(state)]
    searched = not state.frozen or state.watch is not None
    if searched and settings.domain.located and settings.n_features > LARGEST_OWN_SEARCH:
        families.append(FAMILIES[search_family(settings.family)].weak(1))
    return list({cache_type(family): family for family in families}.values())


def _searched_blocks(state: MixtureState) -> list[AnyFamily]:
    """The families that the search for the prior of a product runs, one for each block, while it is not chosen."""
    if state.frozen:
        return []
    found: list[AnyFamily] = []
    for block in blocks_of(FAMILIES[state.settings.family]):
        own = block.kind.weak(len(block.columns))
        found.append(own)
        if own.domain.located and len(block.columns) > LARGEST_OWN_SEARCH:
            found.append(FAMILIES[search_family(block.kind.name)].weak(1))
    return found


def _calls(families: list[AnyFamily]) -> Calls:
    """First what learns, then the rest of the first family's."""
    return _learning_calls(families) + later_calls(families[0])


def _learning_calls(families: list[AnyFamily]) -> Calls:
    """The kernels of the one pass, for every family, and the first one's that predicts: it compares fits of the
    warm-up."""
    predict = predict_call(families[0])
    calls = [call for family in families for call in one_pass_calls(family)]
    return calls if predict is None else [*calls, predict]


def _further(state: MixtureState) -> list[str]:
    """Names of the families that an automatic one may be chosen from, while it is not."""
    return list(usual_candidates(state.settings.n_features)) if state.settings.undecided else []


def _child_for(families: list[AnyFamily], further: list[str]) -> CompilingChild | None:
    """A child that compiles for these families, then for others by name; None where it would serve nobody, or cannot be
    started."""
    if not cache_is_writable():
        return None
    names = [(family.name, cache_type(family).__name__) for family in families]
    with suppress(OSError):
        return CompilingChild(
            f"from shoal.sequential.stream_kernels import compile_for; compile_for({names!r}, {further!r})"
        )
    return None


def compile_for(names: list[tuple[str, str]], further: list[str]) -> None:
    """Compile for families given by name and predictive cache, then for others by name, behind other work of the
    machine. Raises KeyError or StopIteration for a family of the caller's own, which this process does not know."""
    yield_to_others()
    families = []
    for name, form in names:
        examples = example_priors(FAMILIES[name])
        families.append(next(prior for prior in examples if cache_type(prior).__name__ == form))
    _warm_search(families[0])  # first, so that it is done when `kernels_ready` finds the others
    call_all(_calls(families))
    for name in further:
        warm_family(example_priors(FAMILIES[name])[0])
