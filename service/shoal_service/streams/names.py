"""Names of the features of a stream, and of the levels of its categories.

Both are learnt from points. Later points get their columns in the order of the features, and numbers for the levels.
"""

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from shoal.errors import NotNumericError, SettingError, ShapeError, counted
from shoal.points.levels import extended, numbers_of
from shoal_service.wire import Points, column_order

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings

_ADDED = "added_level_names"
"""What an entry holds in the place of all settings. Earlier versions logged all settings."""


def in_order(points: Points, settings: "StreamSettings | None", stream: str) -> Points:
    """The points with their columns in the order of the stream's features. Without names on either side, as they are.

    Raises FeatureNamesError for names that the stream does not have, and for missing ones. Raises ShapeError for texts
    in points with another number of features, because their columns are not those of the stream.
    """
    wanted = None if settings is None else settings.feature_names
    if points.names is None or wanted is None or points.names == wanted:
        if settings is not None and points.texts is not None:
            check_width(points, settings, stream)
        return points
    order = column_order(points.names, wanted, f"stream {stream!r}")
    x: Any = points.x[:, order]
    if points.is_sparse:
        x.sort_indices()
    else:
        x = np.ascontiguousarray(x)
    by_column = dict(points.texts or ())
    texts = tuple((new, by_column[old]) for new, old in enumerate(order) if old in by_column)
    return points._replace(x=x, names=wanted, texts=texts or None)


def check_width(points: Points, settings: "StreamSettings", stream: str) -> None:
    """Raise ShapeError for another number of features than that of the stream."""
    if points.n_features != settings.n_features:
        raise ShapeError(
            f"points have {counted(points.n_features, 'feature')}, stream {stream!r} expects {settings.n_features}; "
            "send the columns used at creation"
        )


def with_names(settings: "StreamSettings", points: Points) -> "StreamSettings | None":
    """The settings with the names of the points, if these can be names of features and the stream has none yet."""
    if points.names is None or settings.feature_names is not None:
        return None
    try:
        return settings.with_changes(feature_names=points.names)
    except SettingError:  # columns of Arrow may be called anything
        return None


def as_learnt(points: Points, settings: "StreamSettings | None", stream: str) -> Points:
    """The points with their columns in the order of the stream's features, and level numbers in the place of texts.

    A text without a name is a level that nobody has seen. Raises FeatureNamesError, NotNumericError.
    """
    ordered = in_order(points, settings, stream)
    return ordered if settings is None else with_level_numbers(ordered, settings)


def as_appended(points: Points, settings: "StreamSettings", stream: str) -> Points | None:
    """As `as_learnt`, for a batch to be stored. None where a level of it has no name yet."""
    ordered = in_order(points, settings, stream)
    if ordered.texts is None:
        return ordered
    return None if with_new_levels(settings, ordered) else with_level_numbers(ordered, settings)


def with_new_levels(settings: "StreamSettings", points: Points) -> "StreamSettings | None":
    """The settings with names for the new levels in points whose columns are in order; None where none is new.

    Raises NotNumericError for texts in a column that holds no categories.
    """
    names = dict(settings.level_names or {})
    room = settings.level_names_budget_bytes / max(1, len(settings.category_columns))
    for column, texts in points.texts or ():
        if column not in settings.category_columns:
            name = column if settings.feature_names is None else settings.feature_names[column]
            raise NotNumericError(
                f"row 0 holds a text in column {name!r}, which is none of categories; send numbers, or create a stream "
                "with the family categorical for it",
                row=0,
            )
        names[column] = extended(names.get(column, ()), texts, room)
    names = {column: known for column, known in names.items() if known}
    return None if names == (settings.level_names or {}) else settings.with_changes(level_names=names)


def added_names(before: "StreamSettings", after: "StreamSettings") -> bytes:
    """The payload of an entry that adds names of levels: for each column the new ones, and how many there were."""
    known, columns = before.level_names or {}, {}
    for column, names in (after.level_names or {}).items():
        n = len(known.get(column, ()))
        if len(names) > n:
            columns[str(column)] = {"behind": n, "names": names[n:]}
    return msgspec.json.encode({_ADDED: columns})


def recorded_settings(payload: bytes, in_force: "StreamSettings", record: bytes) -> bytes | None:
    """The settings that an entry gave the record of a stream: those that it holds; or for names of levels the record
    itself, where these are its last ones and all other settings are those in force. None where neither holds."""
    added = msgspec.json.decode(payload).get(_ADDED)
    if added is None:
        return payload
    recorded = type(in_force).from_json(record)
    names = recorded.level_names or {}
    last = all(list(names.get(int(key), ())[new["behind"] :]) == new["names"] for key, new in added.items())
    same = recorded.with_changes(level_names=in_force.level_names) == in_force
    return record if last and same else None


def settings_after(payload: bytes, before: "StreamSettings") -> "StreamSettings":
    """The settings after an entry, which holds them all, or names of levels that are added to those before.

    Raises SettingError where the names do not follow those before.
    """
    added = msgspec.json.decode(payload).get(_ADDED)
    if added is None:
        return type(before).from_json(payload)
    names = dict(before.level_names or {})
    for key, new in added.items():
        known = names.get(int(key), ())
        if len(known) != new["behind"]:
            raise SettingError(
                f"the names of new levels of column {key} follow {new['behind']} names, and the stream has {len(known)}"
            )
        names[int(key)] = (*known, *new["names"])
    return before.with_changes(level_names=names)


def with_level_numbers(points: Points, settings: "StreamSettings") -> Points:
    """The points with the level numbers that the settings give to texts. Raises as `with_new_levels`."""
    if points.texts is None:
        return points
    with_new_levels(settings, points)  # refuses texts of other columns
    x = np.array(points.x, dtype=np.float64)
    for column, texts in points.texts:
        numbers = numbers_of(texts, (settings.level_names or {}).get(column, ()))
        present = ~np.isnan(x[:, column])
        x[present, column] = numbers[x[present, column].astype(np.int64)]
    return points._replace(x=x, texts=None)
