"""JSON bodies: `{"points": [[...], ...]}`.

Good bodies take the fast way, a typed decoder in C. It stops at the first fault that *it* sees, which need not be the
first bad row (a ragged one before it passes), so a refused body is read once more, slowly, row after row.
"""

import json
from collections.abc import Sequence
from itertools import chain
from typing import NoReturn

import msgspec
import numpy as np

from shoal.errors import NotNumericError, ShapeError
from shoal_service.errors import LimitError, MalformedBodyError
from shoal_service.wire.points import MAX_MAGNITUDE, Body, Points, WireLimits, check_shape, check_values, not_finite


class _JsonBody(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    points: list[list[float]]


_DECODER = msgspec.json.Decoder(_JsonBody)
_EXPECTED = 'send {"points": [[1.0, 2.0], [3.0, 4.0]]}'


def decode_json(body: Body, limits: WireLimits) -> Points:
    """The points of a JSON body, as float64.

    MalformedBodyError (not JSON, or another object), ShapeError (no rows, ragged), NotNumericError (booleans, strings,
    null, nested arrays), NotFiniteError (NaN, 1e400, |x| > 1e150), LimitError; the last three kinds name a row.
    """
    _check_count(body, limits)
    try:
        rows = _DECODER.decode(body).points
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _refuse(body, str(error))
    width = len(rows[0]) if rows else 0
    check_shape(len(rows), width, limits)
    if any(length != width for length in set(map(len, rows))):
        _refuse_first_bad_row(rows)
    x = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * width).reshape(len(rows), width)
    check_values(x)
    return Points(x)


def _check_count(body: Body, limits: WireLimits) -> None:
    """Refuse by the commas, before a number is read: each becomes an object of some 32 bytes."""
    n_values = body.count(b",") + 1
    if n_values > limits.max_values:
        raise LimitError(
            f"the body holds {n_values} numbers, at most {limits.max_values} are taken; send smaller batches"
        )


def _refuse(body: Body, reason: str) -> NoReturn:
    """Raise for a body that the typed decoder did not take: by its first bad row, or as a whole."""
    try:
        # the standard library's reader takes NaN and Infinity, which is what most bad bodies hold
        whole = json.loads(body.decode(), parse_int=float)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict) and set(whole) == {"points"} and isinstance(whole["points"], list):
        _refuse_first_bad_row(whole["points"])
    raise MalformedBodyError(f"the body is not points in JSON: {reason[:200]}; {_EXPECTED}")


def _refuse_first_bad_row(rows: Sequence[object]) -> None:
    """Raise for the first row that is no list, holds what is no usable number, or is not as long as the first."""
    width = 0
    for i, row in enumerate(rows):
        if not isinstance(row, list):
            raise ShapeError(f"row {i} is {_shown(row)}, which is no array; {_EXPECTED}", row=i)
        for j, value in enumerate(row):
            if isinstance(value, bool) or not isinstance(value, float):
                raise NotNumericError(f"row {i} holds {_shown(value)} in column {j}, which is no number", row=i)
            if not abs(value) <= MAX_MAGNITUDE:
                raise not_finite(i, j, value)
        width = width or len(row)
        if len(row) != width or width == 0:
            others = f"the rows before it {width}" if i else "at least one is needed"
            raise ShapeError(f"row {i} holds {len(row)} numbers, {others}; send rows of equal length", row=i)


def _shown(value: object) -> str:
    """A value as JSON has it, cut to what fits in a message."""
    if isinstance(value, list | dict):
        return "an array" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
