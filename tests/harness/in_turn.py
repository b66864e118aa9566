"""Cases that one test goes through in turn, where each by itself would start a service of its own."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., Any]


def in_turn(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but all cases share the fixtures of one test. For requests that change nothing, or
    what no other case looks at. A failure names its case.
    """
    named = (names,) if isinstance(names, str) else names

    def wrap(test: Test) -> Test:
        @functools.wraps(test)
        async def run(**fixtures: Any) -> None:
            for case in cases:
                values = (case,) if isinstance(names, str) else case
                try:
                    await test(**fixtures, **dict(zip(named, values, strict=True)))
                except BaseException as error:
                    error.add_note(f"the case is {case!r}")
                    raise

        given = inspect.signature(test)
        fixtures = [value for name, value in given.parameters.items() if name not in named]
        run.__signature__ = given.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return wrap
