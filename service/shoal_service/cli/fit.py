"""The command `shoal fit`: the library on a file, without a server. Batch methods are in `fit_batch`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError
from shoal_service.cli.fit_batch import fit_batch
from shoal_service.cli.output import count, for_people, print_json, print_line, progress_bar, stderr_console
from shoal_service.cli.tables import Row, print_component_table, print_plain_components

if TYPE_CHECKING:
    from shoal_service.cli.readers import ReadOptions

MODEL = "Model"


class Method(StrEnum):
    """Methods: the first three learn in one pass, like a stream; the others from all points at once."""

    default = "default"
    sva = "sva"
    sva_pm = "sva-pm"
    vdp = "vdp"
    fast_vdp = "fast-vdp"
    tsb = "tsb"
    o_tsb = "o-tsb"
    ctsb = "ctsb"
    o_ctsb = "o-ctsb"
    fsd = "fsd"
    cfsd = "cfsd"
    tfv = "tfv"
    gibbs = "gibbs"
    blocked_gibbs = "blocked-gibbs"
    split_merge = "split-merge"
    search = "search"


ONE_PASS = (Method.default, Method.sva, Method.sva_pm)


def _print_families(asked: bool) -> None:
    """Print every family of the registry: its name, and what it is."""
    if asked:
        from shoal.families import FAMILIES

        for name, family in FAMILIES.items():
            print_line(name, getattr(family, "description", None) or (family.__doc__ or "").partition("\n")[0])
        raise typer.Exit


def fit(
    file: options.Points,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Family of distributions of the components. (default: Gaussians with full covariance)",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None,
    list_families: Annotated[
        bool,
        typer.Option(
            "--list-families",
            callback=_print_families,
            is_eager=True,
            help="Print the families and exit.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    concentration: Annotated[
        float,
        typer.Option(
            help="Concentration of the Dirichlet process. A larger value expects more components.",
            rich_help_panel=MODEL,
        ),
    ] = 1.0,
    half_life: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            help="Number of points after which a point counts half. (default: nothing is forgotten)",
            rich_help_panel=MODEL,
        ),
    ] = None,
    refine: Annotated[
        bool | None,
        typer.Option(
            "--refine/--no-refine",
            help="Refine the mixture from time to time with the last points, or not. (default: refine)",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        Method,
        typer.Option(
            metavar="METHOD",
            help="In one pass, like a stream: default, sva, sva-pm. With all points in memory: vdp, fast-vdp, "
            "tsb, o-tsb, ctsb, o-ctsb, fsd, cfsd, tfv, gibbs, blocked-gibbs, split-merge, search.",
            rich_help_panel=MODEL,
        ),
    ] = Method.default,
    truncation: Annotated[
        int | None,
        typer.Option(
            metavar="COMPONENTS",
            help="Number of components, for tsb to cfsd and blocked-gibbs. (default: depends on the number of points)",
            rich_help_panel=MODEL,
        ),
    ] = None,
    n_init: Annotated[
        int | None,
        typer.Option(
            metavar="STARTS",
            help="Number of fits from different starts. The one with the best bound is kept.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    expectations: Annotated[
        str | None,
        typer.Option(
            metavar="HOW", help="For ctsb, o-ctsb and cfsd: taylor or exact. (default: taylor)", rich_help_panel=MODEL
        ),
    ] = None,
    random_state: Annotated[
        int | None,
        typer.Option(min=0, metavar="SEED", help="Random seed of a batch method. (default: 0)", rich_help_panel=MODEL),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="LABELS.npy", help="Write the component id of each point to this file."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="STATE.shoal",
            help="Write the state to this file, to load it later or to restore it into a server.",
        ),
    ] = None,
    format_: options.Format = None,
    columns: options.Columns = None,
    key: options.Key = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    features: options.Features = None,
    as_json: options.Json = False,
) -> None:
    """Cluster a file without a server: in one pass with bounded memory, or with a batch method.

    Examples:

      shoal fit points.csv
      shoal fit points.csv --method vdp --json
      shoal fit mnist.npz --key train --family diagonal --out labels.npy
      shoal fit readings.csv --half-life 10000 --save state.shoal
    """
    from shoal_service.cli.readers import ReadOptions

    for target in (out, save):
        if target is not None and not target.absolute().parent.is_dir():
            raise CommandError(f"cannot write {target}: the folder {target.absolute().parent} does not exist")
    read = ReadOptions(format_, key, columns, header, delimiter, features=lambda: features)
    settings: dict[str, Any] = {"concentration": concentration, "method": method.value}
    if family is not None:
        settings["family"] = family
    batch = {"truncation": truncation, "n_init": n_init, "expectations": expectations, "random_state": random_state}
    if method in ONE_PASS:
        named = {f"--{name.replace('_', '-')}": value for name, value in batch.items()}
        _refuse(method, named, "batch methods, such as vdp")
        if method is not Method.default:
            _refuse(method, {"--refine": refine or None}, "--method default")
        settings |= {"half_life": half_life, "refinement": None if refine is False else "auto"}
        _fit_stream(file, read, settings, out, save, as_json)
        return
    if save is not None:
        raise CommandError(
            f"--save writes the state of a stream, which --method {method.value} does not have; remove it (--out "
            f"writes the labels), or choose a one-pass method ({', '.join(ONE_PASS)})"
        )
    streamed = {"--half-life": half_life, "--refine": refine}
    _refuse(method, streamed, f"one-pass methods ({', '.join(ONE_PASS)})")
    given = {name: value for name, value in batch.items() if value is not None}
    fit_batch(file, read, settings | {"random_state": 0} | given, out, as_json)


def _refuse(method: Method, given: dict[str, Any], meant_for: str) -> None:
    """Raise CommandError for the first option that has a value, because the method would ignore it."""
    for option, value in given.items():
        if value is not None:
            raise CommandError(f"{option} is for {meant_for}, not for --method {method.value}; remove it")


def _fit_stream(
    file: str, read: "ReadOptions", settings: dict[str, Any], out: Path | None, save: Path | None, as_json: bool
) -> None:
    if out is not None and file == "-":
        raise CommandError(
            "--out needs a second pass over the points, which stdin does not allow; save them to a file first"
        )
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
            (model.partial_fit if done else model.fit)(
                chunk
            )  # fit waits for kernels, so that results do not depend on timing
            done += len(chunk)
            advance(done)
    if not done:
        raise CommandError(f"{file} has no points")
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
        print_component_table(title, rows, f"weight of new components: {1.0 - float(np.sum(model.weights_)):.2g}")
    else:
        print_plain_components(rows)
