"""Named tuples of a product of families: the fields of the blocks beside one another, the mass once.

Field `f` of block j is called `b<j>_f`. The types are made once for each list of the blocks' types, so that two tuples
of one product are of one type.
"""

from collections import namedtuple
from functools import lru_cache
from typing import Any, NamedTuple, cast

from shoal.points.arrays import Array


@lru_cache(maxsize=256)
def _joined_type(kinds: tuple[type[Any], ...]) -> type[Any]:
    shared = ["mass"] if all("mass" in kind._fields for kind in kinds) else []
    own = [f"b{j}_{name}" for j, kind in enumerate(kinds) for name in kind._fields if name not in shared]
    made = cast(Any, namedtuple)("_OfBlocks", shared + own)
    made.kinds = kinds
    made.__reduce__ = lambda self: (_of_kinds, (kinds, tuple(self)))  # pickled by the blocks' types: it has no name
    return cast(type[Any], made)


def _of_kinds(kinds: tuple[type[Any], ...], fields: tuple[Any, ...]) -> Any:
    """The named tuple of these blocks' types, and of no other, in any process."""
    return _joined_type(kinds)(*fields)


def joined_type(kinds: list[type[Any]]) -> type[Any]:
    """The type of `joined` tuples of these types."""
    return _joined_type(tuple(kinds))


def joined(blocks: list[Any]) -> Any:
    """One named tuple of those of the blocks. Statistics share the mass."""
    kind = _joined_type(tuple(type(block) for block in blocks))
    shared = [blocks[0].mass] if kind._fields[0] == "mass" else []
    own = [field for block in blocks for name, field in block._asdict().items() if not (shared and name == "mass")]
    return kind(*shared, *own)


def parted(values: Any) -> list[Any]:
    """The named tuples of the blocks; inverse of `joined`."""
    fields = list(values)
    shared = [fields.pop(0)] if values._fields[0] == "mass" else []
    blocks = []
    for kind in type(values).kinds:
        given = [shared[0] if shared and name == "mass" else fields.pop(0) for name in kind._fields]
        blocks.append(kind(*given))
    return blocks


class BlockCaches(NamedTuple):
    """The predictive caches of the blocks, as the one pass reads them."""

    parts: tuple[Any, ...]
    score: Array
    """(C,) what the scores of a block are written to."""


class BlockStats(NamedTuple):
    """The statistics of the blocks, as the one pass reads them."""

    mass: Array
    """(C,) that of the first block."""
    parts: tuple[Any, ...]
    """Each with a mass of its own, as each block adds to its own."""


class BlockConstants(NamedTuple):
    """What the components of each block share."""

    parts: tuple[Any, ...]


class BlockRows(NamedTuple):
    """Points (N, D), each block's columns as its family reads them."""

    parts: tuple[Any, ...]
    shape: tuple[int, int]
    """N, D: as an array's."""
