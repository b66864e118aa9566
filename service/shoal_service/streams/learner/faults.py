"""Whose fault an exception is: the entry's, which will fail again on every replay, or the machine's, which may pass."""

from types import TracebackType

_OF_THE_MACHINE = (MemoryError, OSError, ImportError)
_COMPILERS = ("numba.core", "llvmlite")
"""Packages that compile: what they raise, or what is raised inside them, says nothing of the entry."""


def of_the_machine(error: BaseException) -> bool:
    """Whether memory, disk, an import or the compiler failed, here or as the stated cause.

    These say nothing of the entry at hand: the same entry may well be taken a moment later, or by another machine.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, _OF_THE_MACHINE) or _of_a_compiler(seen):
            return True
        seen = seen.__cause__
    return False


def _of_a_compiler(error: BaseException) -> bool:
    modules = [kind.__module__ for kind in type(error).__mro__]
    innermost: TracebackType | None = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is not None:
        modules.append(str(innermost.tb_frame.f_globals.get("__name__", "")))
    return any(f"{module}.".startswith(f"{package}.") for module in modules for package in _COMPILERS)
