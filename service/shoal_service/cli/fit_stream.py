"""One-pass methods of `shoal fit`: the file as a stream, in bounded memory."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal_service.cli.exits import CommandError
from shoal_service.cli.output import count, for_people, print_json, progress_bar, save_labels
from shoal_service.cli.tables import Row, print_component_table, print_plain_components

if TYPE_CHECKING:
    from shoal.points.arrays import Array
    from shoal_service.cli.readers import Chunk, PointFile, ReadOptions


def fit_stream(
    file: str, read: "ReadOptions", settings: dict[str, Any], out: Path | None, save: Path | None, as_json: bool
) -> None:
    """Learn the file in one pass, write labels and state, and show the components."""
    if out is not None and file == "-":
        raise CommandError(
            "--out needs a second pass over the points, which stdin does not allow; save them to a file first"
        )
    model, n_points = learn_file(file, read, settings)
    if out is not None:
        _label(model, file, read, n_points, out)
    if save is not None:
        model.save(save)
    _show(model, n_points, as_json)


def learn_file(
    file: str,
    read: "ReadOptions",
    settings: dict[str, Any],
    *,
    before: Callable[[Any, Any], None] = lambda model, x: None,
    most_rows: int | None = None,
) -> tuple[Any, int]:
    """Learn a file in one pass. Gives a `StreamingDPMixture` and the number of points. Raises CommandError.

    `before` is called with the model and each chunk but the first, before it is learnt. A chunk has at most `most_rows`
    rows; None: as many as the file's format gives. Where the half-life is a time, each point needs one.
    """
    from shoal import StreamingDPMixture

    model = StreamingDPMixture(**settings)
    done = 0
    rows = open_rows_of_model(file, read, model.family, holes=model.missing == "marginal")
    with rows as points, progress_bar("fit", points) as advance:
        for whole in points.chunks():
            if not done:
                model.set_params(family=family_of_columns(model.family, whole.names))
            times = _times(whole, points.name) if isinstance(model.half_life, str) else None
            step = most_rows or len(whole.points)
            for part in (slice(start, start + step) for start in range(0, len(whole.points), step)):
                x = whole.points[part]
                if done:
                    before(model, x)
                learn = model.partial_fit if done else model.fit  # fit waits for kernels: results do not depend on time
                learn(x, times=None if times is None else times[part])
                done += len(x)
                advance(done)
    if not done:
        raise CommandError(f"{'stdin' if file == '-' else file} has no points")
    return model, done


def open_rows_of_model(file: str, read: "ReadOptions", family: Any, *, holes: bool = False) -> "PointFile":
    """Open a file of points. Columns of categories, by the family, may hold texts. `holes`: values may be missing."""
    from shoal_service.cli.readers import BadRows, Categories, open_points

    name = "stdin" if file == "-" else file
    categories = Categories.of({"family": family})
    return open_points(file, read, BadRows(name, takes_holes=lambda: holes, categories=lambda: categories))


def family_of_columns(family: Any, names: "Sequence[str] | None") -> Any:
    """A family that is a mapping from names of columns, with their numbers. Raises SettingError."""
    from shoal.families import known_family

    return known_family(family, names)


def _times(chunk: "Chunk", name: str) -> "Array":
    """(n,) the times of a chunk in seconds since 1970. Raises CommandError for points without a time."""
    import numpy as np

    from shoal_service.wire.record_fields import checked_fields

    fields = checked_fields(len(chunk.points), times=chunk.fields.times)
    if fields is None or fields.times is None:
        raise CommandError(
            f"{name} has no times, by which a point is to count half; name their column with --time-column, or give "
            "--half-life as a number of points"
        )
    missing = np.flatnonzero(np.isnan(fields.times))
    if missing.size:
        raise CommandError(f"{name}, {chunk.place(int(missing[0]))}, has no time; fix or drop the row")
    return fields.times


def _label(model: Any, file: str, read: "ReadOptions", n_points: int, out: Path) -> None:
    import numpy as np

    labels = np.empty(n_points, dtype=np.int64)
    done = 0
    rows = open_rows_of_model(file, read, model.family, holes=model.missing == "marginal")
    with rows as points, progress_bar("label", points) as advance:
        for chunk in points:
            labels[done : done + len(chunk)] = model.predict(chunk)
            done += len(chunk)
            advance(done)
    save_labels(labels, out)


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
