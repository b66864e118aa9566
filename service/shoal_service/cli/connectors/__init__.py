"""Connectors: processes that read a source and send its records to a stream, each once."""

from shoal_service.cli.connectors.garbage import rare_collections
from shoal_service.cli.connectors.health import HealthServer
from shoal_service.cli.connectors.messages import BadMessages, MessageDecoder, Messages
from shoal_service.cli.connectors.progress import Lag, Progress
from shoal_service.cli.connectors.steps import Connector, PositionsNeededError, SourceAwayError, SourceReader, Step

__all__ = [
    "BadMessages",
    "Connector",
    "HealthServer",
    "Lag",
    "MessageDecoder",
    "Messages",
    "PositionsNeededError",
    "Progress",
    "SourceAwayError",
    "SourceReader",
    "Step",
    "rare_collections",
]
