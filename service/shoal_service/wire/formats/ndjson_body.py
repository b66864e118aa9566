"""NDJSON bodies: one row per line, as arrays of numbers, as sparse rows, or as objects with names, such as
`{"cpu": 0.3, "mem": 0.7}`. Blank lines do not count.

A line may also be a record, `{"point": [1.0, 2.0], "key": "a", "time": 1.5, "payload": {}, "weight": 1}`, whose point
is either. Records and arrays may be mixed. Or its point has names, `{"point": {"cpu": 0.3, "mem": 0.7}}`; then every
line is such a record.
"""

import re
from collections.abc import Iterator
from itertools import count
from types import GenericAlias
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, cast

import msgspec

from shoal.errors import did_you_mean
from shoal_service.errors import MalformedBodyError, RecordFieldError
from shoal_service.wire.feature_names import errors_naming_features
from shoal_service.wire.formats.named_rows import named_rows, refuse_first_bad_named_row
from shoal_service.wire.formats.sparse_rows import SparseRow, known_width, refuse_first_bad_sparse_row, sparse_of
from shoal_service.wire.formats.text_rows import (
    VALUE_TYPES,
    check_count,
    refuse_first_bad_row,
    shown,
    slow_json,
    table_with_texts,
    value_type,
)
from shoal_service.wire.points import Body, Points, WireLimits
from shoal_service.wire.record_fields import RecordFields, checked_fields

Point = TypeVar("Point")


class _Record(msgspec.Struct, Generic[Point], forbid_unknown_fields=True):
    """A line with fields beside its point."""

    point: Point
    key: Any = None
    time: Any = None
    payload: Any = None
    weight: Any = None


class _Decoders(NamedTuple):
    """Decoders of lines, for one type of values."""

    arrays: Any
    records: Any
    """Arrays, or records of arrays or of sparse rows."""
    objects: Any
    """Rows whose features have names."""
    named_records: Any


def _decoders(value: Any) -> _Decoders:
    array, named, record = GenericAlias(list, (value,)), GenericAlias(dict, (str, value)), cast(Any, _Record)
    lines = (array, array | record[array | SparseRow], named, record[named])
    return _Decoders(*map(msgspec.json.Decoder, lines))


_DECODERS = {value: _decoders(value) for value in VALUE_TYPES}
_SPARSE = msgspec.json.Decoder(SparseRow)
_FIRST_LINE = re.compile(rb"\s*+([^\n]*+)")
_SPARSE_FIELDS = frozenset(SparseRow.__struct_fields__)
_FIELDS = ("key", "time", "payload", "weight")
_NAMES = frozenset(_Record.__struct_fields__)
_BEGINS_WITH_OBJECT = re.compile(rb"\s*+\{")
_BEGINS_SPARSE = re.compile(rb'\s*+\{\s*+(?:\}|"(?:indices|values)"\s*+:\s*+[^-\s\d])')
_HAS_RECORD = re.compile(rb'^\s*+\{[^\n]*"point"\s*:', re.MULTILINE)
_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_ndjson(body: Body, limits: WireLimits, n_features: int | None = None) -> Points:
    """Read the points of an NDJSON body as float64: sparse rows of `n_features` features if the first row is sparse.

    Raises MalformedBodyError (a line that is not JSON), and ShapeError, NotNumericError, NotFiniteError,
    RecordFieldError and LimitError as for JSON. The errors name the first bad row, counted from 0 without blank lines.
    """
    check_count(body, limits)
    if _HAS_RECORD.search(body):
        return _decode_records(body, limits, n_features)
    sparse = _BEGINS_SPARSE.match(body) is not None
    if not sparse and _BEGINS_WITH_OBJECT.match(body):
        return _decode_named_rows(body, limits)
    width = known_width(n_features) if sparse else None
    try:
        rows: list[Any] = (_SPARSE if sparse else _DECODERS[value_type(limits)].arrays).decode_lines(body)
    except _REFUSED as error:
        _refuse(body, str(error), width, limits)
    _check_lines(body, len(rows), width, limits)
    if width is not None:
        return Points(sparse_of(rows, width, limits))
    x, texts = table_with_texts(rows, limits)
    return Points(x, texts=texts)


def _decode_named_rows(body: Body, limits: WireLimits) -> Points:
    """Read lines that are objects, with a number for each name of a feature."""
    try:
        rows: list[Any] = _DECODERS[value_type(limits)].objects.decode_lines(body)
    except _REFUSED as error:
        _refuse_named(body, str(error), limits)
    if len(rows) != sum(1 for _ in _lines(body)):
        _refuse_named(body, "a line does not hold exactly one row", limits)
    ordered, names = named_rows(rows)
    with errors_naming_features(names):
        x, texts = table_with_texts(ordered, limits)
    return Points(x, None, names, texts)


def _refuse_named(body: Body, reason: str, limits: WireLimits) -> NoReturn:
    rows = (_row(number, line) for number, line in enumerate(_lines(body)))
    refuse_first_bad_named_row(rows, holes=limits.holes, texts=limits.texts)
    raise MalformedBodyError(
        f'the body does not hold points in NDJSON: {reason[:200]}; send one object per line, such as {{"cpu": 0.3}}'
    )


def _decode_records(body: Body, limits: WireLimits, n_features: int | None) -> Points:
    """Read lines of which some are records."""
    named = _has_names(body)
    try:
        decoders = _DECODERS[value_type(limits)]
        lines: list[Any] = (decoders.named_records if named else decoders.records).decode_lines(body)
    except _REFUSED as error:
        _refuse_records(body, str(error), n_features, limits)
    if named:
        _check_lines(body, len(lines), None, limits)
        ordered, names = named_rows([line.point for line in lines])
        with errors_naming_features(names):
            x, texts = table_with_texts(ordered, limits)
        return Points(x, _checked(lines, limits), names, texts)
    rows: list[Any] = [line if isinstance(line, list) else line.point for line in lines]
    sparse = bool(rows) and isinstance(rows[0], SparseRow)
    if any(isinstance(row, SparseRow) is not sparse for row in rows):
        _refuse_records(body, "some points are arrays and others sparse rows", n_features, limits)
    _check_lines(body, len(rows), None, limits)
    if sparse:
        return Points(sparse_of(rows, n_features, limits), _checked(lines, limits))
    x, texts = table_with_texts(rows, limits)
    return Points(x, _checked(lines, limits), texts=texts)


def _has_names(body: Body) -> bool:
    """Whether the point of the first line has names. Its payload is another matter."""
    found = _FIRST_LINE.match(body)
    try:
        line = msgspec.json.decode(found.group(1)) if found else None
    except _REFUSED:
        return False
    point = line.get("point") if isinstance(line, dict) else None
    return isinstance(point, dict) and not _is_sparse(point)


def _is_sparse(point: dict[str, Any]) -> bool:
    """Whether a point is a sparse row: features may have the names of its fields, too."""
    return any(not isinstance(point[name], int | float) for name in _SPARSE_FIELDS & point.keys())


def _checked(lines: list[Any], limits: WireLimits) -> RecordFields | None:
    """The fields beside the points."""
    lists = ([getattr(line, name, None) for line in lines] for name in _FIELDS)
    given = (values if any(value is not None for value in values) else None for values in lists)
    return checked_fields(len(lines), *given, max_payload_bytes=limits.max_payload_bytes)


def _refuse_records(body: Body, reason: str, n_features: int | None, limits: WireLimits) -> NoReturn:
    """Raise the error for lines that the fast decoder refused."""
    points = (_point(number, _row(number, line)) for number, line in enumerate(_lines(body)))
    first = next(iter(points), None)
    rows = (_point(number, _row(number, line)) for number, line in enumerate(_lines(body)))
    if isinstance(first, dict) and not _is_sparse(first):
        refuse_first_bad_named_row(rows, holes=limits.holes, texts=limits.texts)
    elif isinstance(first, dict):
        refuse_first_bad_sparse_row(rows, known_width(n_features))
    else:
        refuse_first_bad_row(map(_without_names, count(), rows), holes=limits.holes, texts=limits.texts)
    _refuse_mixed_names(body)
    lines = [_row(number, line) for number, line in enumerate(_lines(body))]
    lists = ([line.get(name) if isinstance(line, dict) else None for line in lines] for name in _FIELDS)
    checked_fields(len(lines), *lists, max_payload_bytes=limits.max_payload_bytes)
    raise MalformedBodyError(
        f'the body does not hold points in NDJSON: {reason[:200]}; send one record per line, such as {{"point": [1.0], '
        '"key": "a"}'
    )


def _refuse_mixed_names(body: Body) -> None:
    """Raise RecordFieldError for the first record among bare objects with names, or the other way round."""
    bare: bool | None = None
    for number, line in enumerate(_lines(body)):
        row = _row(number, line)
        if not isinstance(row, dict) or _is_sparse(row):
            continue
        if "point" not in row:
            is_bare = True
        elif isinstance(row["point"], dict) and not _is_sparse(row["point"]):
            is_bare = False
        else:
            continue
        if bare is not None and is_bare is not bare:
            kinds = ("named features without", "records with")
            given, before = kinds if is_bare else kinds[::-1]
            raise RecordFieldError(
                f'row {number} is of {given} "point", and the rows before are {before} "point"; send all rows as '
                '{"cpu": 0.3}, or all as {"point": {"cpu": 0.3}}',
                row=number,
            )
        bare = is_bare


def _without_names(number: int, point: Any) -> Any:
    """The point of a line after arrays. Raises RecordFieldError for one with names."""
    if isinstance(point, dict) and not _is_sparse(point):
        raise RecordFieldError(
            f"row {number} has named features, and the rows before are arrays; send one kind of rows", row=number
        )
    return point


def _point(number: int, line: Any) -> Any:
    """The point of a line, or the line itself if it is no record. Raises RecordFieldError."""
    if not isinstance(line, dict) or "point" not in line:
        return line
    point = line["point"]
    if not isinstance(point, list | dict):
        raise RecordFieldError(
            f'row {number} has {shown(point)} as "point", which is the point of a record; send it as an array or an '
            'object, also for a feature of that name: {"point": {"point": 0.3, ...}}',
            row=number,
        )
    if unknown := sorted(line.keys() - _NAMES):
        advice = did_you_mean(unknown[0], _NAMES)
        raise RecordFieldError(
            f"row {number} has the field {unknown[0][:60]!r}; {advice}a record has {', '.join(sorted(_NAMES))}",
            row=number,
        )
    return point


def _check_lines(body: Body, n_rows: int, sparse_width: int | None, limits: WireLimits) -> None:
    if n_rows != body.count(b"\n") + (not body.endswith(b"\n")) and n_rows != sum(1 for _ in _lines(body)):
        _refuse(body, "a line does not hold exactly one row", sparse_width, limits)


def _lines(body: Body) -> Iterator[bytes]:
    """Lines that are not blank."""
    return (line for line in bytes(body).split(b"\n") if line.strip())


def _refuse(body: Body, reason: str, sparse_width: int | None, limits: WireLimits) -> NoReturn:
    """Raise the error for a body that the fast decoder refused: for its first bad row, or for the whole body."""
    rows = (_row(number, line) for number, line in enumerate(_lines(body)))
    if sparse_width is None:
        refuse_first_bad_row(rows, holes=limits.holes, texts=limits.texts)
    else:
        refuse_first_bad_sparse_row(rows, sparse_width)
    raise MalformedBodyError(
        f"the body does not hold points in NDJSON: {reason[:200]}; send one array of numbers per line"
    )


def _row(number: int, line: bytes) -> Any:
    try:
        return slow_json(line.decode())
    except (ValueError, RecursionError) as error:
        raise MalformedBodyError(
            f"row {number} is not JSON ({str(error)[:100]}); send one array of numbers per line", row=number
        ) from None
