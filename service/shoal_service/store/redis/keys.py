"""Where things lie in Redis: the registry under one hash tag, each incarnation of a stream under a tag of its own.

No script touches keys of two tags, so the layout holds on a cluster too. Of one stream, all as `{NAME/INCARNATION}`:

- `meta`, hash: the counters (`seq`, `offset`, `bytes`; `floor_*`, the last entry trimmed; `applied`, the learner's mark
  in payload bytes; `epoch`; `answers`, `answers_floor`), `settings`, and `staged`, a blob that is being written;
- `log`, stream: an entry each, of id `SEQ-0`: `o` log offset, `b` payload bytes so far, `n` points, `s` size, `k` kind;
- `data`, stream: the payloads in pieces, of ids `SEQ-0`, `SEQ-1`, ...; trimmed with the log by the same number;
- `answers`, hash, and `order`, list: what idempotency keys were answered, and the keys by age;
- `checkpoints`, hash of seq to "offset size sha256 blob:pieces window", and `blobs`, hash of "blob/i" to a piece;
- `needs`, hash of seq to "after blob's key", what entries need beside their payloads;
- `named`, hash of a blob's key to "size sha256 blob:pieces", with a `~` before it until all pieces are there;
- `jobs`, hash of a job's id to its version and ordinal, two doubles, and its body; the field `` counts them;
- `letters`, hash of seq to "offset points size pieces reason", and of "seq/i" to a piece;
- `lease`, string: who leads the stream, with an expiry;
- `view`, hash: what readers are shown: `head`, `runs` (blobs as "blob:pieces", one after another), "blob/i" to a piece;
- `labels:SEQ`, strings that expire within a minute: the ids given to an entry's points, for who waits for them.

The last three are volatile: their scripts keep them out of the append-only file and from replicas, so that showing a
view costs no disk. A restart loses them, or brings old ones back; the leader notices and shows its view again.

News goes over three channels: `news`, the tag of a stream that grew or ended, for learners; `shown`, the tag of one
whose view, settings or life changed, for readers; `asked`, what readers want of whoever leads.
"""

from functools import lru_cache
from typing import NamedTuple

PIECE_BYTES = 1 << 20
"""No value in Redis is larger: payloads and checkpoints are cut into pieces of so much. While the server takes in and
syncs a piece of a checkpoint, appends wait: beside checkpoints of 64 MiB in pieces of 8 MiB a fifth as many passed."""

FORMAT_VERSION = 1


class StreamKeys(NamedTuple):
    """The keys of one incarnation; the order is that of `wipe.lua`: `meta` first, then all others."""

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

    def labels(self, seq: int) -> str:
        """The key of one entry's labels: of no fixed number, so no field; it expires by itself."""
        return f"{self.tag}:labels:{seq}"

    @property
    def tag(self) -> str:
        """What all of them begin with; also the stream's name in the news."""
        return self.meta.removesuffix(":meta")


class RegistryKeys(NamedTuple):
    """The keys that belong to no stream, and the channel."""

    streams: str
    """Hash of a stream's name to its registry value."""
    format: str
    rewritten: str
    """The `run_id` of the server that is known to have rewritten its file since its start."""
    probes: str
    news: str
    shown: str
    asked: str


@lru_cache(4096)
def stream_keys(prefix: str, name: str, incarnation: str) -> StreamKeys:
    """The keys of a stream."""
    return StreamKeys(*(f"{prefix}:{{{name}/{incarnation}}}:{part}" for part in StreamKeys._fields))


def registry_keys(prefix: str) -> RegistryKeys:
    """The keys of the registry; its tag has no slash, so it is no stream's."""
    return RegistryKeys(*(f"{prefix}:{{registry}}:{part}" for part in RegistryKeys._fields))


def pieces(payload: bytes) -> list[bytes | memoryview]:
    """The payload cut to size, in views; an empty one is one empty piece."""
    if len(payload) <= PIECE_BYTES:
        return [payload]
    view = memoryview(payload)
    return [view[at : at + PIECE_BYTES] for at in range(0, len(view), PIECE_BYTES)]
