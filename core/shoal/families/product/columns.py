"""Columns of each family of a product: written by users as a mapping, kept as one canonical text.

A key names columns, counted from 0: `"2"`, `"0-3"` (both ends included), `"0-3,7"`, or a whole number. A value is the
name of a family. All columns of one family form one block, whose family sees them together. The canonical text is a
JSON object with one entry a block, in the order of first columns: `{"0-3,7":"gaussian","4-6":"poisson"}`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from shoal.errors import SettingError

_RANGE = re.compile(r"(\d{1,8})(?:-(\d{1,8}))?")
_COLUMNS = re.compile(r"[\d\s,-]*")
_MOST_COLUMNS = 1 << 16


class Columns(NamedTuple):
    """The columns of one block."""

    family: str
    columns: tuple[int, ...]
    """Ascending."""


def canonical_text(given: Mapping[Any, Any], names: Sequence[str] | None = None) -> str:
    """The canonical text of a mapping from columns to names of families; `names` are those of the features, if known.

    Raises SettingError for a key that names no columns, a value that is no name, and a column that is given twice or
    missing between others.
    """
    owner: dict[int, str] = {}
    for key, family in given.items():
        if not isinstance(family, str):
            raise SettingError(f"family of column {str(key)[:80]!r} is {family!r}; give the name of a family")
        for column in _columns_of(key, names):
            if column in owner:
                raise SettingError(f"column {column} has two families, {owner[column]!r} and {family!r}; give it one")
            owner[column] = family
    if not owner:
        raise SettingError("family is an empty object; name the family of every column, as in {'0-2': 'gaussian'}")
    missing = next((column for column in range(max(owner)) if column not in owner), None)
    if missing is not None:
        raise SettingError(f"column {missing} has no family; name one for every column")
    blocks = dict[str, list[int]]()
    for column in sorted(owner):
        blocks.setdefault(owner[column], []).append(column)
    return json.dumps({_key_of(columns): family for family, columns in blocks.items()}, separators=(",", ":"))


def names_given(family: Any) -> list[str] | None:
    """The keys of a mapping, or of its JSON, in order, where each can only be the name of a feature; None otherwise."""
    given = mapping_of(family) if is_text_of_product(family) else family
    if not isinstance(given, Mapping) or not given:
        return None
    names = [key for key in given if isinstance(key, str) and not _COLUMNS.fullmatch(key)]
    return names if len(names) == len(given) else None


@lru_cache(maxsize=256)
def blocks_of(text: str) -> tuple[Columns, ...]:
    """The blocks of a canonical text, in order. Raises SettingError where it is not one. Asked for at every batch."""
    given = mapping_of(text)
    if canonical_text(given) != text:
        raise SettingError(f"family {text[:80]!r} is not in its canonical form; give an object of columns and families")
    return tuple(Columns(family, tuple(_columns_of(key, None))) for key, family in given.items())


def mapping_of(text: str) -> dict[str, Any]:
    """The mapping that a text is the JSON of. Raises SettingError."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingError(f"family {text[:80]!r} is not a JSON object: {error}; give columns and families") from error
    if not isinstance(given, dict):
        raise SettingError(f"family {text[:80]!r} is not a JSON object; give columns and families")
    return given


def is_text_of_product(family: Any) -> bool:
    """Whether a value is meant as the text of a product."""
    return isinstance(family, str) and family.startswith("{")


def _columns_of(key: Any, names: Sequence[str] | None) -> list[int]:
    """Columns that a key names. A name of a feature goes before a number."""
    if names is not None and isinstance(key, str) and key in names:
        return [list(names).index(key)]
    if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < _MOST_COLUMNS:
        return [key]
    columns = list[int]()
    for part in str(key).split(",") if isinstance(key, str) else ():
        found = _RANGE.fullmatch(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < _MOST_COLUMNS:
            columns = []
            break
        columns += range(first, last + 1)
    if not columns:
        known = "; names need feature_names" if names is None else f"; the features are {', '.join(map(repr, names))}"
        raise SettingError(f"{str(key)[:80]!r} names no columns; give numbers from 0, such as '2' or '0-3,7'{known}")
    return columns


def _key_of(columns: list[int]) -> str:
    runs = list[list[int]]()
    for column in columns:
        if runs and runs[-1][1] == column - 1:
            runs[-1][1] = column
        else:
            runs.append([column, column])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
