"""Formats in which points are written: each is read to a checked table, or refused with the first bad row."""

from shoal_service.wire.formats.arrow_fields import fields_of_batch, without_dictionary
from shoal_service.wire.formats.decode import check_size, decode
from shoal_service.wire.formats.gunzip import gunzip
from shoal_service.wire.formats.json_text import json_text
from shoal_service.wire.formats.log_payload import (
    fields_from_log,
    from_log,
    times_from_log,
    to_log,
    weights_from_log,
)
from shoal_service.wire.formats.media_types import Format, parse_content_encoding, parse_content_type
from shoal_service.wire.formats.sparse_rows import SparseRow, refuse_first_bad_sparse_row, sparse_of
from shoal_service.wire.formats.text_rows import slow_json

__all__ = [
    "Format",
    "SparseRow",
    "check_size",
    "decode",
    "fields_from_log",
    "fields_of_batch",
    "from_log",
    "gunzip",
    "json_text",
    "parse_content_encoding",
    "parse_content_type",
    "refuse_first_bad_sparse_row",
    "slow_json",
    "sparse_of",
    "times_from_log",
    "to_log",
    "weights_from_log",
    "without_dictionary",
]
