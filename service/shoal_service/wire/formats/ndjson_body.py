"""NDJSON bodies: one row per line, as arrays of numbers or as sparse rows. Blank lines do not count."""

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
    """Read the points of an NDJSON body as float64: sparse rows of `n_features` features if the first row is sparse.

    Raises MalformedBodyError (a line that is not JSON), and ShapeError, NotNumericError, NotFiniteError and LimitError
    as for JSON. The errors name the first bad row, counted from 0 without blank lines.
    """
    check_count(body, limits)
    sparse = _BEGINS_SPARSE.match(body) is not None
    width = known_width(n_features) if sparse else None
    try:
        rows: list[Any] = (_SPARSE if sparse else _DENSE).decode_lines(body)
    except _REFUSED as error:
        _refuse(body, str(error), width)
    if len(rows) != body.count(b"\n") + (not body.endswith(b"\n")) and len(rows) != sum(1 for _ in _lines(body)):
        _refuse(body, "a line does not hold exactly one row", width)
    return Points(table_of(rows, limits) if width is None else sparse_of(rows, width, limits))


def _lines(body: Body) -> Iterator[bytes]:
    """Lines that are not blank."""
    return (line for line in bytes(body).split(b"\n") if line.strip())


def _refuse(body: Body, reason: str, sparse_width: int | None) -> NoReturn:
    """Raise the error for a body that the fast decoder refused: for its first bad row, or for the whole body."""
    rows = (_row(number, line) for number, line in enumerate(_lines(body)))
    if sparse_width is None:
        refuse_first_bad_row(rows)
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
