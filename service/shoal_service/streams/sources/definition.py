"""Source: what an admin has defined, what the server allows of it, and what is shown of it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

from shoal.errors import did_you_mean
from shoal_service.addresses import is_private_name
from shoal_service.errors import ParameterError
from shoal_service.settings import Settings
from shoal_service.store import SourceStep, fault_of

HIDDEN = "***"
"""Stands for a secret that is not shown."""
_KAFKA_SECRETS = frozenset(("sasl.password", "ssl.key.pem", "ssl.key.password"))
_KAFKA_SETTINGS = _KAFKA_SECRETS | {
    "allow.auto.create.topics", "broker.address.family", "check.crcs", "client.id", "client.rack",
    "connections.max.idle.ms", "enable.ssl.certificate.verification", "fetch.error.backoff.ms", "fetch.max.bytes",
    "fetch.message.max.bytes", "fetch.min.bytes", "fetch.wait.max.ms", "group.instance.id", "heartbeat.interval.ms",
    "isolation.level", "max.partition.fetch.bytes", "max.poll.interval.ms", "message.max.bytes", "metadata.max.age.ms",
    "queued.max.messages.kbytes", "queued.min.messages", "receive.message.max.bytes", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "security.protocol",
    "session.timeout.ms", "socket.connection.setup.timeout.ms", "socket.keepalive.enable", "socket.nagle.disable",
    "socket.receive.buffer.bytes", "socket.timeout.ms", "ssl.ca.pem", "ssl.certificate.pem",
    "ssl.endpoint.identification.algorithm", "topic.metadata.refresh.interval.ms",
}  # fmt: skip
"""Settings of librdkafka that a request may give. Others read files, load libraries, run commands or name hosts."""
_BROKER = re.compile(r"(?:[a-zA-Z]+://)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")


class SourceDefinition(NamedTuple):
    """Source of a stream."""

    id: str
    """UUID of its creation. A source that is deleted and created again gets another one."""
    revision: int
    """Number of the change of its definition, from 1."""
    name: str
    """Its positions are stored under this name, like those of a connector that runs by itself."""
    kind: str
    """`redis-stream`, `kafka`, `parquet` or `file`."""
    enabled: bool
    settings: dict[str, Any]
    """Under the names of the options of `shoal connect`. A secret is a text, or the name of a variable as {"env"}."""
    created_at: float
    """Unix time."""
    document: bytes = b""
    """What the store holds of it. Empty before it is stored."""


class SourceRules(NamedTuple):
    """What the settings of the server allow."""

    allow_private: bool
    files_below: Path | None

    @classmethod
    def of(cls, settings: Settings) -> "SourceRules":
        """Return the rules of a server."""
        return cls(settings.source_allow_private, settings.source_files)


def encode_definition(definition: SourceDefinition) -> bytes:
    """As JSON."""
    fields = definition._asdict()
    del fields["document"]
    return msgspec.json.encode(fields)


def decode_definition(data: bytes) -> SourceDefinition:
    """Inverse of `encode_definition`."""
    return SourceDefinition(**msgspec.json.decode(data), document=data)


def check_definition(name: str, kind: str, settings: Mapping[str, Any], rules: SourceRules) -> None:
    """Raise ParameterError for a source that this server does not run. Names are looked up when it runs."""
    if (fault := fault_of(SourceStep(name, "0", None, "1"))) is not None:
        raise ParameterError(fault)
    match kind:
        case "redis-stream":
            if isinstance(settings["redis_url"], str):
                check_redis_url(settings["redis_url"], rules)
        case "kafka":
            _check_kafka(settings, rules)
        case "parquet":
            _check_path("folder", settings["folder"], rules)
        case "file":
            _check_path("path", settings["path"], rules)


def check_redis_url(url: str, rules: SourceRules) -> None:
    """Raise ParameterError for an address that the server does not read from."""
    example = "send an address such as rediss://user:password@example.org:6379/0"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:  # its text may have a part of the password
        raise ParameterError(
            f"redis_url is no address; {example}, and / ? # @ of a password as %2F %3F %23 %40"
        ) from None
    if parts.scheme not in ("redis", "rediss") or not host or not url.isascii() or any(c <= " " for c in url):
        raise ParameterError(f"redis_url is no address of a Redis server; {example}")
    if parts.query or parts.fragment or not re.fullmatch(r"/?|/[0-9]{1,5}", parts.path):
        raise ParameterError(
            f"redis_url has more than user, password, host, port and number of the database; {example}"
        )
    if parts.password == HIDDEN:
        raise _shown("redis_url")
    if not rules.allow_private and is_private_name(host):
        raise _private("redis_url", host)


def _check_kafka(settings: Mapping[str, Any], rules: SourceRules) -> None:
    for broker in settings["brokers"].split(","):
        if _BROKER.fullmatch(broker.strip()) is None:
            raise ParameterError(f"brokers has {broker[:80]!r}; send host:port of one or more brokers, with commas")
    if not rules.allow_private:
        raise ParameterError(
            "the brokers of Kafka name further addresses, which this server cannot check; start it with "
            "--set source_allow_private=true if sources may connect to any address, or run shoal connect kafka"
        )
    for name, value in settings["set"].items():
        if name not in _KAFKA_SETTINGS:
            raise ParameterError(
                f"set has {name[:80]!r}, which a request cannot give; {did_you_mean(name, _KAFKA_SETTINGS)}"
                "shoal connect kafka accepts all settings of librdkafka"
            )
        if value == HIDDEN:
            raise _shown(f"set.{name}")


def _check_path(name: str, path: str, rules: SourceRules) -> None:
    if rules.files_below is None:
        raise ParameterError(
            "this server reads no files for sources; its setting source_files names a folder for them, or run "
            "shoal connect beside the files"
        )
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\0" in path or "\\" in path:
        raise ParameterError(
            f"{name} is {path[:80]!r}; send a path relative to the folder that the server allows, without '..'"
        )


def _private(name: str, host: str) -> ParameterError:
    return ParameterError(
        f"{name} leads to {host!r}, a private address; use a public one, or start the server with "
        "--set source_allow_private=true"
    )


def _shown(name: str) -> ParameterError:
    return ParameterError(f"{name} has {HIDDEN}, which stands for a secret that is not shown; send the secret itself")


def shown_settings(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with `HIDDEN` in the place of secrets. Names of variables are shown."""
    shown = dict(settings)
    if kind == "redis-stream" and isinstance(shown["redis_url"], str):
        shown["redis_url"] = _without_password(urlsplit(shown["redis_url"]))
    if kind == "kafka":
        shown["set"] = {
            name: HIDDEN if name in _KAFKA_SECRETS and isinstance(value, str) else value
            for name, value in shown["set"].items()
        }
    return shown


def _without_password(parts: SplitResult) -> str:
    if parts.password is None:
        return parts.geturl()
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username or ''}:{HIDDEN}@{host}").geturl()


def with_variables(settings: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings with the values of the variables that they name. ParameterError for one that is not set."""
    if missing := sorted(set(_variables(settings)) - environment.keys()):
        raise ParameterError(f"the variable {missing[0]} is not set where the service that learns this stream runs")

    def value_of(given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if given.keys() == {"env"}:
            return environment[given["env"]]
        return {name: value_of(value) for name, value in given.items()}

    return {name: value_of(given) for name, given in settings.items()}


def _variables(settings: Mapping[str, Any]) -> Iterator[str]:
    for given in settings.values():
        if isinstance(given, dict):
            if given.keys() == {"env"}:
                yield given["env"]
            else:
                yield from _variables(given)
