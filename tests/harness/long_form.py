"""Cases that only `make test-slow` runs: further families, settings and seeds of what a short form says already."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def longer(*values: Any, id: str | None = None) -> Any:  # noqa: A002 - the name that pytest.param has for it
    """These values of one case as a parameter that only `make test-slow` runs."""
    return pytest.param(*values, id=id, marks=pytest.mark.slow)


def short_form(values: Iterable[Any], short: Container[Any]) -> list[Any]:
    """All values as parameters: those of `short` for `make test`, the others for `make test-slow`.

    A tuple is a case of several names, one value for each.
    """
    return [value if value in short else longer(*(value if isinstance(value, tuple) else [value])) for value in values]
