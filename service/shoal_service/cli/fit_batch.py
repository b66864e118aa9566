"""Batch methods of `shoal fit`: all points at once, with the bound that the fit reaches."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from shoal_service.cli.exits import CommandError
from shoal_service.cli.fit_stream import family_of_columns, open_rows_of_model
from shoal_service.cli.output import (
    count,
    for_people,
    print_json,
    progress_bar,
    rounds_bar,
    save_labels,
    stderr_console,
)
from shoal_service.cli.tables import Row, print_component_table, print_plain_components

if TYPE_CHECKING:
    from shoal_service.cli.readers import ReadOptions

BOUND_OF = {
    "vdp": "dirichlet-process",
    "fast-vdp": "dirichlet-process",
    "tsb": "truncated-sticks",
    "o-tsb": "truncated-sticks",
    "ctsb": "truncated-sticks",
    "o-ctsb": "truncated-sticks",
    "fsd": "symmetric-dirichlet",
    "cfsd": "symmetric-dirichlet",
    "tfv": "dirichlet-process",
    "gibbs": "dirichlet-process",
    "blocked-gibbs": "truncated-sticks",
    "split-merge": "dirichlet-process",
    "search": "dirichlet-process",
}
"""Every batch method, with the model whose evidence it bounds."""

_SAMPLERS = ("gibbs", "blocked-gibbs", "split-merge")
_NEVER_CONVERGE = (*_SAMPLERS, "tfv")

_MODELS = {
    "dirichlet-process": "the Dirichlet process",
    "truncated-sticks": "stick-breaking truncated at {truncation}",
    "symmetric-dirichlet": "a symmetric Dirichlet over {truncation}",
}


def fit_batch(file: str, read: "ReadOptions", settings: dict[str, Any], out: Path | None, as_json: bool) -> None:
    """Read the whole file, fit a `DPMixture` with these settings, write the labels, and show the result."""
    model = fit_file(file, read, settings)
    if out is not None:
        save_labels(model.labels_, out)
    show_fit(model, as_json)


def fit_file(file: str, read: "ReadOptions", settings: dict[str, Any]) -> Any:
    """A `DPMixture` with these settings, fitted to the whole file. Raises CommandError, SettingError."""
    from shoal import DPMixture
    from shoal.estimators.batch_engines import check_family, check_positive, check_starts, checked_settings
    from shoal.families.product import is_text_of_product

    method = settings["method"]
    if "family" in settings and not is_text_of_product(settings["family"]):  # whose columns the file may name
        check_family(method, settings["family"])
    check_positive("concentration", settings["concentration"])  # before a long read
    checked_settings(method, {name: settings[name] for name in ("truncation", "expectations") if name in settings})
    check_starts(method, settings.get("n_init", 1))
    points, family = _read(file, read, settings.get("family"))
    if family is not None:
        settings = settings | {"family": family}
    with rounds_bar(method) as show:
        return DPMixture(**settings, callback=show).fit(points)


def _read(file: str, read: "ReadOptions", family: Any) -> tuple[Any, Any]:
    """Read all points (N, D), and the family with numbers of columns in the place of their names."""
    from shoal.points.rows import stacked

    chunks, names, done = [], None, 0
    with open_rows_of_model(file, read, family) as points, progress_bar("read", points) as advance:
        for chunk in points.chunks():
            chunks.append(chunk.points)
            names = chunk.names
            done += len(chunk.points)
            advance(done)
        if not done:
            raise CommandError(f"{'stdin' if file == '-' else file} has no points")
        return stacked(chunks), family_of_columns(family, names)


def show_fit(model: Any, as_json: bool) -> None:
    """Show the components that are the best of some point. The others, which truncated models have, are counted."""
    used = int((model.sizes_ > 0).sum())
    rows = [Row(k, model.weights_[k], model.masses_[k], model.means_[k], None, None) for k in range(used)]
    if as_json:
        print_json(_document(model, rows))
    elif for_people():
        title = f"{count(used, 'component')} of {count(_points(model), 'point')}, by {model.method}"
        rest = f"weight of all others: {abs(round(1.0 - float(model.weights_[:used].sum()), 9)):.2g}"
        print_component_table(title, rows, rest)
        typer.echo(
            f"{bound_of_fit(model)}; {rounds_of_fit(model)}"
        )  # not the footer of the table, which is wrapped at its width
    else:
        print_plain_components(rows)
        stderr_console().print(f"{bound_of_fit(model)}; {rounds_of_fit(model)}", soft_wrap=True)


def _document(model: Any, rows: list[Row]) -> dict[str, Any]:
    return {
        "points": _points(model),
        "method": model.method,
        "bound": {"nats": model.elbo_, "exact": model.elbo_is_exact_, "evidence_of": BOUND_OF[model.method]},
        "rounds": model.n_iter_,
        "converged": None if model.method in _NEVER_CONVERGE else model.converged_,
        "unused_components": len(model.weights_) - len(rows),
        "components": [{"id": row.id, "weight": row.weight, "mass": row.mass, "mean": row.mean} for row in rows],
    }


def _points(model: Any) -> int:
    return int(model.sizes_.sum())


def bound_of_fit(model: Any) -> str:
    """`bound on the log evidence of the Dirichlet process: -2,547.23 nats, exact`."""
    truncation = count(getattr(model, "truncation_", len(model.weights_)), "component")
    evidence = _MODELS[BOUND_OF[model.method]].format(truncation=truncation)
    kind = "exact" if model.elbo_is_exact_ else "approximate (a Taylor value: it may exceed the evidence)"
    return f"bound on the log evidence of {evidence}: {model.elbo_:,.2f} nats, {kind}"


def rounds_of_fit(model: Any) -> str:
    """`12 rounds, converged`."""
    if model.method in _SAMPLERS:
        return f"{count(model.n_iter_, 'sweep')}, the best partition kept"
    if model.method == "tfv":
        return f"{count(model.n_iter_, 'pass', 'passes')} of a stochastic gradient"
    if model.method == "search":
        rest = "" if model.converged_ else ", the last ones greedily"
        return f"{count(model.n_iter_, 'hypothesis', 'hypotheses')} expanded{rest}"
    return f"{count(model.n_iter_, 'round')}, {'converged' if model.converged_ else 'not converged'}"
