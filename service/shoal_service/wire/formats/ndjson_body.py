"""NDJSON bodies: a row a line, each an array of numbers, or each a sparse row; blank lines do not count."""

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

from shoal_service.errors import MalformedBodyError
from shoal_service.wire.formats.sparse_rows import SparseRow, known_width, refuse_first_bad_sparse_row, sparse_of
from shoal_service.wire.formats.text_rows import check_count, refuse_first_bad_row, slow_json, table_of
from shoal_service.wire.points import Body, Points, WireLimits

_DENSE, _SPARSE = msgspec.json.Decoder(list[float]), msgspec.json.Decoder(SparseRow)
_BEGINS_SPARSE = re.compile(rb"\s*+\{")
_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_ndjson(body: Body, limits: WireLimits, n_features: int | None = None) -> Points:
    """The points of an NDJSON body, as float64; sparse where its first row is, and `n_features` wide then.

    MalformedBodyError (a line that is not JSON), ShapeError, NotNumericError, NotFiniteError as in JSON; each names the
    first bad row, counted from 0 over the lines that are not blank. LimitError.
    """
    check_count(body, limits)
    sparse = _BEGINS_SPARSE.match(body) is not None
    width = known_width(n_features) if sparse else None
    try:
        rows: list[Any] = (_SPARSE if sparse else _DENSE).decode_lines(body)
    except _REFUSED as error:
        _refuse(body, str(error), width)
    if len(rows) != body.count(b"\n") + (not body.endswith(b"\n")) and len(rows) != sum(1 for _ in _lines(body)):
        _refuse(body, "a line holds more or less than one row", width)
    return Points(table_of(rows, limits) if width is None else sparse_of(rows, width, limits))


def _lines(body: Body) -> Iterator[bytes]:
    """Those that are not blank."""
    return (line for line in bytes(body).split(b"\n") if line.strip())


def _refuse(body: Body, reason: str, sparse_width: int | None) -> NoReturn:
    """Raise for a body that the typed decoder did not take: by its first bad row, or as a whole."""
    rows = (_row(number, line) for number, line in enumerate(_lines(body)))
    if sparse_width is None:
        refuse_first_bad_row(rows)
    else:
        refuse_first_bad_sparse_row(rows, sparse_width)
    raise MalformedBodyError(f"the body is not points in NDJSON: {reason[:200]}; send an array of numbers a line")


def _row(number: int, line: bytes) -> Any:
    try:
        return slow_json(line.decode())
    except (ValueError, RecursionError) as error:
        raise MalformedBodyError(
            f"row {number} is not JSON ({str(error)[:100]}); send one array of numbers a line", row=number
        ) from None
