"""`shoal fit`: the library on a file, without a server."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError
from shoal_service.cli.output import count, for_people, print_json, progress_bar, stderr_console
from shoal_service.cli.tables import Row, print_component_table, print_plain_components

if TYPE_CHECKING:
    from shoal_service.cli.readers import ReadOptions

MODEL = "Model"


class Family(StrEnum):
    """Shapes that a component can have."""

    gaussian = "gaussian"
    diagonal = "diagonal"
    known_covariance = "known_covariance"


class Method(StrEnum):
    """One-pass methods."""

    default = "default"
    sva = "sva"
    sva_pm = "sva-pm"


def fit(
    file: options.Points,
    family: Annotated[
        Family,
        typer.Option(help="Full, diagonal or known covariances.", rich_help_panel=MODEL),
    ] = Family.gaussian,
    concentration: Annotated[
        float, typer.Option(help="Of the Dirichlet process: larger expects more components.", rich_help_panel=MODEL)
    ] = 1.0,
    half_life: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS", help="Forget: after so many points, a point counts half.", rich_help_panel=MODEL
        ),
    ] = None,
    method: Annotated[Method, typer.Option(help="How to learn in one pass.", rich_help_panel=MODEL)] = Method.default,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="LABELS.npy", help="Write each point's component id there (a second pass)."
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="STATE.shoal", help="Write the state there, to go on from or to restore into a server."
        ),
    ] = None,
    format_: options.Format = None,
    columns: options.Columns = None,
    key: options.Key = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    as_json: options.Json = False,
) -> None:
    """Cluster a file with the library, without a server, in one pass and bounded memory.

    Examples:

      shoal fit points.csv
      shoal fit mnist.npz --key train --family diagonal --out labels.npy
      shoal fit readings.csv --half-life 10000 --save state.shoal
    """
    from shoal_service.cli.readers import ReadOptions

    for target in (out, save):
        if target is not None and not target.absolute().parent.is_dir():
            raise CommandError(f"{target}: there is no folder {target.absolute().parent}")
    if out is not None and file == "-":
        raise CommandError("--out takes a second pass over the points, and stdin has one; save them to a file first")
    read = ReadOptions(format_, key, columns, header, delimiter)
    settings = {"family": family.value, "concentration": concentration, "half_life": half_life, "method": method.value}
    model, n_points = _learn(file, read, settings)
    if out is not None:
        _label(model, file, read, n_points, out)
    if save is not None:
        model.save(save)
    _show(model, n_points, as_json)


def _learn(file: str, read: "ReadOptions", settings: dict[str, Any]) -> tuple[Any, int]:
    from shoal import StreamingDPMixture
    from shoal_service.cli.readers import open_points

    model = StreamingDPMixture(**settings)
    done = 0
    with open_points(file, read) as points, progress_bar("fit", points) as advance:
        for chunk in points:
            model.partial_fit(chunk)
            done += len(chunk)
            advance(done)
    if not done:
        raise CommandError(f"{file} holds no points")
    return model, done


def _label(model: Any, file: str, read: "ReadOptions", n_points: int, out: Path) -> None:
    import numpy as np

    from shoal_service.cli.readers import open_points

    labels = np.empty(n_points, dtype=np.int64)
    done = 0
    with open_points(file, read) as points, progress_bar("label", points) as advance:
        for chunk in points:
            labels[done : done + len(chunk)] = model.predict(chunk)
            done += len(chunk)
            advance(done)
    with out.open("wb") as target:
        np.save(target, labels)
    stderr_console().print(f"{count(done, 'label')} written to {out}")


def _show(model: Any, n_points: int, as_json: bool) -> None:
    import numpy as np

    order = np.argsort(-model.masses_, kind="stable")
    if as_json:
        print_json(
            {
                "points": n_points,
                "components": [
                    {
                        "id": model.component_ids_[k],
                        "weight": model.weights_[k],
                        "mass": model.masses_[k],
                        "mean": model.means_[k],
                    }
                    for k in order
                ],
            }
        )
        return
    rows = [
        Row(int(model.component_ids_[k]), model.weights_[k], model.masses_[k], model.means_[k], None, None)
        for k in order
    ]
    if for_people():
        title = f"{count(len(rows), 'component')} of {count(n_points, 'point')}"
        print_component_table(title, rows, f"weight of what is new: {1.0 - float(np.sum(model.weights_)):.2g}")
    else:
        print_plain_components(rows)
