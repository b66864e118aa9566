"""Options of the commands that fit a file with the library, and the model that they ask for."""

from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import typer

from shoal_service.cli.exits import CommandError
from shoal_service.cli.output import print_line

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


class Missing(StrEnum):
    """What a missing value means."""

    refuse = "refuse"
    marginal = "marginal"


class OnePassOptions(NamedTuple):
    """Options of the one-pass methods."""

    half_life: Annotated[
        str | None,
        typer.Option(
            metavar="POINTS",
            help="Number of points after which a point counts half; or a time, such as 1h, by the times of the points. "
            "(default: nothing is forgotten)",
            rich_help_panel=MODEL,
        ),
    ] = None
    refine: Annotated[
        bool | None,
        typer.Option(
            "--refine/--no-refine",
            help="Refine the mixture from time to time with the last points, or not. (default: refine)",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None
    missing: Annotated[
        Missing | None,
        typer.Option(
            help="A missing value (an empty cell, null, NaN): refuse it, or score the point by its other features. "
            "(default: refuse)",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None


class BatchOptions(NamedTuple):
    """Options of the batch methods."""

    truncation: Annotated[
        int | None,
        typer.Option(
            metavar="COMPONENTS",
            help="Number of components, for tsb to cfsd and blocked-gibbs. (default: depends on the number of points)",
            rich_help_panel=MODEL,
        ),
    ] = None
    n_init: Annotated[
        int | None,
        typer.Option(
            metavar="STARTS",
            help="Number of fits from different starts. The one with the best bound is kept.",
            rich_help_panel=MODEL,
        ),
    ] = None
    expectations: Annotated[
        str | None,
        typer.Option(
            metavar="HOW", help="For ctsb, o-ctsb and cfsd: taylor or exact. (default: taylor)", rich_help_panel=MODEL
        ),
    ] = None
    random_state: Annotated[
        int | None,
        typer.Option(min=0, metavar="SEED", help="Random seed of a batch method. (default: 0)", rich_help_panel=MODEL),
    ] = None


def _print_families(asked: bool) -> None:
    """Print every family of the registry: its name, and what it is."""
    if asked:
        from shoal.families import FAMILIES

        for name, family in FAMILIES.items():
            print_line(name, getattr(family, "description", None) or (family.__doc__ or "").partition("\n")[0])
        raise typer.Exit


class ModelOptions(NamedTuple):
    """The model."""

    family: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Family of distributions of the components. auto: chosen from the first points. Families by column: "
            '\'{"cpu": "gaussian", "region": "categorical"}\'. (default: Gaussians with full covariance)',
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None
    list_families: Annotated[
        bool,
        typer.Option(
            "--list-families",
            callback=_print_families,
            is_eager=True,
            help="Print the families and exit.",
            rich_help_panel=MODEL,
        ),
    ] = False
    concentration: Annotated[
        float,
        typer.Option(
            help="Concentration of the Dirichlet process. A larger value expects more components.",
            rich_help_panel=MODEL,
        ),
    ] = 1.0
    method: Annotated[
        Method,
        typer.Option(
            metavar="METHOD",
            help="In one pass, like a stream: default, sva, sva-pm. With all points in memory: vdp, fast-vdp, "
            "tsb, o-tsb, ctsb, o-ctsb, fsd, cfsd, tfv, gibbs, blocked-gibbs, split-merge, search.",
            rich_help_panel=MODEL,
        ),
    ] = Method.default


def estimator_settings(model: ModelOptions, one_pass: OnePassOptions, batch: BatchOptions) -> dict[str, Any]:
    """Parameters of `StreamingDPMixture` for a one-pass method, of `DPMixture` for the others.

    Raises CommandError for an option that the method would ignore.
    """
    method = model.method
    settings: dict[str, Any] = {"concentration": model.concentration, "method": method.value}
    if model.family is not None:
        settings["family"] = model.family
    if method in ONE_PASS:
        named = {f"--{name.replace('_', '-')}": value for name, value in batch._asdict().items()}
        _refuse(method, named, "batch methods, such as vdp")
        if method is not Method.default:
            _refuse(method, {"--refine": one_pass.refine or None}, "--method default")
        refinement = None if one_pass.refine is False else "auto"
        missing = (one_pass.missing or Missing.refuse).value
        half_life = _points_or_time(one_pass.half_life)
        return settings | {"half_life": half_life, "refinement": refinement, "missing": missing}
    streamed = {"--half-life": one_pass.half_life, "--refine": one_pass.refine, "--missing": one_pass.missing}
    _refuse(method, streamed, f"one-pass methods ({', '.join(ONE_PASS)})")
    return (
        settings | {"random_state": 0} | {name: value for name, value in batch._asdict().items() if value is not None}
    )


def _points_or_time(half_life: str | None) -> float | str | None:
    """A half-life in points as a number. The library checks others."""
    try:
        return None if half_life is None else float(half_life)
    except ValueError:
        return half_life


def _refuse(method: Method, given: dict[str, Any], meant_for: str) -> None:
    """Raise CommandError for the first option that has a value, because the method would ignore it."""
    for option, value in given.items():
        if value is not None:
            raise CommandError(f"{option} is for {meant_for}, not for --method {method.value}; remove it")
