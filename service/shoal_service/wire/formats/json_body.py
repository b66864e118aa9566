"""JSON bodies: `{"points": [[...], ...]}`, or sparse rows, `{"points": [{"indices": [...], "values": [...]}, ...]}`.

The features of rows may have names, `{"points": [{"cpu": 0.3, "mem": 0.7}, ...]}`.

Beside the points there may be the lists `keys`, `times`, `payloads` and `weights`, each as long as the points, and the
names of the columns, `feature_names`.
"""

import re
from types import GenericAlias
from typing import Any, Generic, NoReturn, TypeVar, cast

import msgspec

from shoal.errors import did_you_mean
from shoal_service.errors import FeatureNamesError, MalformedBodyError
from shoal_service.wire.feature_names import checked_names, errors_naming_features
from shoal_service.wire.formats.named_rows import named_rows, refuse_first_bad_named_row
from shoal_service.wire.formats.sparse_rows import SparseRow, known_width, refuse_first_bad_sparse_row, sparse_of
from shoal_service.wire.formats.text_rows import (
    VALUE_TYPES,
    check_count,
    refuse_first_bad_row,
    slow_json,
    table_with_texts,
    value_type,
)
from shoal_service.wire.points import Body, Points, WireLimits
from shoal_service.wire.record_fields import FIELDS, RecordFields, checked_fields

Row = TypeVar("Row")


class _Body(msgspec.Struct, Generic[Row], forbid_unknown_fields=True):
    """The points, and lists beside them, which `checked_fields` checks."""

    points: list[Row]
    keys: Any = None
    times: Any = None
    payloads: Any = None
    weights: Any = None
    feature_names: Any = None

    def checked(self, limits: WireLimits) -> RecordFields | None:
        lists = (self.keys, self.times, self.payloads, self.weights)
        return checked_fields(len(self.points), *lists, max_payload_bytes=limits.max_payload_bytes)


class _Points(msgspec.Struct):
    """What the body of any kind of rows holds."""

    points: list[msgspec.Raw]


def _decoder(row: Any) -> "msgspec.json.Decoder[_Body[Any]]":
    return msgspec.json.Decoder(cast(Any, _Body)[row])


_ARRAYS = {value: _decoder(GenericAlias(list, (value,))) for value in VALUE_TYPES}
_OBJECTS = {value: _decoder(GenericAlias(dict, (str, value))) for value in VALUE_TYPES}
_SPARSE = _decoder(SparseRow)
_BEGINS_WITH_POINTS = re.compile(rb'\s*+\{\s*+"points"\s*+:\s*+\[\s*+')
_BEGINS_SPARSE = re.compile(rb'\{\s*+(?:\}|"(?:indices|values)"\s*+:\s*+[^-\s\d])')
_POINTS = msgspec.json.Decoder(_Points)
_HEAD = 1_000
"""Bytes of a row that say of which kind it is."""
_FIELDS = ("points", *FIELDS, "feature_names")
_EXPECTED = 'send {"points": [[1.0, 2.0], [3.0, 4.0]]}'
_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_json(body: Body, limits: WireLimits, n_features: int | None = None) -> Points:
    """Read the points of a JSON body as float64: sparse rows of `n_features` features if the first row is sparse.

    Rows with names give the names and the order of the columns; the other rows have the same names, in any order.

    Raises MalformedBodyError (not JSON, or another object), ShapeError (no rows, rows of different lengths, a wrong or
    repeated index), NotNumericError (booleans, strings, null, nested arrays), NotFiniteError (NaN, 1e400, |x| > 1e150),
    FeatureNamesError, RecordFieldError and LimitError. All but the first and the last name a row.
    """
    check_count(body, limits)
    first = _first_row(body)
    if first.startswith(b"{"):
        if not _BEGINS_SPARSE.match(first):
            return _decode_named(body, limits)
        width = known_width(n_features)
        try:
            sparse = _SPARSE.decode(body)
            rows = sparse_of(sparse.points, width, limits)
            names = checked_names(sparse.feature_names, rows.shape[1])
            return Points(rows, sparse.checked(limits), names)
        except _REFUSED as error:
            _refuse(body, str(error), width, limits)
    try:
        dense = _ARRAYS[value_type(limits)].decode(body)
    except _REFUSED as error:
        _refuse(body, str(error), None, limits)
    with errors_naming_features(dense.feature_names):
        x, texts = table_with_texts(dense.points, limits)
    names = checked_names(dense.feature_names, x.shape[1])
    return Points(x, dense.checked(limits), names, texts)


def _first_row(body: Body) -> bytes:
    """The beginning of the first row. Empty where there is none."""
    if begins := _BEGINS_WITH_POINTS.match(body):
        return bytes(body[begins.end() : begins.end() + _HEAD])
    try:
        return b"".join(map(bytes, _POINTS.decode(body).points[:1]))
    except _REFUSED:
        return b""


def _decode_named(body: Body, limits: WireLimits) -> Points:
    """Read rows whose features have names."""
    try:
        named = _OBJECTS[value_type(limits)].decode(body)
    except _REFUSED as error:
        _refuse(body, str(error), None, limits)
    if named.feature_names is not None:
        raise FeatureNamesError("the rows name their features; leave out feature_names, or send arrays of numbers")
    ordered, names = named_rows(named.points)
    with errors_naming_features(names):
        x, texts = table_with_texts(ordered, limits)
    return Points(x, named.checked(limits), names, texts)


def _refuse(body: Body, reason: str, sparse_width: int | None, limits: WireLimits) -> NoReturn:
    """Raise the error for a body that the fast decoder refused: for its first bad row, or for the whole body."""
    try:
        whole = slow_json(body.decode())
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict) and (unknown := [name for name in whole if name not in _FIELDS]):
        advice = did_you_mean(unknown[0], _FIELDS)
        raise MalformedBodyError(f"unknown field {unknown[0][:60]!r}; {advice}a body has {', '.join(_FIELDS)}")
    if isinstance(whole, dict) and isinstance(whole.get("points"), list):
        rows = whole["points"]
        if sparse_width is not None:
            refuse_first_bad_sparse_row(rows, sparse_width)
        elif rows and isinstance(rows[0], dict):
            refuse_first_bad_named_row(rows, holes=limits.holes, texts=limits.texts)
        else:
            with errors_naming_features(whole.get("feature_names")):
                refuse_first_bad_row(rows, holes=limits.holes, texts=limits.texts)
        lists = (whole.get(name) for name in FIELDS)
        checked_fields(len(rows), *lists, max_payload_bytes=limits.max_payload_bytes)
    raise MalformedBodyError(f"the body does not hold points in JSON: {reason[:200]}; {_EXPECTED}")
