"""The root command `shoal`, and the list of its commands."""

import os
from typing import Annotated

import typer

import shoal_service
from shoal_service.cli import (
    clusters,
    components,
    connect,
    dead_letters,
    doctor,
    export,
    fit,
    ingest,
    keys,
    label,
    predict,
    records,
    refine,
    report,
    serve,
    snapshot,
    sources,
    streams,
    version,
    watch,
)
from shoal_service.cli.exits import EXIT_CODES_HELP, ReportingGroup, open_closed_streams
from shoal_service.cli.groups import grouped

app = typer.Typer(
    name="shoal",
    cls=ReportingGroup,
    add_completion=True,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES_HELP,
)
app.command("serve")(grouped(serve.serve))
app.command("ingest", cls=ingest.IngestCommand)(grouped(ingest.ingest))
app.add_typer(connect.app, name="connect")
app.command("components")(grouped(components.components))
app.command("clusters")(grouped(clusters.clusters))
app.command("label")(grouped(label.label))
app.command("predict")(grouped(predict.predict))
app.command("refine")(grouped(refine.refine))
app.command("watch")(grouped(watch.watch))
app.command("fit")(grouped(fit.fit))
app.command("report")(grouped(report.report))
app.add_typer(streams.app, name="streams")
app.add_typer(sources.app, name="sources")
app.add_typer(records.app, name="records")
app.add_typer(snapshot.app, name="snapshot")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(export.app, name="export")
app.command("doctor")(grouped(doctor.doctor))
app.add_typer(keys.app, name="keys")
app.command("version")(grouped(version.version))


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"shoal {shoal_service.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    r"""Cluster a stream of points. The number of clusters is not needed.

    With a server:

      shoal serve                start a server on 127.0.0.1:8000
      shoal ingest points.csv    send a file
      shoal components           show the components of the stream
      shoal clusters             show them in groups
      shoal label 7 "idle"       name a component
      shoal predict new.csv      predict the component and the novelty of points
      shoal refine               improve the mixture by batch inference
      shoal watch                follow the components live

    Without a server:  shoal fit points.csv, shoal report points.csv, shoal doctor

    Settings: flags, else SHOAL_* variables (SHOAL_URL, SHOAL_PORT, ...),
    else a TOML file (SHOAL_CONFIG).
    """


def main() -> None:
    """The entry point of the `shoal` script."""
    if "_SHOAL_COMPLETE" in os.environ:
        os.environ["COLUMNS"] = "10000"  # fish reads one choice a line, so no help may be wrapped
    open_closed_streams()
    app(prog_name="shoal")
