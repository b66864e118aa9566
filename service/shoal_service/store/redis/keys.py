"""Layout of Redis: the registry has one hash tag, and each incarnation of a stream has its own.

No script uses keys of two tags, so the layout suits a cluster too. Each stream has these, all as `{NAME/INCARNATION}`:

- `meta`, hash: the counters (`seq`, `offset`, `bytes`; `floor_*`, the last trimmed entry; `applied`, the applied mark
  in payload bytes; `epoch`; `answers`, `answers_floor`), `settings` with `settings_hash`,
  `staged`, a blob that is being written, and `pages`, the epoch and number of the last command that wrote pages;
- `log`, stream: one element for each entry, with id `SEQ-0`: `o` log offset, `b` payload bytes so far, `n` points, `s`
  size, `k` kind, `c` CRC-32 of the payload, `h` hash of the row;
- `data`, stream: the payloads in pieces, with ids `SEQ-0`, `SEQ-1`, ...; trimmed together with the log;
- `answers`, hash, and `order`, list: the answers to idempotency keys, and the keys by age;
- `checkpoints`, hash of seq to "offset size sha256 blob:pieces window hash", and `blobs`, hash of "blob/i" to a piece;
- `needs`, hash of seq to "after blob's key", the references of entries;
- `named`, hash of a blob's key to "size sha256 blob:pieces", with a `~` before it until all pieces are there;
- `jobs`, hash of a job's id to its version and ordinal, two doubles, and its body; the field `` counts them;
- `letters`, hash of seq to "offset points size pieces:checksum reason", and of "seq/i" to a piece;
- `pages`, hash of "run/page" to a page of records;
- `documents`, hash of "kind/name" to a checksum and a small value; the field of a kind counts its documents and bytes;
- `lease`, string: the process that leads the stream, with an expiry;
- `view`, hash: the published view: `head`, `runs` (the blobs as "blob:pieces", in order), "blob/i" to a piece;
- `labels:SEQ`, strings that expire within a minute: the component ids of an entry's points.

The last three are volatile: their scripts keep them out of the append-only file and of replicas, so that publishing a
view costs no disk. A restart loses them, or brings old ones back. The leader notices and publishes its view again.

There are three channels of streams: `news` has the tag of a stream that grew or ended, for learners; `shown` has the
tag of one whose view, settings or existence changed, for readers; `asked` has the requests of readers to the leaders.
Beside them, `pieces:VERSION` and `pieces:PROCESS` are for processes that compute pieces of rounds for one another.
"""

from functools import lru_cache
from typing import NamedTuple

PIECE_BYTES = 1 << 20
"""Largest size of a value. Payloads and checkpoints are cut into such pieces. Appends wait while the server receives
and syncs a piece, so larger pieces cost throughput beside checkpoints."""

FORMAT_VERSION = 5
"""Version 2 added checksums, version 3 access keys, version 4 pages of records, version 5 documents of streams. Earlier
versions are read as well."""


class StreamKeys(NamedTuple):
    """Keys of one incarnation, in the order of the script delete_stream: `meta` first, then all others."""

    meta: str
    log: str
    data: str
    answers: str
    order: str
    checkpoints: str
    blobs: str
    letters: str
    needs: str
    named: str
    jobs: str
    lease: str
    view: str
    pages: str
    documents: str

    def labels(self, seq: int) -> str:
        """Return the key of the labels of one entry. It expires by itself."""
        return f"{self.tag}:labels:{seq}"

    @property
    def tag(self) -> str:
        """Common prefix of the keys. Messages name the stream by it."""
        return self.meta.removesuffix(":meta")


class RegistryKeys(NamedTuple):
    """Keys that belong to no stream, and the channels."""

    streams: str
    """Hash of stream name to registry value."""
    format: str
    rewritten: str
    """Key of the `run_id` of the server that has rewritten its file since its start."""
    probes: str
    news: str
    shown: str
    asked: str
    learners: str
    """Sorted set of the live learners, by the time when each counts as dead. Volatile, like leases."""
    access: str
    """Hash of the access keys by id, as access_keys.py writes them. The field `` counts their changes."""
    access_used: str
    """Hash of the id of an access key to the Unix time of its last use."""


@lru_cache(4096)
def stream_keys(prefix: str, name: str, incarnation: str) -> StreamKeys:
    """Return the keys of a stream."""
    return StreamKeys(*(f"{prefix}:{{{name}/{incarnation}}}:{part}" for part in StreamKeys._fields))


def registry_keys(prefix: str) -> RegistryKeys:
    """Return the keys of the registry. Its tag has no slash, so no stream has it."""
    return RegistryKeys(*(f"{prefix}:{{registry}}:{part}" for part in RegistryKeys._fields))


def pieces(payload: bytes) -> list[bytes | memoryview]:
    """Cut the payload into pieces, without copying. An empty payload is one empty piece."""
    if len(payload) <= PIECE_BYTES:
        return [payload]
    view = memoryview(payload)
    return [view[at : at + PIECE_BYTES] for at in range(0, len(view), PIECE_BYTES)]
