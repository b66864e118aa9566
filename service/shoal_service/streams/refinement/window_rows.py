"""Rows of a stream, read back from its log: all batches after some entry, without those that were set aside."""

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal_service.store import Entry, EntryKind
from shoal_service.wire import from_log

if TYPE_CHECKING:
    from shoal.refinement import Rows

READ_BYTES = 1 << 20
"""Payload bytes asked for at a time: joining larger ones would hold up requests, which share the interpreter."""
_LENGTH = struct.Struct("<Q")

Read = Callable[[int], list[Entry]]
"""The entries after some entry, at least one where there is one, as `Store.read` gives them."""


def between(read: Read, after_seq: int, last_seq: int) -> Iterator[Entry]:
    """The entries after `after_seq` up to `last_seq`. Raises what `read` raises."""
    while after_seq < last_seq:
        for entry in read(after_seq):
            if entry.seq > last_seq:
                return
            yield entry
            after_seq = entry.seq


def payloads(entries: Iterable[Entry], is_set_aside: Callable[[int], bool]) -> Iterator[bytes]:
    """The payloads of the batches that were learnt."""
    return (e.payload for e in entries if e.kind is EntryKind.BATCH and not is_set_aside(e.seq))


def last_rows(batches: Iterable[bytes], n: int) -> "Rows | None":
    """The last n rows of the batches, oldest first; None for n = 0. ValueError where there are not so many."""
    if n == 0:
        return None
    parts: list[Any] = []
    held = 0
    for payload in batches:
        parts.append(from_log(payload))
        held += parts[-1].shape[0]
        while held - parts[0].shape[0] >= n:
            held -= parts.pop(0).shape[0]
    if held < n:
        raise ValueError(f"{n} rows are asked for, the log holds {held}")
    parts[0] = parts[0][held - n :]
    return _stacked(parts)


def _stacked(parts: list[Any]) -> Any:
    import numpy as np

    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    import scipy.sparse

    return scipy.sparse.vstack([scipy.sparse.csr_matrix(part) for part in parts], format="csr")


# -- the window's file


def write_window(path: Path, batches: Iterable[bytes]) -> None:
    """The payloads one after another, each after its length in eight bytes."""
    with path.open("xb") as file:
        for payload in batches:
            file.write(_LENGTH.pack(len(payload)))
            file.write(payload)


def read_window(path: Path) -> Iterator[bytes]:
    """The payloads of a file that `write_window` wrote."""
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            yield file.read(_LENGTH.unpack(head)[0])
