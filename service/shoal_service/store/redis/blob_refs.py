"""Blobs that entries name, and jobs, in Redis."""

import hashlib
import struct
import uuid
from typing import Any

from shoal_service.errors import StoreUnavailableError
from shoal_service.store import contract, rules
from shoal_service.store.redis.connection import Links
from shoal_service.store.redis.keys import PIECE_BYTES, StreamKeys, pieces
from shoal_service.store.redis.log import accept
from shoal_service.store.redis.requests import Job
from shoal_service.store.redis.scripts import script
from shoal_service.store.redis.writer import RedisWriter

_HEAD = struct.Struct(">dd")
_UNFINISHED = b"~"


def put_blob(writer: RedisWriter, keys: StreamKeys, name: str, incarnation: str, key: str, blob: bytes) -> None:
    """As `Store.put_blob`, but for the reading back: piece after piece, with appends in between."""
    digest = hashlib.sha256(blob).hexdigest()
    cut, blob_id = pieces(blob), uuid.uuid4().hex

    def parse(reply: list[Any], resent: bool) -> bool:
        if reply[0] == b"there":
            rules.check_same_blob(name, key, reply[1].split(b" ")[1] == digest.encode())
            return True
        if reply[0] == b"torn":
            raise StoreUnavailableError(f"the blob {key!r} of stream {name!r} was disturbed on its way; put it again")
        accept(reply, name, incarnation)
        return False

    for i, piece in enumerate(cut):
        command = script("blob").command(
            (keys.meta, keys.blobs, keys.named), key, len(blob), digest, blob_id, len(cut), i, piece
        )
        if writer.run(Job(keys.tag, command, parse, PIECE_BYTES)):
            return


def get_blob(links: Links, keys: StreamKeys, name: str, key: str) -> bytes:
    """As `Store.get_blob`."""
    (header,) = links.ask(("HGET", keys.named, key))
    if header is not None and not header.startswith(_UNFINISHED):
        size, digest, run = header.split(b" ")
        blob_id, n = run.decode().rsplit(":", 1)
        blob = b"".join(links.ask(("HGET", keys.blobs, f"{blob_id}/{i}"))[0] or b"" for i in range(int(n)))
        if len(blob) == int(size) and hashlib.sha256(blob).hexdigest().encode() == digest:
            return blob
    raise rules.gap(name, f"the blob {key!r} is missing or not whole")


def drop_job(keys: StreamKeys, name: str, incarnation: str, key: str) -> Job[None]:
    """As `Store.drop_blob`."""
    command = script("drop").command((keys.meta, keys.blobs, keys.needs, keys.named), key)

    def parse(reply: list[Any], resent: bool) -> None:
        accept(reply, name, incarnation)

    return Job(keys.tag, command, parse)


def blob_keys(links: Links, keys: StreamKeys) -> list[str]:
    """As `Store.blob_keys`."""
    (flat,) = links.ask(("HGETALL", keys.named))
    return sorted(flat[i].decode() for i in range(0, len(flat), 2) if not flat[i + 1].startswith(_UNFINISHED))


def put_job(keys: StreamKeys, name: str, incarnation: str, job: contract.Job) -> Job[bool]:
    """As `Store.put_job`; `job.version` is the one expected."""
    command = script("job").command((keys.meta, keys.jobs), job.id, job.version, job.body, contract.JOBS_KEPT)

    def parse(reply: list[Any], resent: bool) -> bool:
        done = accept(reply, name, incarnation)[1]
        return done == 1 or (done == 2 and resent)  # what is there already is this very write, its reply lost

    return Job(keys.tag, command, parse, len(job.body))


def jobs(links: Links, keys: StreamKeys) -> list[contract.Job]:
    """As `Store.jobs`."""
    (flat,) = links.ask(("HGETALL", keys.jobs))
    found = []
    for i in range(0, len(flat), 2):
        if flat[i]:
            version, ordinal = _HEAD.unpack_from(flat[i + 1])
            found.append((ordinal, contract.Job(flat[i].decode(), int(version), flat[i + 1][_HEAD.size :])))
    return [job for _, job in sorted(found, reverse=True)]
