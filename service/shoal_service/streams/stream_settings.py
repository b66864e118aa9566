"""A stream's settings as people write them, held to the service's own limits."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shoal.errors import SettingError, ShapeError
from shoal_service.errors import LimitError, StreamConflictError
from shoal_service.settings import Settings
from shoal_service.streams.engines import load_engines
from shoal_service.wire import Points

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings


def read_spec(canonical: bytes) -> "StreamSettings":
    """The settings that a stream's record holds."""
    load_engines()
    from shoal.mixture import StreamSettings

    return StreamSettings.from_json(canonical)


def create_spec(values: Mapping[str, Any], limits: Settings) -> "StreamSettings":
    """Settings of a new stream from a JSON object. Raises SettingError, and LimitError past a limit of the service."""
    load_engines()
    from shoal.mixture import StreamSettings

    if "n_features" not in values:
        raise SettingError('n_features is missing; give the number of features of a point, as in {"n_features": 16}')
    defaults = {"max_components": limits.max_components, "max_state_bytes": int(limits.max_state_bytes)}
    return held_to_limits(StreamSettings.from_dict({**defaults, **values}), limits)


def change_spec(spec: "StreamSettings", values: Mapping[str, Any], limits: Settings) -> "StreamSettings":
    """The settings with those given changed; those left out stay as they are.

    Raises StreamConflictError when one of them gives a live stream its shape, SettingError and LimitError as
    `create_spec`.
    """
    from shoal.mixture import StreamSettings

    wanted = StreamSettings.from_dict({**spec.to_dict(), **values})
    refuse_other_shape(spec, wanted)
    return held_to_limits(wanted, limits)


def refuse_other_shape(spec: "StreamSettings", wanted: "StreamSettings") -> None:
    """Raise StreamConflictError when `wanted` would give the stream of `spec` another shape."""
    from shoal.mixture.settings import FIXED

    for name in FIXED:
        if getattr(spec, name) != getattr(wanted, name):
            raise StreamConflictError(
                f"{name} gives the stream its shape and cannot change while it lives (it is {_shown(spec, name)}, "
                f"{_shown(wanted, name)} was asked for); create another stream, or delete this one first"
            )


def check_points(spec: "StreamSettings", name: str, points: Points) -> None:
    """Refuse points that the learner of the stream `name` could not take: better before they are in the log.

    ShapeError (another number of features, or sparse rows to a family that takes none), OutsideDomainError.
    """
    from shoal.families import FAMILIES

    if points.n_features != spec.n_features:
        raise ShapeError(
            f"points have {points.n_features} features, stream {name!r} expects {spec.n_features}; "
            "send the columns used at creation"
        )
    domain = FAMILIES[spec.family].domain
    if points.is_sparse and not domain.sparse:
        takers = ", ".join(sorted(family for family, kind in FAMILIES.items() if kind.domain.sparse))
        raise ShapeError(
            f"points are sparse rows, stream {name!r} is of family {spec.family} and takes dense ones; send arrays, or "
            f"make a stream of counts ({takers})"
        )
    domain.check(points.x)


def held_to_limits(spec: "StreamSettings", limits: Settings) -> "StreamSettings":
    """The same settings. Raises LimitError when one is past what this service allows."""
    for name, setting in (("n_features", "max_features"), ("max_state_bytes", "max_state_bytes")):
        if getattr(spec, name) > getattr(limits, setting):
            raise LimitError(
                f"{name} is {getattr(spec, name):,}, this service allows {getattr(limits, setting):,}; "
                f"lower it, or raise the service's SHOAL_{setting.upper()}"
            )
    return spec


def _shown(spec: "StreamSettings", name: str) -> str:
    value = getattr(spec, name)
    return repr(value) if isinstance(value, str | int) else "an explicit prior"
