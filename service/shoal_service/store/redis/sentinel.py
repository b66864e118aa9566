"""Connections to the primary that Redis Sentinel names. It is asked at each connect, so that a failover is followed.

The address is `redis+sentinel://user:password@host:port,host:port/service/database`, or `rediss+sentinel://` for TLS to
servers and sentinels. User and password are those of the servers. `?sentinel_username=` and `?sentinel_password=` give
those of the sentinels, where they ask for any.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import redis
import redis.sentinel

SCHEMES = ("redis+sentinel", "rediss+sentinel")
PORT = 26379
"""Port of a sentinel whose address has none."""

Address = tuple[str, int]

_client: Any = redis  # these parts of it have no types


class SentinelUrl(NamedTuple):
    """Parts of an address."""

    sentinels: list[Address]
    service: str
    """Name under which the sentinels watch the primary."""
    database: int
    tls: bool
    login: dict[str, str]
    """User and password of the servers, as options of a connection."""
    sentinel_login: dict[str, str]


def is_sentinel_url(url: str) -> bool:
    """Whether the address is of this kind."""
    return urlsplit(url).scheme in SCHEMES


def parse_sentinel_url(url: str) -> SentinelUrl:
    """Return the parts of an address. ValueError says what is missing or wrong, without the password."""
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("the address of sentinels names no service, as in redis+sentinel://host:26379/mymaster/0")
    if database and not database.isdecimal():
        raise ValueError(f"the database of the address of sentinels is {database!r}; give a number, or nothing for 0")
    query = parse_qs(parts.query, strict_parsing=bool(parts.query))
    if unknown := query.keys() - {"sentinel_username", "sentinel_password"}:
        raise ValueError(f"the address of sentinels has the unknown parameter {min(unknown)!r}")
    return SentinelUrl(
        [_address(host) for host in hosts.split(",")],
        unquote(service),
        int(database or 0),
        parts.scheme == "rediss+sentinel",
        {name: unquote(value) for name, value in (("username", user), ("password", password)) if value},
        {name.removeprefix("sentinel_"): values[-1] for name, values in query.items()},
    )


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    if not host or not port.isdecimal():
        raise ValueError(f"{text!r} is no address of a sentinel; give host:port, several with commas between them")
    return host.strip("[]"), int(port)


class Primary:
    """The primary of a service, as the sentinels name it."""

    def __init__(self, url: SentinelUrl, options: dict[str, Any]) -> None:
        """`options` of a connection give the timeouts of the questions to the sentinels."""
        kept = {name: value for name, value in options.items() if name in ("retry", "socket_timeout")}
        timeout_s = options["socket_connect_timeout"]
        self._service = url.service
        self._sentinels = _client.sentinel.Sentinel(
            url.sentinels,
            sentinel_kwargs={**kept, "socket_connect_timeout": timeout_s, "ssl": url.tls, **url.sentinel_login},
        )

    def address(self) -> Address:
        """Ask the sentinels. Raises an error of the client when none of them names a primary."""
        host, port = self._sentinels.discover_master(self._service)
        return str(host), int(port)


class _AtPrimary:
    """Part of a connection: looks up the address whenever it connects."""

    def __init__(self, *, primary: Callable[[], Address], **options: Any) -> None:
        self._primary = primary
        super().__init__(**options)

    def _connect(self) -> Any:
        self.host, self.port = self._primary()
        return super()._connect()  # type: ignore[misc]


class PlainConnection(_AtPrimary, redis.Connection):
    """Connection to the primary."""


class TlsConnection(_AtPrimary, redis.SSLConnection):
    """Connection to the primary over TLS."""


def pool_at_primary(url: str, options: dict[str, Any], **pool_options: Any) -> tuple[Any, Primary]:
    """Return a pool whose connections find the primary, and the primary. ValueError for a wrong address."""
    parsed = parse_sentinel_url(url)
    primary = Primary(parsed, options)
    pool = _client.BlockingConnectionPool(
        connection_class=TlsConnection if parsed.tls else PlainConnection,
        primary=primary.address,
        db=parsed.database,
        **parsed.login,
        **pool_options,
    )
    return pool, primary
