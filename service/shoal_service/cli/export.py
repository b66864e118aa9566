"""The command `shoal export events`: events of a stream to a Redis stream, a Kafka topic or Parquet files."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.connect import properties
from shoal_service.cli.exits import CommandError
from shoal_service.cli.groups import grouped
from shoal_service.cli.output import count

if TYPE_CHECKING:
    from shoal_service.cli.connectors.sinks import Sink

app = typer.Typer(
    no_args_is_help=True,
    help="Write what happens to a stream to another system.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("events")
@grouped
def events(
    *,
    server: options.Server,
    redis: Annotated[
        tuple[str, str] | None,
        typer.Option("--redis", metavar="URL KEY", help="Write to a Redis stream: its address and its key."),
    ] = None,
    kafka: Annotated[
        tuple[str, str] | None,
        typer.Option("--kafka", metavar="BROKERS TOPIC", help="Write to a Kafka topic. It needs --state."),
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FOLDER", help="Write numbered Parquet files to a folder.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FILE", help="File that holds the position in a Kafka topic.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of librdkafka. Repeatable.")
    ] = None,
    settings_file: Annotated[
        Path | None,
        typer.Option("--set-file", metavar="FILE", help="File of such settings, one a line, for secrets."),
    ] = None,
    assignments: Annotated[
        bool, typer.Option("--assignments", help="Also write the records that may belong to another component.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for further events.")] = False,
    log_format: Annotated[str, typer.Option("--log-format", help="json, console or auto.")] = "auto",
) -> None:
    """Write the events of a stream, each at least once, from the last one that is there.

    Examples:

      shoal export events --stream s --parquet events/ --follow --assignments
      shoal export events --stream s --redis redis://127.0.0.1 s:events --follow
      shoal export events --stream s --kafka 127.0.0.1:9092 events --state s.position
    """
    from shoal_service.cli.connectors.exporter import Exporter
    from shoal_service.logs import make_log

    sink = _sink(redis, kafka, parquet, state, properties(settings or [], settings_file))
    with server.connect() as client, server.connect() as reader:
        exporter = Exporter(client, sink, make_log("info", log_format), assignments=assignments, follow=follow)
        before = {
            number: signal.signal(number, lambda *_: exporter.stop()) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            exporter.run(reader)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            sink.close()
    typer.echo(f"{count(exporter.written, 'row')} of stream {server.stream or 'default'} written")


def _sink(redis: Any, kafka: Any, parquet: Path | None, state: Path | None, settings: dict[str, str]) -> "Sink":
    from shoal_service.cli.connectors.sinks import KafkaSink, ParquetSink, RedisSink

    if [redis, kafka, parquet].count(None) != 2:
        raise CommandError("give one sink: --redis URL KEY, --kafka BROKERS TOPIC or --parquet FOLDER")
    if (kafka is None) is not (state is None):
        raise CommandError("--kafka needs --state FILE, which holds the position, and no other sink does")
    if redis is not None:
        return RedisSink(*redis)
    if parquet is not None:
        return ParquetSink(parquet)
    assert state is not None
    brokers, topic = kafka
    return KafkaSink(brokers, topic, state, settings)
