"""The short form of a test: of all its cases, those that `make test` runs."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

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


def _id(case: pytest.Item) -> str:
    assert isinstance(case, pytest.Function)
    return case.callspec.id
