"""The embedder of a stream: recorded in its settings with the first text, and checked before every later one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shoal_service.cli.embedding.embedders import Embedder
from shoal_service.cli.exits import CommandError

if TYPE_CHECKING:
    from shoal_service.client import Client


def record_embedder(
    client: "Client", stream: str, embedder: Embedder, *, create: bool, settings: Mapping[str, Any] | None = None
) -> None:
    """Record the embedder with the stream, which is created with `create` if needed. CommandError when the stream has
    another one, or has points and none.
    """
    from shoal_service.client import NotFoundError

    try:
        known = client.stream_info(stream)
    except NotFoundError:
        if not create and stream != "default":
            raise
        client.create_stream(stream, n_features=embedder.n_features, embedder=embedder.name, **(settings or {}))
        return
    recorded = known.settings.get("embedder")
    if recorded == embedder.name:
        return
    if recorded is not None:
        raise CommandError(
            f"the texts of stream {stream!r} are embedded by {recorded}, and this is {embedder.name}; their vectors "
            "cannot be compared: use the same embedder, or another stream"
        )
    if known.log_offset:
        raise CommandError(
            f"stream {stream!r} has points and no recorded embedder; send texts to another stream, or, if its points "
            f"are of {embedder.name}, say so: shoal streams set {stream} embedder={embedder.name}"
        )
    client.change_stream(stream, embedder=embedder.name)
