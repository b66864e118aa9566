"""Whether a stream's kernels can be called without compiling, and what a stream does meanwhile.

A kernel that this process has called, or that the folder of compiled kernels holds, is called at once, and nothing
depends on time. Otherwise a thread compiles what the stream needs, and `plain_pass` learns in place of the kernels,
where there is little to learn; where there is more, the compiler is waited for, which is sooner.
"""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TypeAlias, cast

from shoal.families import FAMILIES, AnyFamily
from shoal.families.predictive_cache import work_type
from shoal.mixture import MixtureState
from shoal.runtime.compiling import Compilation, needs_compiler
from shoal.sequential.alone import alone_calls
from shoal.sequential.auto_prior import LARGEST_OWN_SEARCH, search_family
from shoal.sequential.calls import Calls, call_all
from shoal.sequential.one_pass import kernel_calls
from shoal.sequential.schedule import next_refit

_Needed: TypeAlias = dict[Hashable, Callable[[], Calls]]
"""Calls of the kernels that a stream needs, by what is compiled together."""

MOST_WORK = 20_000.0
"""Work that NumPy does for a compilation, in units of `_work_of_a_point`: about two seconds."""

_AT_LEAST = 8
"""Components that a point is taken to be scored under where there are fewer: the first points bear most."""

_at_hand: set[Hashable] = set()
_compiling: dict[Hashable, "_Task"] = {}
"""By the names of `_needed`. Two threads that ask at once may both begin to compile: the second finds it done."""


class _Task:
    """A compilation, and how much NumPy has done meanwhile."""

    def __init__(self, needed: _Needed) -> None:
        self.done = 0.0
        self.compilation = Compilation(lambda: _warm(needed))


def _warm(needed: _Needed) -> None:
    for calls in needed.values():
        call_all(calls())


def kernels_at_hand(state: MixtureState) -> bool:
    """Whether all kernels that one pass of this stream calls are there, or in the folder of compiled ones.

    Where they are not, they are being compiled from now on. Once True it stays so. Raises what the compiler raised.
    """
    needed = _needed(state)
    going = _going(needed)
    uncompiled: _Needed = {}
    for name, calls in needed.items():
        if name in _at_hand or name in _compiling:
            continue
        if any(needs_compiler(*call) for call in calls()):
            uncompiled[name] = calls
        else:
            _at_hand.add(name)
    return not (_begun(uncompiled) if uncompiled else going)


def learns_plainly(state: MixtureState, n_rows: int) -> bool:
    """Whether the next `n_rows` of a stream are to be learnt by NumPy: its kernels are being compiled, and there is
    little to do. Where there is more, or the rows bring the last, thorough fit of the warm-up, it waits for the
    compiler. Raises what the compiler raised.
    """
    if kernels_at_hand(state):
        return False
    tasks, work = _going(_needed(state)), _work(state, n_rows)
    if not tasks:  # it ended between the two questions
        return False
    if any(task.done + work > MOST_WORK for task in tasks):
        wait_for_kernels(state)
        return False
    for task in tasks:
        task.done += work
    return True


def wait_for_kernels(state: MixtureState) -> None:
    """Come back when `kernels_at_hand`. Raises what the compiler raised."""
    while not kernels_at_hand(state):
        for task in _going(_needed(state)):
            _ended(task)


def _begun(needed: _Needed) -> bool:
    """Whether a thread has begun to compile it; where none can be started, whoever calls them compiles."""
    try:
        task = _Task(needed)
    except RuntimeError:
        return False
    _compiling.update(dict.fromkeys(needed, task))
    return True


def _going(names: Iterable[Hashable]) -> list[_Task]:
    """Of the compilations of these names those that go on; what has ended is put away. Raises what one raised."""
    tasks = dict.fromkeys(task for task in map(_compiling.get, names) if task is not None)
    for task in tasks:
        if not task.compilation.running:
            _ended(task)
    return [task for task in tasks if task.compilation.running]


def _ended(task: _Task) -> None:
    """Put a compilation away when it has ended. Raises what it raised: who asks next begins anew."""
    names = [name for name, own in list(_compiling.items()) if own is task]
    try:
        task.compilation.wait()
    finally:
        if not task.compilation.running:  # else the wait was interrupted
            for name in names:
                _compiling.pop(name, None)
    _at_hand.update(names)


def _needed(state: MixtureState) -> _Needed:
    """Kernels of the family that the stream runs and, while its prior is searched for, those of the search."""
    settings = state.settings
    own = state.prior or FAMILIES[settings.family].weak(settings.n_features)
    needed: _Needed = {_form(own): partial(kernel_calls, own)}
    if not state.frozen and settings.domain.located:
        needed["alone"] = alone_calls
        if settings.n_features > LARGEST_OWN_SEARCH:
            stand_in = FAMILIES[search_family(settings.family)].weak(1)
            needed[_form(stand_in)] = partial(kernel_calls, stand_in)
    return needed


def _form(family: AnyFamily) -> Hashable:
    """The predictive cache by which kernels are resolved."""
    return cast(Hashable, work_type(family))


def _work(state: MixtureState, n_rows: int) -> float:
    """Work of learning the next rows by NumPy, with the fits of the warm-up that fall among them; infinite if the last
    of those does."""
    if state.frozen:
        return n_rows * _work_of_a_point(state) + _work_of_a_call(state)
    last = state.settings.warmup_points
    offset, total = state.next_refit, float(n_rows)
    while offset <= state.points_seen + n_rows:
        if offset == last:
            return float("inf")
        total += offset
        offset = next_refit(offset, last)
    return total * _work_of_a_point(state) + _work_of_a_call(state)


def _work_of_a_point(state: MixtureState) -> float:
    """In tenths of a millisecond, roughly: what each takes, and what goes by the numbers that components consist of."""
    floor = 6.0 if state.settings.domain.sparse else 2.0
    return floor + (_AT_LEAST + state.n_components) * _numbers(state) / 2**17


def _work_of_a_call(state: MixtureState) -> float:
    """Likewise: what every component is scored by, and its working form, are worked out once a call."""
    return state.n_components * (0.5 + _numbers(state) / 2**12)


def _numbers(state: MixtureState) -> int:
    """Numbers that a component's statistics consist of."""
    own = state.prior or FAMILIES[state.settings.family].weak(state.settings.n_features)
    return sum(field[0].size for field in own.empty_stats(1))
