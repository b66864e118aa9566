"""Decoding of request bodies without blocking the event loop: in threads, and in child processes for large text."""

from shoal_service.wire.decoder.pool import Decoder

__all__ = ["Decoder"]
