"""Names of features in a batch: their checks, and the order of its columns."""

from collections.abc import Iterable, Sequence

from shoal.errors import NotFiniteError, NotNumericError, counted, did_you_mean
from shoal_service.errors import FeatureNamesError
from shoal_service.wire.points import place_of

MAX_NAME = 200
"""Most characters of a name. The library has the same limit."""
SHOWN = 20
"""Most names in a message."""


def checked_names(names: object, n_features: int) -> tuple[str, ...] | None:
    """Check the names that a body gives for its columns. None where it gives none. Raises FeatureNamesError."""
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FeatureNamesError('feature_names is not a list of texts; send one name a column, such as ["cpu", "mem"]')
    if len(names) != n_features:
        raise FeatureNamesError(
            f"feature_names holds {counted(len(names), 'name')} for {counted(n_features, 'column')}; send one a column"
        )
    for name in names:
        if not 1 <= len(name) <= MAX_NAME:
            raise FeatureNamesError(f"the name {name[:60]!r} is not usable; send names of 1 to {MAX_NAME} characters")
    refuse_repeated(names)
    return tuple(names)


class errors_naming_features:  # noqa: N801 - used as a function; a generator takes five times as long
    """Context in which an error about one value names the feature instead of the index of its column."""

    def __init__(self, names: object) -> None:
        """`names`: one a column, or None for columns without names."""
        self._names = names

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise the error with the name of the feature, if it is about a value of one that has a name."""
        if not isinstance(error, NotFiniteError | NotNumericError):
            return
        names, column = self._names, error.column
        if column is None or not isinstance(names, list | tuple) or column >= len(names):
            return
        before, _, after = str(error).rpartition(place_of(column))  # the last one: a text in the body may say the same
        raise type(error)(f"{before}{place_of(str(names[column]))}{after}", row=error.row) from None


def refuse_repeated(names: Sequence[str]) -> None:
    """Raise FeatureNamesError for a name that two columns have."""
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise FeatureNamesError(f"two columns have the name {twice[:60]!r}; send distinct names")


def column_order(names: Sequence[str], wanted: Sequence[str], of: str, row: int | None = None) -> list[int]:
    """The column of each wanted name. Raises FeatureNamesError, which tells all names that are unknown or missing.

    `of`: what has the wanted names, for the message. `row`: the row that has the given ones, if it is one row.
    """
    places = {name: i for i, name in enumerate(names)}
    unknown = [name for name in names if name not in set(wanted)]
    missing = [name for name in wanted if name not in places]
    if unknown or missing:
        who = "the points have" if row is None else f"row {row} has"
        wrong = [f"no feature {_listed(missing)}"] if missing else []
        wrong += [f"the unknown feature {_listed(unknown)}"] if unknown else []
        advice = did_you_mean(unknown[0], missing) if unknown else ""
        raise FeatureNamesError(
            f"{who} {' and '.join(wrong)}; {advice}{of} has the features {_listed(wanted)}", row=row
        )
    refuse_repeated(names)
    return [places[name] for name in wanted]


def _listed(names: Iterable[str]) -> str:
    shown = [repr(name[:60]) for name in names]
    return ", ".join(shown[:SHOWN]) + (f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")
