"""Small records of a stream in Redis: dead letters and jobs."""

import struct
from typing import Any

from shoal_service.store import rules
from shoal_service.store.contract import JOBS_KEPT, DeadLetter, Job
from shoal_service.store.redis.connection import Connections
from shoal_service.store.redis.keys import StreamKeys, pieces
from shoal_service.store.redis.scripts import accept, script
from shoal_service.store.redis.writer import WriteRequest

_JOB_HEAD = struct.Struct(">dd")


def dead_letter_request(
    keys: StreamKeys, name: str, incarnation: str, epoch: int, letter: DeadLetter
) -> WriteRequest[None]:
    """Return the request that stores a dead letter."""
    seq, log_offset, n_points, reason, payload = letter
    cut = pieces(payload)
    header = b"%d %d %d %d " % (log_offset, n_points, len(payload), len(cut)) + reason.encode("utf-8", "surrogatepass")
    command = script("add_dead_letter").command((keys.meta, keys.letters), epoch, seq, header, *cut)

    def parse(reply: list[Any], resent: bool) -> None:
        accept(reply, name, incarnation, epoch)

    return WriteRequest(keys.tag, command, parse, len(payload))


def dead_letters(connections: Connections, keys: StreamKeys, name: str) -> list[DeadLetter]:
    """Return all dead letters, as `Store.dead_letters`."""
    letters: list[DeadLetter] = []
    for seq, (log_offset, n_points, size, n_pieces, reason) in _dead_letter_headers(connections, keys):
        parts = (connections.ask(("HGET", keys.letters, f"{seq}/{i}"))[0] or b"" for i in range(int(n_pieces)))
        payload = b"".join(parts)
        if len(payload) != int(size):
            raise rules.damaged_dead_letter(name, seq)
        letters.append(DeadLetter(seq, int(log_offset), int(n_points), _text(reason), payload))
    return letters


def dead_letter_reasons(connections: Connections, keys: StreamKeys) -> dict[int, str]:
    """Return the reasons by seq, as `Store.dead_letter_reasons`."""
    return {seq: _text(fields[-1]) for seq, fields in _dead_letter_headers(connections, keys)}


def _dead_letter_headers(connections: Connections, keys: StreamKeys) -> list[tuple[int, list[bytes]]]:
    (fields,) = connections.ask(("HKEYS", keys.letters))
    seqs = sorted(int(field) for field in fields if b"/" not in field)
    headers = connections.ask(("HMGET", keys.letters, *seqs))[0] if seqs else []
    return [(seq, header.split(b" ", 4)) for seq, header in zip(seqs, headers, strict=True) if header is not None]


def _text(reason: bytes) -> str:
    return reason.decode("utf-8", "surrogatepass")


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
            version, ordinal = _JOB_HEAD.unpack_from(flat[i + 1])
            found.append((ordinal, Job(flat[i].decode(), int(version), flat[i + 1][_JOB_HEAD.size :])))
    return [job for _, job in sorted(found, reverse=True)]
