"""Short and long forms of a test: of all its cases, `make test` runs the short form, and `make test-slow` the others.

The others are further families, settings and seeds of what the short form says already. Where cases are products of
several lists, the marker `short_form` names those of the short form; elsewhere the list of values does.
"""

from collections.abc import Container, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import pytest


def mark_longer_cases(cases: Sequence[pytest.Item]) -> None:
    """Mark as slow all cases of one function that its marker `short_form` does not name.

    The marker names cases by patterns of their ids, where * stands for any text: "gaussian-*" is all of "gaussian-2"
    and "gaussian-5". Raise `pytest.UsageError` where a pattern names no case, or only slow ones.
    """
    marker = cases[0].get_closest_marker("short_form") if cases else None
    if marker is None:
        return
    quick = {_id(case): case for case in cases if case.get_closest_marker("slow") is None}
    short = {pattern: [name for name in quick if fnmatchcase(name, pattern)] for pattern in marker.args}
    for pattern, names in short.items():
        if not names:
            raise pytest.UsageError(f"{cases[0].nodeid}: short_form names {pattern!r}; the cases are {list(quick)}")
    for name in quick.keys() - {name for names in short.values() for name in names}:
        quick[name].add_marker("slow")


def longer(*values: Any, id: str | None = None) -> Any:  # noqa: A002 - the name that pytest.param has for it
    """These values of one case as a parameter that only `make test-slow` runs."""
    return pytest.param(*values, id=id, marks=pytest.mark.slow)


def short_form(values: Iterable[Any], short: Container[Any]) -> list[Any]:
    """All values as parameters: those of `short` for `make test`, the others for `make test-slow`.

    A tuple is a case of several names, one value for each.
    """
    return [value if value in short else longer(*(value if isinstance(value, tuple) else [value])) for value in values]


def _id(case: pytest.Item) -> str:
    assert isinstance(case, pytest.Function)
    return case.callspec.id
