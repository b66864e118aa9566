"""ndjson files, read line by line: arrays of numbers, objects with a field for each feature, or records.

A feature that is a category may be a text, in all lines or in none.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from shoal_service.cli.readers.bad_rows import BadRowError, BadRows, RowPlace
from shoal_service.cli.readers.table import ACCEPT_MISSING, checked_text, choose_columns
from shoal_service.cli.readers.text import Row
from shoal_service.wire.record_columns import RecordColumns

_RECORD = frozenset(("point", "key", "time", "payload", "weight"))


class NdjsonFile:
    """The rows of ndjson, from numbered lines.

    A line is an array of numbers; or an object, of which `columns` and `records` choose the fields; or a record as the
    service takes it, `{"point": [1.0, 2.0], "key": "a", ...}`, whose point may have names. Without `columns`, the
    features of objects are all fields of the first line but those of `records`. A single feature may be an array of
    numbers.
    """

    def __init__(
        self, lines: Iterable[tuple[int, str]], bad: BadRows, columns: str | None, records: RecordColumns | None
    ) -> None:
        self._lines, self._bad, self._columns = lines, bad, columns
        self._records = records or RecordColumns()
        self._names = None if columns is None else [name.strip() for name in columns.split(",")]
        self._all_fields = False
        self._objects = False
        self._point_names: list[str] | None = None
        self._texts: dict[int, bool] = {}
        """Whether a feature is texts, by the first row that has a value of it."""

    @property
    def names(self) -> list[str] | None:
        """Names of the features, from the first object. None before the first row, and for arrays."""
        return self._names if self._objects else None

    def label(self, feature: int) -> str:
        """Name of a feature in the file."""
        names = self._names or ()
        return f"field {names[feature]!r}" if len(names) > 1 and feature < len(names) else f"column {feature}"

    def rows(self) -> Iterator[Row]:
        """Rows that hold numbers. Others go to the bad rows."""
        return self.rows_of(self._lines)

    def rows_of(self, lines: Iterable[tuple[int, str]]) -> Iterator[Row]:
        """Rows of further lines, with the fields of the first ones."""
        decode = msgspec.json.Decoder(list[float]).decode
        plain = self._columns is None and not self._records
        for line, text in lines:
            try:
                values = decode(text)
                values = values if plain else self._chosen(values)
                if not self._texts or True in self._texts.values():
                    self._check_kinds(values)
                yield line, values, None, text
            except msgspec.DecodeError:
                try:
                    yield self._object(line, text)
                except BadRowError as bad:
                    self._bad.add(RowPlace("line", line), bad, text.strip())
            except BadRowError as bad:
                self._bad.add(RowPlace("line", line), bad, text.strip())

    def _chosen(self, values: list[Any]) -> list[Any]:
        if self._records:
            raise BadRowError("an array has no fields", "write objects, or leave out --key-column and the like")
        picked = choose_columns(self._columns, None, len(values), self._bad.file)
        return values if picked is None else [values[i] for i in picked]

    def _object(self, line: int, text: str) -> Row:
        try:
            value: Any = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise BadRowError(f"is not JSON ({error})", "write one array of numbers per line") from error
        if isinstance(value, list):
            filled = self._filled(value)
            texts = self._categories(self._chosen([*range(len(value))]), None) if _holds_text(value) else frozenset()
            at = next((i for i, one in enumerate(filled) if not (_is_number(one) or _is_text(one, i in texts))), None)
            if value and at is None:
                return line, self._checked(self._chosen(filled)), None, text
            at = at or 0
            what = f"column {at} is {_shown(value[at])}" if value else "it is empty"
            raise BadRowError(f"{what}, so it is not an array of numbers", "write one per line")
        if not isinstance(value, dict):
            raise BadRowError(f"{text.strip()[:60]} is not an array of numbers", "write one per line")
        is_record = not self._records and "point" in value and value.keys() <= _RECORD
        if is_record and (self._names is None or self._point_names is not None):
            return line, self._point(value["point"]), _record_fields(value), text
        if self._names is None:
            self._names = [name for name in value if name not in self._records.named]
            self._all_fields = True
            self._check_first(value)
        unknown = [name for name in value if name not in self._names and name not in self._records.named]
        if self._all_fields and unknown:
            raise BadRowError(f"the field {unknown[0]!r} is not in the first line", "choose the fields with --columns")
        numbers = self._numbers(value, self._names)
        self._objects = len(numbers) == len(self._names)
        return line, numbers, self._fields(value), text

    def _point(self, point: Any) -> list[Any]:
        """The features of a record. Their names are those of the first one."""
        if not isinstance(point, dict):
            return self._numbers({"point": point}, ["point"])
        if self._point_names is None:
            self._names = self._point_names = list(point)
            self._objects = True
        if unknown := [name for name in point if name not in self._point_names]:
            raise BadRowError(f"the feature {unknown[0]!r} is not in the first line", "send the same features")
        return self._numbers(point, self._point_names)

    def _check_first(self, value: dict[str, Any]) -> None:
        """Raise BadRowError if a field that nobody chose is no number: the features must be chosen then."""
        names = self._names or []
        texts = self._categories(range(len(names)), names) if _holds_text(value.values()) else frozenset()
        wrong = [
            name
            for place, name in enumerate(names)
            if not (_is_number(value[name]) or isinstance(value[name], list) or _is_text(value[name], place in texts))
            and not (value[name] is None and self._bad.takes_holes)
        ]
        if wrong:
            others = ",".join(name for name in value if name not in wrong and name not in self._records.named)
            self._names = None
            remedy = f"choose its fields with --columns {others}, or name those that are no features"
            if advice := _REMEDIES.get(type(value[wrong[0]])):
                remedy += f"; {advice}"
            raise BadRowError(f"is an object whose field {wrong[0]!r} is no number", remedy)

    def _numbers(self, value: dict[str, Any], names: list[str]) -> list[Any]:
        """The features of an object, NaN for a null that may be one. Raises BadRowError, with the first field that is
        missing, or neither a number nor the text of a category."""
        if absent := [name for name in names if name not in value]:
            raise BadRowError("is missing", "write null where there is no value", f"field {absent[0]!r}")
        values: list[Any] = [value[name] for name in names]
        listed = len(values) == 1 and isinstance(values[0], list)
        values = self._filled(values[0] if listed else values)
        if listed:
            names = [f"{names[0]}[{i}]" for i in range(len(values))]
        texts = self._categories(range(len(names)), None if listed else names) if _holds_text(values) else frozenset()
        for place, (name, one) in enumerate(zip(names, values, strict=True)):
            if not (_is_number(one) or _is_text(one, place in texts)):
                raise BadRowError(f"is {_shown(one)}, not a number", _REMEDIES.get(type(one), ""), f"field {name!r}")
        return self._checked(values, names)

    def _filled(self, values: list[Any]) -> list[Any]:
        """The values with NaN in the place of nulls, where they may be missing."""
        if None not in values or not self._bad.takes_holes:
            return values
        return [math.nan if value is None else value for value in values]

    def _categories(self, places: Sequence[int], names: Sequence[str] | None) -> frozenset[int]:
        """Those of the places of features that are of categories."""
        found = self._bad.categories.among(names, len(places))
        return frozenset(place for feature, place in enumerate(places) if feature in found)

    def _checked(self, values: list[Any], names: Sequence[str] | None = None) -> list[Any]:
        """The features as floats and texts. Raises BadRowError for numbers without a float, and for a text that is too
        long, or where the rows before hold numbers."""
        found: list[Any] = []
        for place, one in enumerate(values):
            label = f"column {place}" if names is None else f"field {names[place]!r}"
            if isinstance(one, int) and abs(one) > 10**300:  # has no float
                raise BadRowError("is beyond 1e150", "", label)
            found.append(checked_text(one, label) if isinstance(one, str) else float(one))
        self._check_kinds(found, names)
        return found

    def _check_kinds(self, values: list[Any], names: Sequence[str] | None = None) -> None:
        """Raise BadRowError for a feature that is a text, and a number in the rows before, or the other way round."""
        kinds = ((place, isinstance(value, str)) for place, value in enumerate(values) if value == value)  # no NaN
        other = next((place for place, text in kinds if self._texts.setdefault(place, text) != text), None)
        if other is not None:
            label = f"column {other}" if names is None else f"field {names[other]!r}"
            kind = "texts" if self._texts[other] else "numbers"
            raise BadRowError(f"is {_shown(values[other])}, and the lines before hold {kind}", "use one kind", label)

    def _fields(self, value: dict[str, Any]) -> tuple[Any, Any, Any, Any] | None:
        names = self._records
        if not names:
            return None
        missing = [name for name in names.named if name not in value]
        if missing:
            raise BadRowError("it is missing", "write null where there is none", f"field {missing[0]!r}")
        key, time, weight = (None if name is None else value[name] for name in (names.key, names.time, names.weight))
        if isinstance(key, int) and not isinstance(key, bool):
            key = str(key)
        return key, time, {name: value[name] for name in names.payload} or None, weight


def _record_fields(value: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    return value.get("key"), value.get("time"), value.get("payload"), value.get("weight")


def _holds_text(values: Iterable[Any]) -> bool:
    return any(isinstance(value, str) for value in values)


def _is_text(value: Any, category: bool) -> bool:
    return category and isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_REMEDIES = {
    str: "a field of texts needs the family categorical",
    type(None): ACCEPT_MISSING,
}
"""What to do about a value that is no number, by its type."""


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
