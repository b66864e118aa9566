"""Redis streams as a source: XREAD from the stored position. A position is the id of an entry.

A consumer group gives its entries to several consumers, and then no single position says which of them are stored. So
the connector reads in order without one. With a group it moves the last delivered id of the group to the stored
position. So XINFO GROUPS shows how far it is, and programs that trim the stream can use that.
"""

import re
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import redis

from shoal_service.addresses import RefusedAddressError, public_addresses
from shoal_service.cli.connectors.messages import MessageDecoder, Messages
from shoal_service.cli.connectors.progress import Lag
from shoal_service.cli.connectors.steps import SourceAwayError, Step, password_refused
from shoal_service.cli.exits import CommandError

BLOCK_MS = 1000
TIMEOUT_S = 10.0
BEGINNING = "0-0"
LAG_S = 2.0
"""Time between two looks at the ends of the streams."""


class RedisStreamReader:
    """Reader of one or more Redis streams, each a partition named after its key."""

    ended = False

    def __init__(
        self,
        url: str,
        keys: Sequence[str],
        decoder: MessageDecoder,
        log: Any,
        *,
        field: str,
        start: str = BEGINNING,
        count: int = 1000,
        group: str | None = None,
        key_field: str | None = None,
        entry_time: bool = False,
        public_only: bool = False,
    ) -> None:
        """`field` holds the message, `key_field` the key of its record. `start`: id after which a stream without a
        stored position is read; `$` is its end. `entry_time`: the time of the record is that of the entry's id.
        `public_only`: connect to public addresses only.
        """
        if start != "$" and not re.fullmatch(r"\d{1,20}(-\d{1,20})?", start):
            raise CommandError(f"{start!r} is no id of an entry; begin after an id such as 1700000000000-0, or at $")
        kind = _PublicTlsConnection if url.startswith("rediss:") else _PublicConnection
        guarded = {"connection_class": kind} if public_only else {}
        try:
            self._client = redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, protocol=2, **guarded)
        except ValueError as error:
            raise CommandError(f"{error}; give the address of the source as redis://host:port/database") from error
        self._partitions = {key: quote(key, safe="/:._-") for key in keys}
        self._decoder, self._log = decoder, log
        self._field, self._key_field = field.encode(), None if key_field is None else key_field.encode()
        self._start, self._count, self._group, self._entry_time = start, count, group, entry_time
        self._at: dict[str, str] = {}
        self._steps: deque[Step] = deque()
        self._connection: Any = None
        self.lag = Lag()
        self._lag_at = 0.0

    def begin(self, positions: Mapping[str, str]) -> None:
        """See `SourceReader.begin`."""
        self._steps.clear()
        for key, partition in self._partitions.items():
            stored = positions.get(partition)
            end = self._look_at(key, stored)
            start = end if self._start == "$" else self._start
            if stored is None and _order(start) > _order(end):
                self._log.warning("start_beyond_end", key=key, start=start, end=end)
            self._at[key] = start if stored is None else stored
            if self._group is not None:
                self._follow(key, self._at[key])

    def read(self) -> Step | None:
        """See `SourceReader.read`."""
        if not self._steps:
            keys = list(self._at)
            found = self._ask(
                "XREAD", "COUNT", self._count, "BLOCK", BLOCK_MS, "STREAMS", *keys, *(self._at[key] for key in keys)
            )
            for key, entries in found or ():
                self._steps.append(self._step(key.decode(), entries))
            self._measure_lag(is_at_end=not found)
        return self._steps.popleft() if self._steps else None

    def stored(self, step: Step) -> None:
        """See `SourceReader.stored`. The group follows."""
        if self._group is not None:
            key = next(key for key, partition in self._partitions.items() if partition == step.partition)
            self._follow(key, step.after)

    def close(self) -> None:
        """See `SourceReader.close`."""
        self._disconnect()
        self._client.close()

    def _step(self, key: str, entries: list[Any]) -> Step:
        self._at[key] = after = entries[-1][0].decode()
        field = self._field
        if self._key_field is None:
            keys = None
            values = [f[1] if len(f) == 2 and f[0] == field else _value_of(f, field) for _, f in entries]
        else:
            keys = [_value_of(fields, self._key_field) for _, fields in entries]
            values = [_value_of(fields, field) for _, fields in entries]
        ids = _Ids(key, entries)
        times = [int(entry.partition(b"-")[0]) / 1000.0 for entry, _ in entries] if self._entry_time else None
        points = self._decoder.decode(Messages(ids, values, keys, times))
        n_points = 0 if points is None else len(points.points)
        return Step(self._partitions[key], after, points, len(entries), len(entries) - n_points)

    def _look_at(self, key: str, stored: str | None) -> str:
        """Return the last id of a stream. CommandError when it cannot hold the stored position, and a warning when
        entries behind that are gone.
        """
        facts = self._facts(key)
        if not facts:
            return BEGINNING
        last = _last(facts)
        if stored is not None:
            _check_end(key, last, stored)
            deleted = facts.get(b"max-deleted-entry-id", b"0-0").decode()
            first = facts.get(b"recorded-first-entry-id", b"0-0").decode() if facts[b"length"] else last
            if max(_order(deleted), _order(first)) > _order(stored):
                self._log.warning("entries_gone", key=key, stored=stored, deleted_up_to=deleted, first=first)
        return last

    def _facts(self, key: str) -> dict[bytes, Any]:
        """What Redis says of a stream; empty where there is none."""
        flat = self._ask("XINFO", "STREAM", key) if self._ask("EXISTS", key) else []
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def _measure_lag(self, is_at_end: bool) -> None:
        """Note how far the positions are behind the ends of the streams, by the times in their ids.

        CommandError where one is beyond: XREAD finds nothing in a stream that was made again with smaller ids.
        """
        if is_at_end:
            self.lag = Lag(0, 0.0)
        if time.monotonic() - self._lag_at < LAG_S:
            return
        self._lag_at = time.monotonic()
        behind = 0
        for key, at in self._at.items():
            if facts := self._facts(key):
                if at != self._start:  # nothing was read there yet, and it may be a time to come
                    _check_end(key, _last(facts), at)
                behind = max(behind, _order(_last(facts))[0] - _order(at)[0])
        if not is_at_end:
            self.lag = Lag(None, behind / 1000.0)

    def _follow(self, key: str, position: str) -> None:
        """Move the group behind a position, and make it where the stream has none. A stream that is not there is not
        made: an empty one would end before the position.
        """
        try:
            self._ask("XGROUP", "SETID", key, self._group, position)
        except CommandError:
            if self._ask("EXISTS", key):
                self._ask("XGROUP", "CREATE", key, self._group, position)

    def _ask(self, *words: Any) -> Any:
        """Send one command, and return the plain reply: a client's own form of entries takes longer than reading."""
        try:
            if self._connection is None:
                self._connection = self._client.connection_pool.get_connection()
            self._connection.send_command(*words)
            return self._connection.read_response()
        except redis.AuthenticationError as error:
            self._disconnect()
            raise password_refused(error) from error
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            self._disconnect()
            raise SourceAwayError(f"redis: {error}") from error
        except RefusedAddressError as error:
            raise CommandError(f"{error}; the server allows them with source_allow_private") from error
        except redis.ResponseError as error:
            if isinstance(error, redis.exceptions.ReadOnlyError) or str(error).startswith(("LOADING", "MASTERDOWN")):
                self._disconnect()
                raise SourceAwayError(f"redis: {error}") from error
            raise CommandError(f"redis refused {words[0]}: {error}") from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._client.connection_pool.release(self._connection)
            self._connection = None


class _PublicConnection(redis.Connection):
    """Connection to a public address. A name is looked up once, and its addresses are checked and connected to."""

    def _connect(self) -> socket.socket:
        name, failed = self.host, OSError(f"{self.host} has no address")
        for address in public_addresses(name, self.port):
            self.host = address
            try:
                made: socket.socket = super()._connect()  # type: ignore[no-untyped-call]
            except OSError as error:
                failed = error
            else:
                return made
            finally:
                self.host = name  # TLS asks for the certificate of the name
        raise failed


class _PublicTlsConnection(redis.SSLConnection, _PublicConnection):
    """The same with TLS, which begins after the check."""


class _Ids(Sequence[str]):
    """Keys and ids of entries, made into text when they are shown."""

    def __init__(self, key: str, entries: list[Any]) -> None:
        self._key, self._entries = key, entries

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, i: Any) -> Any:
        return f"{self._key} {self._entries[i][0].decode()}"


def _value_of(fields: list[bytes], name: bytes) -> bytes | None:
    """Return the value of a field of an entry. None where it has none."""
    for i in range(0, len(fields), 2):
        if fields[i] == name:
            return fields[i + 1]
    return None


def _last(facts: Mapping[bytes, Any]) -> str:
    return str(facts[b"last-generated-id"].decode())


def _check_end(key: str, last: str, position: str) -> None:
    if _order(last) < _order(position):
        raise CommandError(
            f"the redis stream {key!r} ends at {last}, before the stored position {position}: it was deleted and "
            f"made again; forget the position first (shoal sources forget SOURCE)"
        )


def _order(entry: str) -> tuple[int, int]:
    time, _, number = entry.partition("-")
    return int(time), int(number or 0)
