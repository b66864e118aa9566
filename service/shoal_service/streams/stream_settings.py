"""Settings of a stream: read from JSON, changed, and checked against the limits of the service."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shoal.errors import SettingError, ShapeError, counted
from shoal.points.levels import extends
from shoal_service.errors import LimitError, StreamConflictError
from shoal_service.settings import Settings
from shoal_service.streams.engines import load_engines
from shoal_service.streams.names import check_width
from shoal_service.wire import Points

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings


def read_settings(canonical: bytes) -> "StreamSettings":
    """The settings in a stream's record."""
    load_engines()
    from shoal.mixture import StreamSettings

    return StreamSettings.from_json(canonical)


def new_settings(values: Mapping[str, Any], limits: Settings) -> "StreamSettings":
    """Settings of a new stream from a JSON object. Raises SettingError, and LimitError above a limit of the service.

    Names of features may also come from a mapping of them to families, and their number from the names. The family is
    automatic by default, if the other settings permit this.
    """
    load_engines()
    from shoal.families import names_given
    from shoal.mixture import StreamSettings

    names = names_given(values.get("family"))
    if names and values.get("feature_names") is None:
        if (width := values.get("n_features", len(names))) != len(names):
            raise SettingError(
                f"family names {counted(len(names), 'column')}, and n_features is {width!r:.20}; name each column"
            )
        values = {**values, "feature_names": names}
    if "n_features" not in values and isinstance(values.get("feature_names"), list):
        values = {**values, "n_features": len(values["feature_names"])}
    if "n_features" not in values:
        raise SettingError('n_features is missing; give the number of features of a point, as in {"n_features": 16}')
    defaults = {
        "max_components": limits.max_components,
        "max_state_bytes": int(limits.max_state_bytes),
        "window": min(StreamSettings.window, limits.max_window),
        "window_bytes": min(StreamSettings.window_bytes, int(limits.max_window_bytes)),
    }
    if values.get("family") is None:
        values = {**values, "family": _default_family(values)}
    settings = StreamSettings.from_dict({**defaults, **values})
    _refuse_unused_hyperparameters(settings, values.get("prior"))
    _refuse_undecided_family(settings)
    return within_limits(settings, limits)


def _refuse_undecided_family(settings: "StreamSettings") -> None:
    """Refuse a family by name that is said to be automatic and not chosen yet: the warm-up of such a stream begins with
    a family of its own.
    """
    from shoal.mixture import AUTO_FAMILY

    if settings.undecided and settings.family != replace(settings, family=AUTO_FAMILY).family:
        raise SettingError(
            f"family is {settings.family!r}, and family_requested is {AUTO_FAMILY!r}; leave family_requested out, or "
            f"give {AUTO_FAMILY!r} as the family"
        )


def _default_family(values: Mapping[str, Any]) -> str:
    """The family of a new stream that names none: automatic, or the library's default with a setting that needs a
    family by name."""
    from shoal.mixture import AUTO_FAMILY, StreamSettings

    learns_prior = values.get("prior") in (None, "auto")
    return AUTO_FAMILY if learns_prior and values.get("missing") != "marginal" else StreamSettings.family


def _refuse_unused_hyperparameters(settings: "StreamSettings", given: Any) -> None:
    """Refuse what a family has only in settings that an earlier version stored, as it would do nothing."""
    known = settings.to_dict()["prior"]
    if isinstance(given, Mapping) and isinstance(known, Mapping):
        for name in given:
            if name not in known:
                accepted = ", ".join(known)
                raise SettingError(
                    f"prior has {name!r}, which the family {settings.family!r} does not use; it accepts {accepted}"
                )


def changed_settings(settings: "StreamSettings", values: Mapping[str, Any], limits: Settings) -> "StreamSettings":
    """The settings with the given values changed. The others stay as they are.

    Raises StreamConflictError for a setting that is fixed while the stream lives, SettingError and LimitError as
    `new_settings`.
    """
    from shoal.mixture import AUTO_FAMILY, StreamSettings

    given = settings.to_dict()
    if values.get("family", AUTO_FAMILY) != AUTO_FAMILY:  # a family by name is another request than an automatic one
        given |= {"family_requested": None, "family_reason": None}
    wanted = StreamSettings.from_dict({**given, **values})
    refuse_other_shape(settings, wanted)
    if settings.feature_names is not None and wanted.feature_names is None:
        raise StreamConflictError(
            f"the features have names, which can be changed and not removed; give {settings.n_features} texts as "
            "feature_names"
        )
    levels = wanted.level_names or {}
    for column, names in (settings.level_names or {}).items():
        if not extends(levels.get(column, ()), names):
            raise StreamConflictError(
                f"level_names of column {column} begins with {', '.join(names[:5])}; names can be added behind "
                "those of the stream, and not be changed or removed"
            )
    if settings.embedder not in (None, wanted.embedder):
        raise StreamConflictError(
            f"the vectors of the stream are made by {settings.embedder!r}, and {wanted.embedder!r} was asked for; "
            "vectors of two embedders cannot be compared: create another stream"
        )
    return within_limits(wanted, limits)


def refuse_other_shape(settings: "StreamSettings", wanted: "StreamSettings") -> None:
    """Raise StreamConflictError when `wanted` changes a setting that is fixed while the stream lives."""
    from shoal.mixture import FIXED

    settings = settings.chosen_as(wanted)
    for name in FIXED:
        if getattr(settings, name) != getattr(wanted, name):
            shown = "family" if name == "family_requested" else name
            raise StreamConflictError(
                f"{shown} gives the stream its shape and cannot change while it lives (it is {_text(settings, shown)}, "
                f"{_text(wanted, shown)} was asked for); create another stream, or delete this one first"
            )


def check_points(settings: "StreamSettings", name: str, points: Points) -> None:
    """Raise for points that the stream `name` cannot learn, before they are in the log.

    Raises ShapeError for another number of features, and for sparse rows where the family needs dense ones.
    Raises OutsideDomainError, and SettingError for weights that the family does not take.
    """
    from shoal.families import FAMILIES

    check_width(points, settings, name)
    domain = settings.domain
    if points.is_sparse and not domain.sparse:
        sparse_families = ", ".join(sorted(family for family, kind in FAMILIES.items() if kind.domain.sparse))
        raise ShapeError(
            f"points are sparse rows, stream {name!r} is of family {settings.family} and needs dense ones; send "
            f"arrays, or create a stream of counts ({sparse_families})"
        )
    settings.check_chosen_domain(points.x)
    domain.check(points.x, holes=settings.takes_holes)
    if points.fields is not None and points.fields.weights is not None:
        settings.check_takes_weights()


def check_room(settings: "StreamSettings") -> None:
    """Raise SettingError when the settings leave no memory for a single component, before they are in the log."""
    load_engines()
    from shoal.sequential import initial_state

    initial_state(settings)


_LIMITED = {
    "n_features": "max_features",
    "max_state_bytes": "max_state_bytes",
    "window": "max_window",
    "window_bytes": "max_window_bytes",
}
"""Settings of a stream that the service limits, with the setting of the service that does."""


def within_limits(settings: "StreamSettings", limits: Settings) -> "StreamSettings":
    """The same settings. Raises LimitError when one is above a limit of the service."""
    for name, limit in _LIMITED.items():
        if getattr(settings, name) > getattr(limits, limit):
            raise LimitError(
                f"{name} is {getattr(settings, name):,}, the limit of this service is {getattr(limits, limit):,}; "
                f"lower it, or raise SHOAL_{limit.upper()} of the service"
            )
    return settings


def _text(settings: "StreamSettings", name: str) -> str:
    value = (name == "family" and settings.family_requested) or getattr(settings, name)
    return repr(value) if isinstance(value, str | int) else "an explicit prior"
