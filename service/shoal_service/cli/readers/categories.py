"""Columns of categories of a stream or a model. In files they may hold texts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shoal.errors import did_you_mean


class Categories(NamedTuple):
    """What settings say of categories."""

    family: Any = None
    """A name, a mapping from columns to names, or None, where it is not known."""
    feature_names: tuple[str, ...] | None = None
    """Of the stream. None for those of the file."""
    with_names: frozenset[int] = frozenset()
    """Columns of the stream whose levels have names, so that their cells are texts."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Categories":
        """Those of a stream's settings, or of a model's parameters."""
        names = settings.get("feature_names")
        levels = settings.get("level_names") or {}
        return cls(settings.get("family"), None if names is None else tuple(names), frozenset(map(int, levels)))

    def among(self, names: Sequence[str] | None, width: int) -> frozenset[int]:
        """The columns of categories among the features of a file, by their place. Raises SettingError."""
        if self.family is None:
            return frozenset()
        from shoal.families import FAMILIES, family_exists, known_family, names_given
        from shoal.mixture import category_columns_of

        family = known_family(self.family, self.feature_names or names or names_given(self.family))
        if not isinstance(family, str) or not family_exists(family):
            return frozenset()
        return self._places(category_columns_of(FAMILIES[family], width), names, width)

    def misnamed(self, name: str | None) -> str:
        """What to do about a column of the file that the stream does not have; empty if it has it, or has no names."""
        if name is None or self.feature_names is None or name in self.feature_names:
            return ""
        wanted = ", ".join(self.feature_names)
        return (
            f"the stream has no such column; {did_you_mean(name, self.feature_names)}it has {wanted}; leave it out by "
            "--columns, or keep it by --key-column or --payload-columns of `shoal ingest`"
        )

    def known_texts(self, names: Sequence[str] | None, width: int) -> frozenset[int]:
        """Those among them whose levels have names already."""
        return self._places(self.with_names, names, width)

    def _places(self, columns: Iterable[int], names: Sequence[str] | None, width: int) -> frozenset[int]:
        """Places in a file of columns of the stream."""
        if self.feature_names is None or names is None:
            return frozenset(column for column in columns if column < width)
        wanted = {self.feature_names[column] for column in columns}
        return frozenset(place for place, name in enumerate(names) if name in wanted)
