"""Wire formats to checked arrays, and answers back to bytes.

Light on purpose (NumPy and msgspec): the decoding child loads it. The pydantic side lies beside it, in `wire.models`
(for OpenAPI) and `wire.specs` (settings of streams), and is imported from there.
"""

from shoal_service.wire.decode import decode
from shoal_service.wire.decoder import Decoder
from shoal_service.wire.log_payload import from_log, to_log
from shoal_service.wire.media import Format
from shoal_service.wire.output import (
    ComponentColumns,
    Head,
    PredictionColumns,
    encode,
    encode_components,
    encode_predictions,
)
from shoal_service.wire.parameters import (
    check_host,
    check_idempotency_key,
    check_stream_name,
    decode_cursor,
    encode_cursor,
    parse_points_query,
    request_digest,
)
from shoal_service.wire.points import Points, WireLimits

__all__ = [
    "ComponentColumns",
    "Decoder",
    "Format",
    "Head",
    "Points",
    "PredictionColumns",
    "WireLimits",
    "check_host",
    "check_idempotency_key",
    "check_stream_name",
    "decode",
    "decode_cursor",
    "encode",
    "encode_components",
    "encode_cursor",
    "encode_predictions",
    "from_log",
    "parse_points_query",
    "request_digest",
    "to_log",
]
