"""The command `shoal predict`."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.output import check_target, print_line, progress_bar, save_labels, stderr_console

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shoal_service.cli.readers import PointFile
    from shoal_service.client import Client, Predictions


class Level(StrEnum):
    """Kind of group that a point is assigned to."""

    COMPONENT = "component"
    CLUSTER = "cluster"


def predict(
    file: options.Points,
    *,
    server: options.Server,
    min_offset: options.MinOffset = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Points per request.")] = 1000,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="LABELS.npy",
            help="Write the component ids (int64) to this file, and print no predictions.",
        ),
    ] = None,
    level: Annotated[
        Level, typer.Option("--level", help="cluster: print also the cluster of each point; with --out write these.")
    ] = Level.COMPONENT,
    reading: options.Reading,
    as_json: options.Json = False,
) -> None:
    """Predict the component and the novelty of points, without learning from them.

    Prints one tab-separated line per point: component, log density in nats,
    and novelty, the probability that it belongs to no existing component.
    With --level cluster, the cluster comes last.
    --json prints one object per line, with the responsibilities.

    Examples:

      shoal predict new.csv --columns x,y
      shoal predict test.npy --out labels.npy
      tail -f readings.csv | shoal predict - --batch-size 1 --json
    """
    from shoal_service.cli.readers import BadRows, open_points

    if out is not None:
        check_target(out, file)
    with (
        server.connect() as client,
        open_points(
            file,
            reading.options(min(batch_size, 1000), lambda: server.n_features(client)),
            BadRows(
                "stdin" if file == "-" else file,
                takes_holes=lambda: server.takes_holes(client),
                categories=lambda: server.categories(client),
            ),
        ) as points,
    ):
        server.expect_stream(client)
        quiet = out is None and sys.stdout.isatty()
        offset = server.offset_to_await(client, min_offset)
        answers = _answers(client, points, batch_size, offset, quiet, level)
        if out is not None:
            _save_labels(answers, out)
        else:
            names = "component", "log_density", "novelty", *(("cluster",) if level is Level.CLUSTER else ())
            if not _print(answers, None if as_json else names):
                stderr_console().print("the file has no points")


def _answers(
    client: "Client", points: "PointFile", batch_size: int, min_offset: int | None, quiet: bool, level: Level
) -> "Iterator[Predictions]":
    """Predictions in the order of the points, one request at a time."""
    from shoal_service.client import Records

    done = 0
    with progress_bar("predict", points, quiet=quiet) as advance:
        for chunk in points.chunks():
            for start in range(0, len(chunk.points), batch_size):
                batch = Records(chunk.points[start : start + batch_size], feature_names=chunk.names)
                answer = client.predict(batch, min_offset=min_offset, level=level.value, holes=True)
                done += len(answer)
                advance(done)
                yield answer


def _print(answers: "Iterator[Predictions]", names: "Sequence[str] | None") -> bool:
    """Print the answers as a table with these names above, which an empty one has too; as JSON if None. Gives whether
    there was an answer.
    """
    n = -1
    for n, answer in enumerate(answers):
        if not n and names:
            print_line(*names)
        for i in range(len(answer)):
            if names is None:
                typer.echo(json.dumps(_as_dict(answer, i)))
            else:
                cluster = () if answer.clusters is None else (answer.clusters[i],)
                numbers = repr(float(answer.log_density[i])), repr(float(answer.novelty[i]))
                print_line(answer.components[i], *numbers, *cluster)
        sys.stdout.flush()  # so that a reader of the output sees each batch at once
    if n < 0 and names:
        print_line(*names)
    return n >= 0


def _as_dict(answer: "Predictions", i: int) -> dict[str, Any]:
    kept = answer.responsibility_ids[i] >= 0
    pairs = zip(answer.responsibility_ids[i][kept], answer.responsibilities[i][kept], strict=True)
    cluster = {} if answer.clusters is None else {"cluster": int(answer.clusters[i])}
    return {
        **cluster,
        "component": int(answer.components[i]),
        "log_density": float(answer.log_density[i]),
        "novelty": float(answer.novelty[i]),
        "responsibilities": [{"id": int(k), "p": float(p)} for k, p in pairs],
    }


def _save_labels(answers: "Iterator[Predictions]", out: Path) -> None:
    import numpy as np

    ids = (answer.components if answer.clusters is None else answer.clusters for answer in answers)
    save_labels(np.concatenate([np.empty(0, dtype=np.int64), *ids]), out)
