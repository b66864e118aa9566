"""The command `shoal report`: fit a file, and write one HTML page about it."""

import importlib.metadata
import platform
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

import shoal_service
from shoal_service.cli import options
from shoal_service.cli.exits import CommandError
from shoal_service.cli.model_options import ONE_PASS, BatchOptions, ModelOptions, OnePassOptions, estimator_settings
from shoal_service.cli.output import check_target, count, print_json, print_line, stderr_console

REPORT = "Report"
CHUNK_ROWS = 200
"""Rows of a chunk, whose score before learning is one value of the running score. Results do not depend on it."""
_NAMED = ("numpy", "scipy", "scikit-learn", "numba", "matplotlib")


def report(
    context: typer.Context,
    file: options.StoredPoints,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.", rich_help_panel=REPORT)
    ] = Path("report.html"),
    clusters: Annotated[
        int | None,
        typer.Option(
            "--clusters", "-n", min=1, metavar="N",
            help="Number of clusters. (default: as many as the data show)", rich_help_panel=REPORT,
        ),
    ] = None,
    resolution: Annotated[
        float | None,
        typer.Option(metavar="R", help="More clusters for a higher value; 1 is usual.", rich_help_panel=REPORT),
    ] = None,
    anomalies: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of least probable points shown.", rich_help_panel=REPORT)
    ] = 20,
    stability: Annotated[
        bool,
        typer.Option(
            "--stability/--no-stability",
            help="Measure whether two fits of half the points each agree. It costs about one more fit.",
            rich_help_panel=REPORT,
        ),
    ] = True,
    key_column: options.KeyColumn = None,
    model: ModelOptions,
    one_pass: OnePassOptions,
    batch: BatchOptions,
    reading: options.Reading,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """Cluster a file and write one self-contained HTML page about it: clusters, map, hierarchy, stability, anomalies.

    The fit is that of `shoal fit`. The page needs no network. The path of the page is printed, with --json a summary.

    Examples:

      shoal report points.csv
      shoal report points.csv --method vdp --output vdp.html
      shoal report hosts.csv --key-column host --family auto --clusters 5
    """
    _check_paths(file, output)
    settings = estimator_settings(model, one_pass, batch)
    if clusters is not None and resolution is not None:
        raise CommandError("both --clusters and --resolution were given; give one of them")
    from shoal.runtime.files import write_whole
    from shoal_service.cli.reports import ClusterChoice, facts_of, page_of, pictures_of, summary_of
    from shoal_service.wire import record_columns

    facts = facts_of(
        file,
        reading.options(CHUNK_ROWS, records=record_columns(key_column, None, None, None)),
        settings,
        streamed=model.method in ONE_PASS,
        choice=ClusterChoice(clusters, resolution),
        stability=stability,
        most_anomalies=anomalies,
    )
    write_whole(output, page_of(facts, pictures_of(facts), _command_line(context), _versions()).encode())
    if as_json:
        print_json(summary_of(facts, str(output)))
        return
    found = f"{count(facts.clustering.n_clusters, 'cluster')} of {count(facts.n_points, 'point')}"
    stderr_console().print(f"{found}; the report is written to:")
    print_line(output)


def _check_paths(file: str, output: Path) -> None:
    """Refuse before the fit what would fail after it."""
    if file == "-":
        raise CommandError("a report reads its file twice, which stdin does not allow; save the points to a file first")
    check_target(output, file)
    from shoal.plotting.figures import require_matplotlib

    try:
        require_matplotlib()
    except ImportError as error:
        raise CommandError(str(error)) from error


def _command_line(context: typer.Context) -> str:
    """The command with the options that were given, in the order of its help."""
    words: list[Any] = ["shoal", "report"]
    for parameter in context.command.params:
        source, value = context.get_parameter_source(str(parameter.name)), context.params[str(parameter.name)]
        if source is None or source.name != "COMMANDLINE":
            continue
        if parameter.param_type_name == "argument":
            words.append(value)
        elif isinstance(value, bool):
            words.append((parameter.opts if value else parameter.secondary_opts)[0])
        else:
            words += [parameter.opts[0], getattr(value, "value", value)]
    return shlex.join(map(str, words))


def _versions() -> str:
    found = [f"shoal {shoal_service.__version__}", f"Python {platform.python_version()}"]
    return ", ".join([*found, *(f"{name} {importlib.metadata.version(name)}" for name in _NAMED)])
