"""Groups of options that several commands share.

A command declares a parameter whose type is a NamedTuple of options. `grouped` shows typer the options in its place,
and gives the command the tuple.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Replace every group among the parameters of a command by its options."""
    groups: dict[str, Any] = {}
    shown: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        if isinstance(hints[name], type) and hasattr(hints[name], "_fields"):
            groups[name] = hints[name]
            shown += _options_of(hints[name])
        else:
            shown.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{option: given.pop(option) for option in group._fields}) for name, group in groups.items()
        }
        command(**given, **made)

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # read by typer
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    del run.__wrapped__  # its annotations name the groups
    return run


def _options_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    defaults = group._field_defaults
    return [
        inspect.Parameter(
            option,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(option, inspect.Parameter.empty),
            annotation=hints[option],
        )
        for option in group._fields
    ]
