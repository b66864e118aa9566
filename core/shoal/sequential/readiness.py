"""Whether a stream's kernels can be called without compiling, and what a stream does meanwhile.

A kernel that this process has called, or that the folder of compiled kernels holds, is called at once, and nothing
depends on time. Otherwise a thread compiles what the stream needs, and `plain_pass` learns in place of the kernels,
where there is little to learn; where there is more, the compiler is waited for, which is sooner.
"""

from collections.abc import Hashable, Iterable

from shoal._compiling import Compilation, needs_compiler
from shoal.families import FAMILIES, AnyFamily, NormalInverseGamma
from shoal.mixture import MixtureState
from shoal.sequential.one_pass import kernel_calls, warm_family
from shoal.sequential.schedule import next_refit

MOST_WORK = 20_000.0
"""Work that NumPy does for a compilation, in units of `_work_of_a_point`: about two seconds."""

_AT_LEAST = 8
"""Components that a point is taken to be scored under where there are fewer: the first points bear most."""

_at_hand: set[Hashable] = set()
_compiling: dict[Hashable, "_Task"] = {}
"""By working form. Two threads that ask at once may both begin to compile: the second finds it done."""


class _Task:
    """A compilation for some families, and how much NumPy has done meanwhile."""

    def __init__(self, families: list[AnyFamily]) -> None:
        self.done = 0.0
        self.compilation = Compilation(lambda: _warm(families))


def _warm(families: list[AnyFamily]) -> None:
    for family in families:
        warm_family(family)


def kernels_at_hand(state: MixtureState) -> bool:
    """Whether all kernels that one pass of this stream calls are there, or in the folder of compiled ones.

    Where they are not, they are being compiled from now on. Once True it stays so. Raises what the compiler raised.
    """
    families = {_form(family): family for family in _needed(state)}
    going = _going(families)
    uncompiled = []
    for form, family in families.items():
        if form in _at_hand or form in _compiling:
            continue
        if any(needs_compiler(*call) for call in kernel_calls(family)):
            uncompiled.append(family)
        else:
            _at_hand.add(form)
    return not (_begun(uncompiled) if uncompiled else going)


def learns_plainly(state: MixtureState, n_rows: int) -> bool:
    """Whether the next `n_rows` of a stream are to be learnt by NumPy: its kernels are being compiled, and there is
    little to do. Where there is more, or the rows bring the last, thorough fit of the warm-up, it waits for the
    compiler. Raises what the compiler raised.
    """
    if kernels_at_hand(state):
        return False
    tasks, work = _going(map(_form, _needed(state))), _work(state, n_rows)
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
        for task in _going(map(_form, _needed(state))):
            _ended(task)


def _begun(families: list[AnyFamily]) -> bool:
    """Whether a thread has begun to compile for them; where none can be started, whoever calls them compiles."""
    try:
        task = _Task(families)
    except RuntimeError:
        return False
    _compiling.update({_form(family): task for family in families})
    return True


def _going(forms: Iterable[Hashable]) -> list[_Task]:
    """The compilations of these forms that go on; those that have ended are put away. Raises what one raised."""
    tasks = dict.fromkeys(task for task in map(_compiling.get, forms) if task is not None)
    for task in tasks:
        if not task.compilation.running:
            _ended(task)
    return [task for task in tasks if task.compilation.running]


def _ended(task: _Task) -> None:
    """Put a compilation away when it has ended. Raises what it raised: who asks next begins anew."""
    forms = [form for form, own in list(_compiling.items()) if own is task]
    try:
        task.compilation.wait()
    finally:
        if not task.compilation.running:  # else the wait was interrupted
            for form in forms:
                _compiling.pop(form, None)
    _at_hand.update(forms)


def _needed(state: MixtureState) -> list[AnyFamily]:
    """A prior of each family that the stream runs: its own, and, while its prior is searched for, what stands in."""
    settings = state.settings
    own = state.prior or FAMILIES[settings.family].weak(settings.n_features)
    return [own] if state.frozen or not settings.domain.located else [own, NormalInverseGamma.weak(1)]


def _form(family: AnyFamily) -> Hashable:
    """What families of one working form have in common, told faster than by the form itself."""
    return type(family), getattr(family, "spherical", None)


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
