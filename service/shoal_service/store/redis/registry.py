"""Which streams there are. A stream's name is in the registry, its counters are under its own tag, and no script spans
the two; so a creation and an end are three steps each, and the registry's value says which step is next.

`+` is being created, `=` is there, `-` is ending. Whoever meets a stream half-way takes the next steps, all of which
may be taken twice: so a process that dies between two of them leaves nothing that the next look does not put right.
"""

import contextlib
import struct
from collections.abc import Callable
from typing import Any

from shoal_service.errors import UnknownStreamError
from shoal_service.store import rules
from shoal_service.store.contract import StreamRecord
from shoal_service.store.redis.connection import Links
from shoal_service.store.redis.keys import FORMAT_VERSION, RegistryKeys, StreamKeys, stream_keys
from shoal_service.store.redis.requests import Job
from shoal_service.store.redis.scripts import script
from shoal_service.store.redis.writer import RedisWriter

COMING, THERE, ENDING = b"+", b"=", b"-"
REGISTRY_NEWS = "registry"
"""Said on the channel `asked` when a stream has come or gone."""
_HEAD = ">cdH"


class Registry:
    """The registry's verbs of `Store`."""

    def __init__(self, links: Links, writer: RedisWriter, prefix: str, keys: RegistryKeys) -> None:
        self._links = links
        self._writer = writer
        self._prefix = prefix
        self._keys = keys

    def create(self, record: StreamRecord, max_streams: int) -> tuple[StreamRecord, bool]:
        """As `Store.create_stream`."""
        value = _value(COMING, record)
        command = script("enrol").command(
            (self._keys.streams, self._keys.format), record.name, value, max_streams, FORMAT_VERSION
        )

        def parse(reply: list[Any], resent: bool) -> bytes | None:
            if reply[0] == b"full":
                rules.check_room(record.name, reply[1], max_streams)
            # After a lost reply, finding this very incarnation half-way means that it is ours.
            return None if reply[0] == b"ok" or (resent and reply[1] == value) else reply[1]

        while True:
            held = self._writer.run(Job(self._keys.streams, command, parse))
            if held is None:
                self._begin(value, record)
                return record, True
            try:
                return self._settled(record.name, held), False
            except UnknownStreamError:
                continue  # it was ending, and has ended

    def get(self, name: str) -> StreamRecord:
        """As `Store.get_stream`."""
        (held,) = self._links.ask(("HGET", self._keys.streams, name))
        if held is None:
            raise rules.unknown(name)
        return self._settled(name, held)

    def list(self) -> list[StreamRecord]:
        """As `Store.list_streams`."""
        (flat,) = self._links.ask(("HGETALL", self._keys.streams))
        held = {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}
        there = [_record(name, value)[1] for name, value in held.items() if value[:1] == THERE]
        settings = self._links.ask(*(("HGET", self._stream(record).meta, "settings") for record in there))
        found = [record._replace(settings=now) for record, now in zip(there, settings, strict=True) if now is not None]
        for name in held.keys() - {record.name for record in found}:
            with contextlib.suppress(UnknownStreamError):
                found.append(self._settled(name, held[name]))
        return sorted(found)

    def delete(self, name: str) -> None:
        """As `Store.delete_stream`."""
        while True:
            record = self.get(name)
            there = self._registered(name)
            if there is not None and _record(name, there)[1].incarnation == record.incarnation:
                ending = ENDING + there[1:]
                if there[:1] == THERE and self._swap(name, there, ending):
                    self._end(name, ending)
                    return

    # -- the steps

    def _registered(self, name: str) -> bytes | None:
        held: bytes | None = self._links.ask(("HGET", self._keys.streams, name))[0]
        return held

    def _settled(self, name: str, held: bytes) -> StreamRecord:
        """The record of what the registry holds, after the steps that were left out. UnknownStreamError at its end."""
        state, record = _record(name, held)
        if state == ENDING:
            self._end(name, held)
            raise rules.unknown(name)
        if state == COMING:
            self._begin(held, record)
        (settings,) = self._links.ask(("HGET", self._stream(record).meta, "settings"))
        if settings is None:
            now = self._registered(name)
            if now is not None and now[1:] == held[1:] and now[:1] != ENDING:
                raise rules.gap(name, "its counters are missing")
            raise rules.unknown(name)
        return record._replace(settings=settings)

    def _begin(self, held: bytes, record: StreamRecord) -> None:
        keys = self._stream(record)
        self._writer.run(Job(keys.tag, script("begin").command((keys.meta,), record.settings), _ok))
        self._swap(record.name, held, THERE + held[1:])

    def _end(self, name: str, held: bytes) -> None:
        keys = self._stream(_record(name, held)[1])
        channels = (self._keys.news, self._keys.shown)
        self._writer.run(Job(keys.tag, script("wipe").command(tuple(keys), keys.tag, *channels), _ok))
        self._swap(name, held, b"")

    def _swap(self, name: str, held: bytes, value: bytes) -> bool:
        command = script("swap").command((self._keys.streams,), name, held, value, self._keys.asked, REGISTRY_NEWS)
        parse: Callable[[Any, bool], bool] = lambda reply, resent: bool(reply[0] == b"ok")  # noqa: E731
        return self._writer.run(Job(self._keys.streams, command, parse))

    def _stream(self, record: StreamRecord) -> StreamKeys:
        return stream_keys(self._prefix, record.name, record.incarnation)


def _ok(reply: Any, resent: bool) -> None:
    """These scripts have one answer."""


def _value(state: bytes, record: StreamRecord) -> bytes:
    incarnation = record.incarnation.encode()
    return struct.pack(_HEAD, state, record.created_at, len(incarnation)) + incarnation + record.settings


def _record(name: str, value: bytes) -> tuple[bytes, StreamRecord]:
    """The state, and the record with the settings of its creation."""
    state, created_at, length = struct.unpack_from(_HEAD, value)
    at = struct.calcsize(_HEAD)
    return state, StreamRecord(name, value[at : at + length].decode(), value[at + length :], created_at)
