"""Small records of a stream in Redis: dead letters and jobs."""

import struct
import zlib
from typing import Any, NamedTuple

from shoal_service.store import checksums, rules
from shoal_service.store.contract import JOBS_KEPT, DeadLetter, DeadLetterHead, Job
from shoal_service.store.redis.connection import Connections
from shoal_service.store.redis.keys import StreamKeys, pieces
from shoal_service.store.redis.scripts import accept, script
from shoal_service.store.redis.writer import WriteRequest

JOB_HEAD = struct.Struct(">dd")


def dead_letter_request(
    keys: StreamKeys, name: str, incarnation: str, epoch: int, letter: DeadLetter
) -> WriteRequest[None]:
    """Return the request that stores a dead letter."""
    seq, log_offset, n_points, reason, payload = letter
    cut = pieces(payload)
    numbers = (log_offset, n_points, len(payload), len(cut))
    checksum = checksums.row_checksum(zlib.crc32(payload), seq, *numbers, reason).hex().encode()
    header = b"%d %d %d %d:%s " % (*numbers, checksum) + reason.encode("utf-8", "surrogatepass")
    command = script("add_dead_letter").command((keys.meta, keys.letters), epoch, seq, header, *cut)

    def parse(reply: list[Any], resent: bool) -> None:
        accept(reply, name, incarnation, epoch)

    return WriteRequest(keys.tag, command, parse, len(payload))


class DeadLetterHeader(NamedTuple):
    """Dead letter without its payload."""

    seq: int
    log_offset: int
    n_points: int
    size: int
    n_pieces: int
    reason: str
    checksum: bytes | None
    """None for a dead letter of format 1."""


def dead_letters(connections: Connections, keys: StreamKeys, name: str) -> list[DeadLetter]:
    """Return all dead letters, as `Store.dead_letters`."""
    letters: list[DeadLetter] = []
    for header in _dead_letter_headers(connections, keys, name):
        letters.append(read_dead_letter(connections, keys, name, header))
    return letters


def read_dead_letter(connections: Connections, keys: StreamKeys, name: str, header: "DeadLetterHeader") -> DeadLetter:
    """Return the dead letter of a header. LogGapError when its payload is damaged."""
    fields = (f"{header.seq}/{i}" for i in range(header.n_pieces))
    payload = b"".join(connections.ask(("HGET", keys.letters, field))[0] or b"" for field in fields)
    if len(payload) != header.size or not checksums.is_payload_whole(header.checksum, payload):
        raise rules.damaged_dead_letter(name, header.seq)
    return DeadLetter(header.seq, header.log_offset, header.n_points, header.reason, payload)


def dead_letter(connections: Connections, keys: StreamKeys, name: str, seq: int) -> DeadLetter:
    """Return one dead letter, as `Store.dead_letter`."""
    (header,) = connections.ask(("HGET", keys.letters, seq))
    if header is None:
        raise rules.unknown_dead_letter(name, seq)
    return read_dead_letter(connections, keys, name, parse_dead_letter(name, b"%d" % seq, header))


def dead_letter_heads(connections: Connections, keys: StreamKeys, name: str) -> list[DeadLetterHead]:
    """Return the dead letters without payloads, as `Store.dead_letter_heads`."""
    return [
        DeadLetterHead(header.seq, header.log_offset, header.n_points, header.size, header.reason)
        for header in _dead_letter_headers(connections, keys, name)
    ]


def _dead_letter_headers(connections: Connections, keys: StreamKeys, name: str) -> list[DeadLetterHeader]:
    """Return all headers, oldest first. LogGapError when one is damaged."""
    (names,) = connections.ask(("HKEYS", keys.letters))
    fields = [field for field in names if b"/" not in field]
    headers = connections.ask(("HMGET", keys.letters, *fields))[0] if fields else []
    found = zip(fields, headers, strict=True)
    return sorted(parse_dead_letter(name, field, header) for field, header in found if header is not None)


def parse_dead_letter(name: str, field: bytes, header: bytes) -> DeadLetterHeader:
    """Return a header. LogGapError when it is damaged."""
    try:
        *numbers, last, text = header.split(b" ", 4)
        n_pieces, _, checksum = last.partition(b":")
        seq, log_offset, n_points, size, n = (int(number) for number in (field, *numbers, n_pieces))
        reason = text.decode("utf-8", "surrogatepass")
        found = bytes.fromhex(checksum.decode()) if checksum else None
        if checksums.is_row_whole(found, seq, log_offset, n_points, size, n, reason):
            return DeadLetterHeader(seq, log_offset, n_points, size, n, reason, found)
    except ValueError:
        pass
    raise rules.gap(name, f"the dead letter under {field.decode('ascii', 'backslashreplace')!r} is damaged")


def put_job_request(keys: StreamKeys, name: str, incarnation: str, job: Job) -> WriteRequest[bool]:
    """Return the request that writes a job. `job.version` is the expected version."""
    command = script("put_job").command((keys.meta, keys.jobs), job.id, job.version, job.body, JOBS_KEPT)

    def parse(reply: list[Any], resent: bool) -> bool:
        done = accept(reply, name, incarnation)[1]
        return done == 1 or (done == 2 and resent)  # after a lost reply, the stored version is this very write

    return WriteRequest(keys.tag, command, parse, len(job.body))


def jobs(connections: Connections, keys: StreamKeys) -> list[Job]:
    """Return all jobs, as `Store.jobs`."""
    (flat,) = connections.ask(("HGETALL", keys.jobs))
    found = []
    for i in range(0, len(flat), 2):
        if flat[i]:
            version, ordinal = JOB_HEAD.unpack_from(flat[i + 1])
            found.append((ordinal, Job(flat[i].decode(), int(version), flat[i + 1][JOB_HEAD.size :])))
    return [job for _, job in sorted(found, reverse=True)]
