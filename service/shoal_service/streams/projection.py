"""A view's components in a plane, as a picture shows them."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.errors import ShapeError
from shoal_service.streams.view import PublishedView

if TYPE_CHECKING:
    from shoal.mixture import MixtureSnapshot, Plane

MOST_NUMBERS = 64_000_000
"""Most numbers in the covariances behind the ellipses of one answer, about a second. Smaller components have none."""
MOST_COMPONENTS = 10_000

Floats = npt.NDArray[np.float64]


class PlaneChoice(NamedTuple):
    """The plane that a request asks for: a known one, or two features, or else the principal plane."""

    origin: list[float] | None = None
    axes: list[list[float]] | None = None
    features: tuple[int, int] | None = None


class Projected(NamedTuple):
    """A mixture in a plane, largest component first."""

    plane: "Plane | None"
    """None where points are not places in space; means and covariances are NaN then."""
    rows: npt.NDArray[np.int64]
    """(K,) rows of the snapshot."""
    means: Floats
    """(K, 2), NaN where a mean does not exist."""
    covariances: Floats
    """(K, 2, 2), NaN where there is none, or where the covariances of so many components are too large."""


def projected(view: PublishedView, choice: PlaneChoice) -> Projected | None:
    """The components of a view in a plane. None for an empty mixture.

    Raises ShapeError for axes of another number of features, SettingError for a feature that does not exist.
    """
    from shoal.mixture import ellipses

    snapshot = view.snapshot
    if snapshot is None or snapshot.n_components == 0:
        return None
    rows = snapshot.largest_first[:MOST_COMPONENTS]
    if not snapshot.has_places:
        return Projected(None, rows, np.full((rows.size, 2), np.nan), np.full((rows.size, 2, 2), np.nan))
    plane = _plane(snapshot, choice)
    covariances = np.full((rows.size, 2, 2), np.nan)
    some = rows[: MOST_NUMBERS // plane.origin.size**2]
    covariances[: some.size] = ellipses(snapshot, plane, some)
    return Projected(plane, rows, plane.coordinates(snapshot.means[rows]), covariances)


def _plane(snapshot: "MixtureSnapshot", choice: PlaneChoice) -> "Plane":
    from shoal.mixture import Plane, feature_plane, principal_plane

    d = snapshot.location.size
    if choice.features is not None:
        return feature_plane(d, *choice.features)
    if choice.axes is None or choice.origin is None:
        return principal_plane(snapshot)
    if len(choice.origin) != d or [len(axis) for axis in choice.axes] != [d, d]:
        sizes = [len(choice.origin), *map(len, choice.axes)]
        raise ShapeError(f"origin and axes have {sizes} numbers, the stream has {d} features; send two axes of {d}")
    return Plane(np.array(choice.origin), np.array(choice.axes))
