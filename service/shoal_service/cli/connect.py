"""The commands `shoal connect`: connectors that read a source and send its records to a stream."""

import contextlib
import signal
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError
from shoal_service.cli.groups import grouped

if TYPE_CHECKING:
    from shoal_service.cli.connectors import BadMessages, MessageDecoder, SourceReader
    from shoal_service.client import Client

SOURCE, MESSAGES, PROCESS = "Source", "Messages", "Process"

app = typer.Typer(
    no_args_is_help=True,
    help="Read a source for as long as it runs, and store each record once.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


class OnBadMessage(StrEnum):
    """Treatment of a record that cannot be used."""

    STOP = "stop"
    SKIP = "skip"


class Connecting(NamedTuple):
    """Options of every connector."""

    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Name under which the position is stored. (default: that of the command)",
            rich_help_panel=SOURCE,
        ),
    ] = None
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Most records per request.", rich_help_panel=SOURCE)
    ] = 2000
    create: Annotated[
        bool,
        typer.Option("--create", help="Create the stream if needed, with default settings.", rich_help_panel=SOURCE),
    ] = False
    on_bad: Annotated[
        OnBadMessage,
        typer.Option("--on-bad", help="A record that cannot be used: stop there, or skip it.", rich_help_panel=SOURCE),
    ] = OnBadMessage.STOP
    health_port: Annotated[
        int | None,
        typer.Option(
            "--health-port",
            min=0,
            max=65535,
            help="Port for /healthz, /readyz and /metrics. (default: none)",
            show_default=False,
            rich_help_panel=PROCESS,
        ),
    ] = None
    health_host: Annotated[
        str, typer.Option("--health-host", help="Address of the health port.", rich_help_panel=PROCESS)
    ] = "127.0.0.1"
    log_format: Annotated[str, typer.Option("--log-format", help="json, console or auto.", rich_help_panel=PROCESS)] = (
        "auto"
    )


class Decoding(NamedTuple):
    """Options of connectors that read messages."""

    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="json, msgpack, float32 or float64 (one raw vector a message, little-endian).",
            rich_help_panel=MESSAGES,
        ),
    ] = "json"
    columns: Annotated[
        str | None,
        typer.Option("--columns", "-c", metavar="LIST", help="Fields to use, by name: x,y.", rich_help_panel=MESSAGES),
    ] = None


def run_connector(
    server: options.Server,
    connecting: Connecting,
    default_source: str,
    reader_of: "Callable[[Client, Any], SourceReader]",
) -> int:
    """Run a connector until its source ends, or until SIGTERM or SIGINT. Returns the number of points it stored."""
    from shoal_service.cli.connectors import Connector, HealthServer, Progress, rare_collections
    from shoal_service.logs import make_log

    log = make_log("info", connecting.log_format)
    progress = Progress()
    with server.connect(retries=0) as client:  # the connector itself tries again
        reader = reader_of(client, log)
        connector = Connector(
            client,
            reader,
            connecting.source or default_source,
            progress,
            log,
            create=connecting.create,
            may_be_missing=connecting.create or server.stream is None,
            skip_bad=connecting.on_bad is OnBadMessage.SKIP,
            holes=True,  # the reader has refused those that may not be
        )
        before = {number: signal.signal(number, lambda *_: connector.stop()) for number in _STOPPED_BY}
        try:
            with contextlib.ExitStack() as stack:
                if connecting.health_port is not None:
                    health = HealthServer(progress, connecting.health_host, connecting.health_port)
                    stack.enter_context(health)
                    log.info("health_port", host=connecting.health_host, port=health.port)
                stack.enter_context(rare_collections())
                connector.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            reader.close()
    log.info("stopped", points=progress.n_points)
    return progress.n_points


def decoder_of(
    server: options.Server,
    client: "Client",
    name: str,
    decoding: Decoding,
    fields: options.FieldColumns,
    on_bad: OnBadMessage,
    log: Any,
) -> "MessageDecoder":
    """Make the decoder of the messages of a source."""
    from shoal.errors import did_you_mean
    from shoal_service.cli.connectors import MessageDecoder
    from shoal_service.cli.connectors.messages import MessageFormat

    try:
        form = MessageFormat(decoding.form)
    except ValueError:
        names = [one.value for one in MessageFormat]
        advice = did_you_mean(decoding.form, names)
        raise CommandError(f"--format {decoding.form} is unknown; {advice}use one of {', '.join(names)}") from None
    bad = bad_messages_of(server, client, name, on_bad, log)
    features = lambda: server.n_features(client)  # noqa: E731
    return MessageDecoder(form, bad, columns=decoding.columns, records=fields.columns(), n_features=features)


def bad_messages_of(
    server: options.Server, client: "Client", name: str, on_bad: OnBadMessage, log: Any
) -> "BadMessages":
    """Make what treats the records of a source that cannot be used."""
    from shoal_service.cli.connectors import BadMessages

    return BadMessages(
        name,
        stops=on_bad is OnBadMessage.STOP,
        takes_holes=lambda: server.takes_holes(client),
        categories=lambda: server.categories(client),
        log=log,
    )


_STOPPED_BY = (signal.SIGTERM, signal.SIGINT)


@app.command("redis-stream")
@grouped
def redis_stream(
    redis_url: Annotated[str, typer.Argument(metavar="REDIS_URL", help="redis://host:port/database of the source.")],
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys of the Redis streams to read.")],
    *,
    server: options.Server,
    field: Annotated[
        str, typer.Option("--field", metavar="NAME", help="Field of an entry that holds the message.")
    ] = "data",
    key_field: Annotated[
        str | None, typer.Option("--key-field", metavar="NAME", help="Field of an entry that holds the record's key.")
    ] = None,
    entry_time: Annotated[
        bool, typer.Option("--entry-time", help="The time of a record is that in the id of its entry.")
    ] = False,
    start: Annotated[
        str,
        typer.Option("--from", metavar="ID", help="Where to begin without a stored position: an id, or $ (the end)."),
    ] = "0-0",
    group: Annotated[
        str | None,
        typer.Option(
            "--group", metavar="NAME", help="Consumer group whose position follows the stored one, for XINFO GROUPS."
        ),
    ] = None,
    decoding: Decoding,
    fields: options.FieldColumns,
    connecting: Connecting,
) -> None:
    """Read Redis streams in order, from the stored position.

    Each key is a partition. The position is the id of an entry.

    Examples:

      shoal connect redis-stream redis://127.0.0.1:6379/0 readings --stream sensors --create
      shoal connect redis-stream redis://127.0.0.1 readings --format float32 --field v --health-port 9301
    """

    def reader_of(client: "Client", log: Any) -> "SourceReader":
        from shoal_service.cli.connectors.redis_stream import RedisStreamReader

        decoder = decoder_of(server, client, "redis stream", decoding, fields, connecting.on_bad, log)
        return RedisStreamReader(
            redis_url,
            keys,
            decoder,
            log,
            field=field,
            start=start,
            count=connecting.batch_size,
            group=group,
            key_field=key_field,
            entry_time=entry_time,
        )

    run_connector(server, connecting, "redis-stream", reader_of)


@app.command("kafka")
@grouped
def kafka(
    brokers: Annotated[str, typer.Argument(metavar="BROKERS", help="host:port of one or more brokers, with commas.")],
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to read.")],
    *,
    server: options.Server,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="NAME",
            help="Consumer group that shares the partitions among connectors. (default: shoal-STREAM)",
        ),
    ] = None,
    from_end: Annotated[
        bool, typer.Option("--from-end", help="Begin at the end of a partition without a stored position.")
    ] = False,
    message_key: Annotated[
        bool, typer.Option("--message-key", help="The key of a message is that of its record.")
    ] = False,
    message_time: Annotated[
        bool, typer.Option("--message-time", help="The timestamp of a message is the time of its record.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of librdkafka, such as security.protocol=ssl. Repeatable."
        ),
    ] = None,
    settings_file: Annotated[
        Path | None,
        typer.Option("--set-file", metavar="FILE", help="File of such settings, one a line, for secrets."),
    ] = None,
    decoding: Decoding,
    fields: options.FieldColumns,
    connecting: Connecting,
) -> None:
    """Read Kafka topics from the stored positions. It needs the extra kafka.

    Each partition of a topic is one of the source, TOPIC/NUMBER. The position is the offset of its next message.

    Examples:

      shoal connect kafka 127.0.0.1:9092 readings --stream sensors --create --message-key
      shoal connect kafka broker:9093 readings --set security.protocol=ssl --set-file kafka.properties
    """

    def reader_of(client: "Client", log: Any) -> "SourceReader":
        from shoal_service.cli.connectors.kafka import KafkaReader

        decoder = decoder_of(server, client, "kafka", decoding, fields, connecting.on_bad, log)
        return KafkaReader(
            brokers,
            topics,
            decoder,
            log,
            group=group or f"shoal-{server.stream or 'default'}",
            from_end=from_end,
            count=connecting.batch_size,
            message_key=message_key,
            message_time=message_time,
            settings=properties(settings or [], settings_file),
        )

    run_connector(server, connecting, "kafka", reader_of)


@app.command("parquet")
@grouped
def parquet(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of Parquet files.")],
    *,
    server: options.Server,
    columns: options.Columns = None,
    once: Annotated[
        bool, typer.Option("--once", help="End behind the last file, and do not wait for further ones.")
    ] = False,
    fields: options.FieldColumns,
    connecting: Connecting,
) -> None:
    """Read the Parquet files of a folder in the order of their names. It needs the extra arrow.

    The position is the file, the row group and the row in it that come next.
    Write a file under a name that begins with a dot, and rename it once it is whole.

    Example:  shoal connect parquet exports/ --stream sensors --create --key-column host
    """

    def reader_of(client: "Client", log: Any) -> "SourceReader":
        from shoal_service.cli.connectors.parquet_folder import ParquetFolderReader

        bad = bad_messages_of(server, client, str(folder), connecting.on_bad, log)
        return ParquetFolderReader(
            folder, bad, log, columns=columns, records=fields.columns(), count=connecting.batch_size, once=once
        )

    run_connector(server, connecting, "parquet", reader_of)


def properties(words: list[str], file: Path | None) -> dict[str, str]:
    """Read settings NAME=VALUE, of the command line and of a file with # comments. The command line wins."""
    lines = [] if file is None else file.read_text(encoding="utf-8").splitlines()
    found = {}
    for text in [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")] + words:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"{text[:40]!r} is not a setting NAME=VALUE; write it like security.protocol=ssl")
        found[name.strip()] = value.strip()
    return found
