"""Checks of single settings of a stream: each returns the value in its canonical form, or raises SettingError.

An error names the setting, the value that was given and the range.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shoal.errors import SettingError, ShoalError, counted, did_you_mean
from shoal.families import FAMILIES, AnyFamily, family_exists
from shoal.points.levels import MAX_LEVEL_NAME, MOST_NAMED_LEVELS

MAX_FEATURE_NAME = 200
"""Most characters of the name of a feature."""


def checked_integer(name: str, value: Any, low: int, high: int) -> int:
    """An integer from `low` to `high`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise SettingError(f"{name} is {value!r}; give an integer from {low:,} to {high:,}")
    return int(value)


def checked_number(name: str, value: Any, words: str, allowed: Callable[[float], bool]) -> float:
    """A finite number that `allowed` accepts. `words` say which: "in (0, 1)"."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    try:
        found = float(value) if real else math.nan
    except OverflowError:  # an integer beyond float64
        found = math.inf
    if not math.isfinite(found) or not allowed(found):
        raise SettingError(f"{name} is {value!r}; give a number {words}")
    return found


def checked_embedder(name: Any) -> str:
    """Name and version of an embedder."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_FEATURE_NAME:
        raise SettingError(f"embedder is {str(name)[:80]!r}; give a text of 1 to {MAX_FEATURE_NAME} characters")
    return name


def checked_feature_names(names: Any, n_features: int) -> tuple[str, ...]:
    """Names of D features: distinct texts of 1 to `MAX_FEATURE_NAME` characters."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise SettingError(f"feature_names is {names!r}; give a list of {n_features} texts")
    for i, name in enumerate(names):
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_FEATURE_NAME:
            shown = repr(name) if len(repr(name)) <= 80 else f"{repr(name)[:77]}..."
            raise SettingError(f"feature_names[{i}] is {shown}; give a text of 1 to {MAX_FEATURE_NAME} characters")
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise SettingError(f"feature_names holds {twice!r} twice; give distinct names")
    if len(names) != n_features:
        raise SettingError(f"feature_names holds {counted(len(names), 'name')}, n_features is {n_features}")
    return tuple(names)


def column_of(key: Any, names: tuple[str, ...] | None) -> int:
    """The column that a key names: a name of a feature, or a number. -1 for none."""
    if names is not None and key in names:
        return names.index(key)
    if isinstance(key, str) and key.isdecimal() and len(key) <= 8:
        return int(key)
    return key if isinstance(key, int) and not isinstance(key, bool) else -1


def checked_level_names(column: Any, names: Any) -> tuple[str, ...]:
    """Distinct names of the levels of a column: up to `MOST_NAMED_LEVELS`, of 1 to `MAX_LEVEL_NAME` characters."""
    usable = not isinstance(names, str) and isinstance(names, Sequence) and len(names) <= MOST_NAMED_LEVELS
    if not usable or not all(isinstance(name, str) and 1 <= len(name) <= MAX_LEVEL_NAME for name in names):
        raise SettingError(
            f"level_names of column {column!r:.80} is {names!r:.80}; give at most {MOST_NAMED_LEVELS:,} texts of 1 to "
            f"{MAX_LEVEL_NAME} characters"
        )
    if len(set(names)) < len(names):
        raise SettingError(f"level_names of column {column!r:.80} holds a name twice; give distinct names")
    return tuple(names)


_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhd])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def seconds(text: str) -> float | None:
    """Seconds of a text such as "90s", "30m", "1h" or "7d"; None for another text."""
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _UNITS[found[2]]


def checked_duration(name: str, value: Any) -> str:
    """A length of time above zero, as text that `seconds` reads."""
    if not isinstance(value, str) or not seconds(value):
        raise SettingError(f'{name} is {value!r}; give a time such as "90s", "30m", "1h" or "7d"')
    return value.strip()


def checked_half_life(value: Any) -> float | str:
    """A half-life: a number of points, >= 1, or a time of a second or more, as text."""
    if isinstance(value, str):
        found = seconds(value)
        if found is None or found < 1.0:
            raise SettingError(
                f'half_life is {value!r}; give a number of points, or a time of a second or more such as "30m" or "1h"'
            )
        return value.strip()
    return checked_number("half_life", value, "at least 1", lambda v: v >= 1)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless the value is one of the texts `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise SettingError(f"{name} is {value!r}; {did_you_mean(value, choices)}choose one of {', '.join(choices)}")


def prior_from_json(family: Any, hyperparameters: Mapping[str, Any]) -> AnyFamily:
    """The explicit prior of a JSON mapping: its hyperparameters by name."""
    if not family_exists(family):
        check_choice("family", family, tuple(FAMILIES))
    try:
        arrays = {name: np.asarray(value, dtype=np.float64) for name, value in hyperparameters.items()}
        prior: AnyFamily = FAMILIES[family].from_arrays(arrays)
    except ShoalError:
        raise
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise SettingError(
            f"prior does not describe family {family!r}: {error}; give its hyperparameters by name"
        ) from error
    return prior
