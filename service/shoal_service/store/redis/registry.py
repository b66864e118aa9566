"""Registry of streams in Redis, and the scripts for the epoch and the settings of a stream.

The name of a stream is in the registry, and its counters are under its own tag. No script spans the two. A creation and
a deletion therefore take three steps each, and the first byte of the registry value tells the next step: `+` while the
stream is created, `=` when it is there, `-` while it is deleted. Any process that finds an unfinished stream completes
the steps, which may be repeated. So a process that dies between two steps does no harm.
"""

import contextlib
import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shoal_service.errors import LogGapError, StoreFormatError, UnknownStreamError
from shoal_service.store import rules
from shoal_service.store.contract import MayCreate, StreamRecord
from shoal_service.store.redis.connection import Command, Connections, Word
from shoal_service.store.redis.keys import FORMAT_VERSION, RegistryKeys, StreamKeys, stream_keys
from shoal_service.store.redis.scripts import accept, row_hash, script
from shoal_service.store.redis.writer import RedisWriter, WriteRequest

CREATING, PRESENT, DELETING = b"+", b"=", b"-"
REGISTRY_CHANGED = "registry"
"""Message on the channel `asked` after a stream was created or deleted."""
_HEAD = ">cdH"
_OTHER_NAMES = b""
"""In the place of a registry value: streams were created or deleted after the names were read."""

_log = logging.getLogger("shoal_service.store")


class Registry:
    """Methods of `Store` on the registry."""

    def __init__(self, connections: Connections, writer: RedisWriter, prefix: str, keys: RegistryKeys) -> None:
        self._connections = connections
        self._writer = writer
        self._prefix = prefix
        self._keys = keys
        self._reported: set[str] = set()  # damaged streams that the log has named

    def create(self, record: StreamRecord, max_streams: int, may_create: MayCreate | None) -> tuple[StreamRecord, bool]:
        """See `Store.create_stream`."""
        value = _value(CREATING, record)

        def command() -> Command:
            checked: tuple[Word, ...] = (
                (0,) if may_create is None else (1, *self._checked_names(record.name, may_create))
            )
            return script("register").command(
                (self._keys.streams, self._keys.format), record.name, value, max_streams, FORMAT_VERSION, *checked
            )

        def parse(reply: list[Any], resent: bool) -> bytes | None:
            if reply[0] == b"other":
                return _OTHER_NAMES
            if reply[0] == b"full":
                rules.check_stream_limit(record.name, reply[1], max_streams)
            # After a lost reply, an unfinished stream of this incarnation is the one that this request created.
            return None if reply[0] == b"ok" or (resent and reply[1] == value) else reply[1]

        while True:
            registered = self._writer.run(WriteRequest(self._keys.streams, command(), parse))
            if registered == _OTHER_NAMES:
                continue
            if registered is None:
                self._create(value, record)
                return record, True
            try:
                return self._completed(record.name, registered), False
            except UnknownStreamError:
                continue  # it was being deleted, and is gone now

    def get(self, name: str) -> StreamRecord:
        """See `Store.get_stream`."""
        value = self._registered(name)
        if value is None:
            raise rules.unknown(name)
        return self._completed(name, value)

    def list(self) -> list[StreamRecord]:
        """See `Store.list_streams`. A damaged stream is left out, and the log names it once."""
        (flat,) = self._connections.ask(("HGETALL", self._keys.streams))
        values = {flat[i].decode("utf-8", "backslashreplace"): flat[i + 1] for i in range(0, len(flat), 2)}
        there: list[StreamRecord] = []
        for name, value in values.items():
            with self._left_out_if_damaged(name):
                state, record = parse_record(name, value)
                if state == PRESENT:
                    there.append(record)
        settings = self._connections.ask(*(_ask_settings(self._stream(record)) for record in there))
        found: list[StreamRecord] = []
        for record, reply in zip(there, settings, strict=True):
            with self._left_out_if_damaged(record.name):
                if (now := _settings(record.name, reply)) is not None:
                    found.append(record._replace(settings=now))
        for name in values.keys() - {record.name for record in found}:
            with self._left_out_if_damaged(name):
                found.append(self._completed(name, values[name]))
        return sorted(found)

    @contextlib.contextmanager
    def _left_out_if_damaged(self, name: str) -> Iterator[None]:
        """Go on without a stream that is damaged, or was deleted meanwhile."""
        try:
            yield
        except UnknownStreamError:
            return
        except (StoreFormatError, LogGapError) as error:
            if name not in self._reported:
                self._reported.add(name)
                _log.error("%s", error)

    def delete(self, name: str, incarnation: str | None) -> None:
        """See `Store.delete_stream`."""
        while True:
            record = self.get(name)
            if incarnation not in (None, record.incarnation):
                raise rules.gone(name, str(incarnation))
            there = self._registered(name)
            if there is not None and parse_record(name, there)[1].incarnation == record.incarnation:
                ending = DELETING + there[1:]
                if there[:1] == PRESENT and self._replace(name, there, ending):
                    self._delete(name, ending)
                    return

    # -- the steps

    def _checked_names(self, name: str, may_create: MayCreate) -> Sequence[bytes]:
        """Return all names, beside which `name` may be created, or exists."""
        names: Sequence[bytes] = self._connections.ask(("HKEYS", self._keys.streams))[0]
        if name.encode() not in names:
            may_create([one.decode("utf-8", "backslashreplace") for one in names])
        return names

    def _registered(self, name: str) -> bytes | None:
        """The registry value of a name."""
        value: bytes | None = self._connections.ask(("HGET", self._keys.streams, name))[0]
        return value

    def _completed(self, name: str, value: bytes) -> StreamRecord:
        """Complete the steps of a registry value, and return the record. UnknownStreamError when it was deleted."""
        state, record = parse_record(name, value)
        if state == DELETING:
            self._delete(name, value)
            raise rules.unknown(name)
        if state == CREATING:
            self._create(value, record)
        settings = _settings(name, self._connections.ask(_ask_settings(self._stream(record)))[0])
        if settings is None:
            now = self._registered(name)
            if now is not None and now[1:] == value[1:] and now[:1] != DELETING:
                raise rules.gap(name, "its counters are missing")
            raise rules.unknown(name)
        return record._replace(settings=settings)

    def _create(self, value: bytes, record: StreamRecord) -> None:
        keys = self._stream(record)
        self._writer.run(WriteRequest(keys.tag, script("create_stream").command((keys.meta,), record.settings), _ok))
        self._replace(record.name, value, PRESENT + value[1:])

    def _delete(self, name: str, value: bytes) -> None:
        keys = self._stream(parse_record(name, value)[1])
        channels = (self._keys.news, self._keys.shown)
        self._writer.run(WriteRequest(keys.tag, script("delete_stream").command(tuple(keys), keys.tag, *channels), _ok))
        self._replace(name, value, b"")

    def _replace(self, name: str, before: bytes, value: bytes) -> bool:
        """Replace a registry value, if it is still the one before. Returns whether it was."""
        command = script("replace_registration").command(
            (self._keys.streams,), name, before, value, self._keys.asked, REGISTRY_CHANGED
        )
        parse: Callable[[Any, bool], bool] = lambda reply, resent: bool(reply[0] == b"ok")  # noqa: E731
        return self._writer.run(WriteRequest(self._keys.streams, command, parse))

    def _stream(self, record: StreamRecord) -> StreamKeys:
        return stream_keys(self._prefix, record.name, record.incarnation)


# -- the writer of a stream, and its settings


def acquire_request(
    keys: StreamKeys, name: str, incarnation: str, ending_epoch: int | None = None
) -> WriteRequest[int]:
    """Return the request for a new epoch. With `ending_epoch`, that writer ends and gives up its applied mark."""
    command = script("acquire_writer").command(
        (keys.meta, keys.log, keys.checkpoints, keys.blobs, keys.needs, keys.named),
        "" if ending_epoch is None else ending_epoch,
    )

    def parse(reply: list[Any], resent: bool) -> int:
        return int(accept(reply, name, incarnation, ending_epoch or 0)[1])

    return WriteRequest(keys.tag, command, parse)


def replace_settings_request(
    keys: StreamKeys, name: str, incarnation: str, epoch: int, change: tuple[bytes, bytes], channel: str
) -> WriteRequest[None]:
    """Return the request that replaces the expected settings, the first of `change`, by the second."""
    command = script("replace_settings").command((keys.meta,), epoch, *change, channel, keys.tag)

    def parse(reply: list[Any], resent: bool) -> None:
        accept(reply, name, incarnation, epoch)

    return WriteRequest(keys.tag, command, parse)


def _ok(reply: Any, resent: bool) -> None:
    """Accept the only answer of these scripts."""


def _ask_settings(keys: StreamKeys) -> Command:
    return ("HMGET", keys.meta, "settings", "settings_hash")


def _settings(name: str, reply: list[bytes | None]) -> bytes | None:
    """Return the settings of a stream, or None without a record. Settings of format 1 have no hash."""
    settings, found_hash = reply
    if settings is not None and found_hash is not None and row_hash(settings) != found_hash:
        raise rules.damaged_record(name)
    return settings


def _value(state: bytes, record: StreamRecord) -> bytes:
    incarnation = record.incarnation.encode()
    return struct.pack(_HEAD, state, record.created_at, len(incarnation)) + incarnation + record.settings


def parse_record(name: str, value: bytes) -> tuple[bytes, StreamRecord]:
    """Return the state, and the record with the settings of its creation. StoreFormatError for a damaged value."""
    try:
        state, created_at, length = struct.unpack_from(_HEAD, value)
        at = struct.calcsize(_HEAD)
        return state, StreamRecord(name, value[at : at + length].decode(), value[at + length :], created_at)
    except (struct.error, UnicodeDecodeError) as error:
        raise rules.damaged_record(name) from error
