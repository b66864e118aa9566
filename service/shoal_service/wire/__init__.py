"""Formats on the wire: bodies to checked arrays, and answers to bytes.

This room loads NumPy and msgspec only, because the decoding child loads it. The pydantic models lie in `wire.models`
and are imported from there.
"""

from shoal_service.wire.decoder import Decoder
from shoal_service.wire.feature_names import column_order, errors_naming_features
from shoal_service.wire.formats import (
    Format,
    decode,
    fields_from_log,
    from_log,
    json_text,
    times_from_log,
    to_log,
    weights_from_log,
)
from shoal_service.wire.lookup import decode_lookup
from shoal_service.wire.output import (
    ComponentColumns,
    Head,
    PredictionColumns,
    encode,
    encode_components,
    encode_predictions,
    first_points,
    named_components,
)
from shoal_service.wire.parameters import (
    check_host,
    check_idempotency_key,
    check_stream_name,
    decode_cursor,
    decode_name_cursor,
    decode_rank,
    encode_cursor,
    parse_points_query,
    record_columns,
    request_digest,
)
from shoal_service.wire.points import Points, Sparse, Table, WireLimits
from shoal_service.wire.record_columns import RecordColumns
from shoal_service.wire.record_fields import RecordFields, time_text
from shoal_service.wire.texts import Texts, joined_columns, joined_texts

__all__ = [
    "ComponentColumns",
    "Decoder",
    "Format",
    "Head",
    "Points",
    "PredictionColumns",
    "RecordColumns",
    "RecordFields",
    "Sparse",
    "Table",
    "Texts",
    "WireLimits",
    "check_host",
    "check_idempotency_key",
    "check_stream_name",
    "column_order",
    "decode",
    "decode_cursor",
    "decode_lookup",
    "decode_name_cursor",
    "decode_rank",
    "encode",
    "encode_components",
    "encode_cursor",
    "encode_predictions",
    "errors_naming_features",
    "fields_from_log",
    "first_points",
    "from_log",
    "joined_columns",
    "joined_texts",
    "json_text",
    "named_components",
    "parse_points_query",
    "record_columns",
    "request_digest",
    "time_text",
    "times_from_log",
    "to_log",
    "weights_from_log",
]
