"""Texts as points: embedders that need no download, and files of texts."""

from shoal_service.cli.embedding.embedders import Embedder, embedder_of
from shoal_service.cli.embedding.stream_embedder import record_embedder
from shoal_service.cli.embedding.text_file import TextFile, TextLines

__all__ = ["Embedder", "TextFile", "TextLines", "embedder_of", "record_embedder"]
