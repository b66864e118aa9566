"""Streams: the registry of those there are, the one writer of each, and the views that readers borrow."""

from shoal_service.streams.board import PublishedView
from shoal_service.streams.learner.thread import Learner
from shoal_service.streams.registry import DEFAULT_STREAM, StreamInfo, StreamRegistry
from shoal_service.streams.stream import Receipt, Stream
from shoal_service.streams.view import component_of, page_of, predictions_of

__all__ = [
    "DEFAULT_STREAM",
    "Learner",
    "PublishedView",
    "Receipt",
    "Stream",
    "StreamInfo",
    "StreamRegistry",
    "component_of",
    "page_of",
    "predictions_of",
]
