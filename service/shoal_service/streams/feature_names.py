"""Names of the features of a stream: learnt from its first points, and the order of the columns of later ones."""

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import SettingError
from shoal_service.wire import Points, column_order

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings


def in_order(points: Points, settings: "StreamSettings | None", stream: str) -> Points:
    """The points with their columns in the order of the stream's features. Without names on either side, as they are.

    Raises FeatureNamesError for names that the stream does not have, and for missing ones.
    """
    wanted = None if settings is None else settings.feature_names
    if points.names is None or wanted is None or points.names == wanted:
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


def with_names(settings: "StreamSettings", points: Points) -> "StreamSettings | None":
    """The settings with the names of the points, if these can be names of features and the stream has none yet."""
    if points.names is None or settings.feature_names is not None:
        return None
    try:
        return settings.with_changes(feature_names=points.names)
    except SettingError:  # columns of Arrow may be called anything
        return None
