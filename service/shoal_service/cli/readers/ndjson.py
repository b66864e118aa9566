"""ndjson files, read line by line: arrays of numbers, objects with a field for each feature, or records."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from shoal_service.cli.readers.bad_rows import BadRowError, BadRows, Place
from shoal_service.cli.readers.table import choose_columns
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
                yield line, values if plain else self._chosen(values), None, text
            except msgspec.DecodeError:
                try:
                    yield self._object(line, text)
                except BadRowError as bad:
                    self._bad.add(Place("line", line), bad, text.strip())
            except BadRowError as bad:
                self._bad.add(Place("line", line), bad, text.strip())

    def _chosen(self, values: list[float]) -> list[float]:
        if self._records:
            raise BadRowError("an array has no fields", "write objects, or leave out --key-column and the like")
        picked = choose_columns(self._columns, None, len(values), self._bad.file)
        return values if picked is None else [values[i] for i in picked]

    def _object(self, line: int, text: str) -> Row:
        try:
            value: Any = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise BadRowError(f"is not JSON ({error})", "write one array of numbers per line") from error
        if isinstance(value, list) and None in value and self._bad.takes_holes:
            filled = [math.nan if number is None else number for number in value]
            if all(map(_is_number, filled)):
                return line, self._chosen(list(map(float, filled))), None, text
        if isinstance(value, list):
            at = next((i for i, number in enumerate(value) if not _is_number(number)), 0)
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
        numbers = _numbers(value, self._names, self._bad)
        self._objects = len(numbers) == len(self._names)
        return line, numbers, self._fields(value), text

    def _point(self, point: Any) -> list[float]:
        """The features of a record. Their names are those of the first one."""
        if not isinstance(point, dict):
            return _numbers({"point": point}, ["point"], self._bad)
        if self._point_names is None:
            self._names = self._point_names = list(point)
            self._objects = True
        if unknown := [name for name in point if name not in self._point_names]:
            raise BadRowError(f"the feature {unknown[0]!r} is not in the first line", "send the same features")
        return _numbers(point, self._point_names, self._bad)

    def _check_first(self, value: dict[str, Any]) -> None:
        """Raise BadRowError if a field that nobody chose is no number: the features must be chosen then."""
        wrong = [
            name
            for name in self._names or ()
            if not (_is_number(value[name]) or isinstance(value[name], list))
            and not (value[name] is None and self._bad.takes_holes)
        ]
        if wrong:
            others = ",".join(name for name in value if name not in wrong and name not in self._records.named)
            self._names = None
            raise BadRowError(
                f"is an object whose field {wrong[0]!r} is no number",
                f"choose its fields with --columns {others}, or name those that are no features",
            )

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


def _numbers(value: dict[str, Any], names: list[str], bad: BadRows) -> list[float]:
    """The features of an object, NaN for a null that may be one. Raises BadRowError, with the first field that is no
    number."""
    values: list[Any] = [value.get(name) for name in names]
    whole = all(name in value for name in names)
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
        names = [f"{names[0]}[{i}]" for i in range(len(values))]
    if whole and None in values and bad.takes_holes:
        values = [math.nan if number is None else number for number in values]
    for name, number in zip(names, values, strict=True):
        if not _is_number(number):
            raise BadRowError(f"is {_shown(number)}, not a number", "", f"field {name!r}")
        if isinstance(number, int) and abs(number) > 10**300:  # has no float
            raise BadRowError("is beyond 1e150", "", f"field {name!r}")
    return [float(number) for number in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
