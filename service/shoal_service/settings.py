"""Settings of the service, as one frozen object. Flags override `SHOAL_*` variables, which override a TOML file.

Sizes may be written as text (`SHOAL_MAX_BODY_BYTES=16MiB`). An unknown variable that begins with SHOAL_ may belong to
another program, so it only causes a warning. An unknown name in the TOML file is refused.
"""

import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ByteSize, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from shoal.errors import SettingError, did_you_mean, nearest_name
from shoal_service.errors import spelling_advice

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_PREFIX = "SHOAL_"
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_SECRET = frozenset(("redis_url", "admin_key"))
SOURCE_VARIABLES = f"{_PREFIX}SOURCE_SECRET_"
"""How the names of variables begin that configured sources may use."""
_OTHER_VARIABLES = frozenset(("URL", "STREAM", "API_KEY", "KERNEL_CACHE", "DATA", "REQUIRE_REDIS"))
"""Read by the command line, the library and the tests."""


class Settings(BaseSettings):
    """All settings. Raises ValidationError of pydantic; `load_settings` describes it in words."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    config: Path | None = None
    """TOML file with any of the settings, at its top level."""

    # address
    host: str = "127.0.0.1"
    """Address to listen on. An address other than loopback needs an access key, or `insecure`."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen on. 0 chooses a free port."""
    insecure: bool = False
    """Allow an address other than loopback without an access key: anyone who can reach the port can then read, write
    and delete every stream. Keys that exist are still needed."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ("localhost", "127.0.0.1", "[::1]")
    """Host names that requests may use, without port, separated by commas. `*` allows all. The address to listen on is
    also allowed, unless it is a wildcard."""

    # access
    admin_key: SecretStr | None = None
    """Access key of scope admin, at least 20 characters. It is never shown. A file is better: `admin_key_file`."""
    admin_key_file: Path | None = None
    """File that holds an access key of scope admin, read at the start. If it is missing, a key is made and written
    there, for its owner only."""
    open_metrics: bool = False
    """Whether /metrics answers without a key. Otherwise it needs one of scope read that covers all streams."""

    # browsers and TLS
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins of web pages that may read answers, such as https://app.example, separated by commas. None by default."""
    tls_cert: Path | None = None
    """PEM file with the certificate of the server and its chain, together with `tls_key`. The service then speaks TLS
    only."""
    tls_key: Path | None = None
    """PEM file with the key of the certificate, without password."""

    # role
    role: Literal["all", "api", "learner", "refiner"] = "all"
    """Task of this process. `all` answers requests, learns and refines. `api` only answers requests. `learner` learns,
    and also refines unless `refine_in_learners` is off. `refiner` only refines. All roles but `all` need the store
    `redis`, and any number of processes may have each role. Learners and refiners answer /healthz, /readyz and
    /metrics."""

    # store
    store: Literal["sqlite", "redis", "memory"] = "sqlite"
    """Where data is kept. `sqlite`: in the folder `data_dir`. `redis`: on the server at `redis_url`, for any number of
    processes. `memory`: nowhere, everything is lost at exit."""
    data_dir: Path = Path("shoal-data")
    """Folder of the SQLite store, created if needed. Only one process can use it. It must not be on a network drive."""

    redis_url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    """Address of the Redis (or Valkey) server: redis://, rediss:// or unix://, with user and password if needed. With
    Sentinel: redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/0, which follows a failover. It is never shown."""
    redis_prefix: str = Field("shoal", pattern=r"^[A-Za-z0-9_.:-]{1,64}$")
    """Prefix of all Redis keys. Two services on one server need different prefixes."""
    redis_durability: Literal["always", "wait-aof", "may-lose-a-second"] = "always"
    """How durable an acknowledged batch is, and how Redis must be configured. `always`: appendfsync always. `wait-aof`:
    appendfsync everysec and Redis 7.2 or later; each append waits for the sync, up to a second. `may-lose-a-second`:
    appendfsync everysec; a crash can lose the batches of the last second."""
    redis_timeout_s: float = Field(10.0, gt=0)
    """Longest time to wait for an answer of the Redis server, in seconds."""
    lease_s: float = Field(5.0, ge=0.5)
    """Seconds after which another learner takes over the streams of a learner that died or does not answer. The work of
    a refiner is taken over after three times as long."""

    # partitions of a stream
    share_pieces: bool = True
    """Whether this process computes pieces of streams with partitions for other processes of the store `redis`, and
    lets them compute pieces of its own. A process of role `api` never does."""
    piece_threads: int = Field(0, ge=0, le=1024)
    """Pieces of a stream that this process computes at the same time before it offers others to other processes. 0: one
    per core."""

    # limits on a request
    max_connections: int = Field(10_000, ge=1)
    """Largest number of connections. It is lower if the limit on open files of the process is."""
    max_body_bytes: ByteSize = Field(ByteSize(64 * _MIB), ge=_KIB, le=4 * _GIB - _MIB)
    """Largest request body, before and after decompression."""
    max_rows: int = Field(1_000_000, ge=1)
    """Largest number of points in one body."""
    max_features: int = Field(4096, ge=1)
    """Largest number of features of a point."""
    max_payload_bytes: ByteSize = Field(ByteSize(4096), ge=2, le=_MIB)
    """Largest payload of a record, as JSON."""
    max_predict_get: int = Field(100, ge=1)
    """Largest number of points in the query of GET /predict."""
    max_predict_rows: int = Field(100_000, ge=1)
    """Largest number of points in the body of POST /predict. The answer has some hundred bytes per point."""
    max_snapshot_bytes: ByteSize = Field(ByteSize(_GIB), ge=_KIB)
    """Largest snapshot that PUT /snapshot accepts."""
    default_wait_s: float = Field(5.0, gt=0)
    """Seconds that `?wait=applied` and `?min_offset=` wait, if the request has no `timeout`."""
    max_wait_s: float = Field(60.0, gt=0)
    """Largest `timeout` of a request, in seconds."""
    decode_processes: int = Field(1, ge=1, le=64)
    """Number of child processes that decode large JSON bodies."""
    decode_inline_bytes: ByteSize = Field(ByteSize(64 * _KIB), ge=0)
    """Bodies up to this size are decoded in the main process."""
    decode_waiting_bytes: ByteSize = Field(ByteSize(256 * _MIB), ge=_MIB)
    """Total size of the large bodies that may wait for decoding. Beyond it, requests get 503."""

    # limits on a stream
    max_streams: int = Field(64, ge=1)
    """Largest number of streams. Over Redis, each that a process learns has a thread."""
    max_components: int = Field(4096, ge=1)
    """Largest number of components of a stream, unless its own settings name another."""
    max_state_bytes: ByteSize = Field(ByteSize(_GIB), ge=_MIB)
    """Largest state of one stream. The setting of a stream cannot exceed it."""
    max_window: int = Field(10_000_000, ge=0)
    """Largest window of one stream, in points. The setting of a stream cannot exceed it."""
    max_window_bytes: ByteSize = Field(ByteSize(_GIB), ge=0)
    """Largest window of one stream, in bytes. The setting of a stream cannot exceed it."""
    log_budget_bytes: ByteSize = Field(ByteSize(256 * _MIB), ge=_MIB)
    """Size of the log of a stream that may wait for learning. Beyond it, requests get 503 with Retry-After."""
    log_pace_bytes: ByteSize = Field(ByteSize(16 * _MIB), ge=0)
    """If more bytes wait for learning, each request waits for the learner, at most a second."""

    # times
    publish_interval_s: float = Field(0.1, ge=0)
    """Shortest time between two updates for readers, in seconds, unless a request waits for one."""
    checkpoint_interval_s: float = Field(30.0, gt=0)
    """Longest time between two checkpoints of a stream that changes, in seconds. A restart replays what came later."""
    checkpoint_points: int = Field(1_000_000, ge=1)
    """Largest number of points between two checkpoints."""
    stream_idle_s: float = Field(600.0, gt=0)
    """Time after which a stream that nobody uses leaves the memory of a process over SQLite, in seconds. The next
    request loads it."""
    idempotency_hours: float = Field(24.0, gt=0)
    """Hours for which an Idempotency-Key is remembered."""
    idempotency_keys: int = Field(1_000_000, ge=1)
    """Number of Idempotency-Keys that are remembered per stream."""
    shutdown_s: float = Field(20.0, gt=0)
    """Seconds to finish after SIGTERM: running requests end, and each stream writes a last checkpoint."""

    # refinements
    refine_timeout_s: float = Field(1800.0, gt=0)
    """Longest time for one attempt at a refinement, in seconds."""
    refine_attempts: int = Field(3, ge=1, le=100)
    """Failures of the refining process after which a refinement fails. A restart of the service does not count."""
    refine_in_learners: bool = True
    """Whether learners also refine. If not, only processes of role `refiner` do."""
    refine_nice: int = Field(10, ge=0, le=19)
    """By how much the process that refines gives way to others."""
    events_kept: int = Field(10_000, ge=1)
    """Changes of identity of a stream that GET /events can go back over."""

    # webhooks
    webhook_allow_private: bool = False
    """Whether webhooks may lead to private, loopback and link-local addresses. Whoever has an admin key can then make
    this server send requests to machines near it."""
    webhook_timeout_s: float = Field(10.0, gt=0)
    """Longest time for one attempt at sending a webhook, in seconds."""
    webhook_retry_s: float = Field(1.0, gt=0)
    """Pause after the first failed attempt, in seconds. It doubles with each failure, up to five minutes.
    `Retry-After` in an answer makes it longer."""
    webhook_give_up_s: float = Field(3600.0, ge=0)
    """Seconds after which a message that the receiver does not accept is given up. It is kept as a dead delivery, and
    the next one is sent."""

    # sources
    source_allow_private: bool = False
    """Whether configured sources may connect to private, loopback and link-local addresses. Sources of the kind `kafka`
    need it, because brokers name further addresses. Whoever has an admin key can then have this server connect to
    machines near it."""
    source_files: Path | None = None
    """Folder below which configured sources may read files. Without it they read none."""
    source_processes: int = Field(16, ge=0)
    """Largest number of configured sources that this process runs, each in a child process. 0: none."""

    # logs
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of events that are logged."""
    log_format: Literal["auto", "console", "json"] = "auto"
    """`console` writes text for people, `json` one JSON object per event. `auto` chooses by the terminal."""

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split_hosts(cls, value: Any) -> Any:
        return _split(value, _host_name)

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split_origins(cls, value: Any) -> Any:
        return _split(value, _origin)

    @field_validator("host")
    @classmethod
    def _unbracketed(cls, value: str) -> str:
        return value.strip().removeprefix("[").removesuffix("]")

    @model_validator(mode="after")
    def _roles_need_a_shared_store(self) -> Self:
        if self.role != "all" and self.store != "redis":
            raise ValueError(
                f"role {self.role!r} is for several processes, but only one process can use the store {self.store!r}."
                " Use --store redis --redis-url redis://HOST:PORT/0 for all of them, or --role all for one process"
            )
        return self

    @property
    def hosts_allowed(self) -> frozenset[str]:
        """Allowed host names for `wire.check_host`: `allowed_hosts`, and the address to listen on."""
        if self.host in ("", "0.0.0.0", "::"):
            return frozenset(self.allowed_hosts)
        return frozenset((*self.allowed_hosts, f"[{self.host}]" if ":" in self.host else self.host.lower()))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read flags, environment and file, but no .env file and no folder of secrets."""
        path = init_settings().get("config") or os.environ.get(f"{_PREFIX}CONFIG")
        toml = [TomlConfigSettingsSource(settings_cls, toml_file=Path(path))] if path else []
        return (init_settings, env_settings, *toml)


def load_settings(config: Path | str | None = None, **flags: Any) -> Settings:
    """Load the settings. A flag that is None is left to the environment, the file and the default.

    Raises SettingError, which names each wrong setting, its source, and the values that it may have.
    """
    given = {name: value for name, value in {"config": config, **flags}.items() if value is not None}
    path = given.get("config") or os.environ.get(f"{_PREFIX}CONFIG")
    if path and not Path(path).is_file():
        raise SettingError(f"the settings file {str(path)!r} does not exist; give the path of a TOML file, or none")
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingError("; ".join(_in_words(fault, set(given)) for fault in error.errors())) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"the settings file {str(path)!r} is not TOML: {error}") from error


def is_exposed(settings: Settings) -> bool:
    """Whether other machines can reach the service, and `insecure` does not allow that without a key."""
    return not settings.insecure and not is_loopback(settings.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. Names other than `localhost` count as reachable from outside."""
    if host.lower().removesuffix(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _split(value: Any, read: Callable[[str], str]) -> Any:
    """The parts of a text with commas, or those of a list, each as `read` reads it. Other values stay as they are."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        return value
    return [read(part) if isinstance(part, str) else part for part in parts if part != ""]


def _host_name(text: str) -> str:
    """Write a name as in a Host header: in lower case, IPv6 in brackets, without port."""
    name = text.strip().lower()
    try:
        return f"[{ipaddress.IPv6Address(name)}]"
    except ValueError:
        if ":" in name and not name.endswith("]"):
            raise ValueError(f"{text!r} has a port; write the name without port, it is allowed at any port") from None
        return name


def _origin(text: str) -> str:
    """Write an origin as browsers send it: scheme and host in lower case, and the port unless it is the usual one."""
    origin = text.strip().lower().removesuffix("/")
    if not _ORIGIN.fullmatch(origin):
        raise ValueError(f"{text!r} is not an origin; write it like https://app.example or http://localhost:3000")
    scheme, _, host = origin.partition("://")
    return f"{scheme}://{host.removesuffix({'http': ':80', 'https': ':443'}[scheme])}"


def _in_words(fault: Any, flags: set[str]) -> str:
    """Describe one validation error: the setting, its source, the given value, and what is wrong."""
    if not fault["loc"]:
        return str(fault["msg"]).removeprefix("Value error, ")
    name = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        advice = did_you_mean(name, Settings.model_fields).rstrip()
        return f"{name!r} is not a setting; {advice or 'see shoal serve --help'}"
    variable = _PREFIX + name.upper()
    source = "flag" if name in flags else variable if variable in map(str.upper, os.environ) else "settings file"
    given = "(not shown)" if name in _SECRET else repr(fault["input"])
    return f"{name} ({source}) is {given}: {fault['msg']}{spelling_advice(fault)}"


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """One line for each variable with our prefix that is not a setting, with the most similar setting."""
    ours = {name.upper() for name in Settings.model_fields} | _OTHER_VARIABLES
    lines = []
    for variable in sorted(environment):
        prefix, name = variable[: len(_PREFIX)], variable[len(_PREFIX) :]
        if prefix == _PREFIX and name not in ours and not variable.startswith(SOURCE_VARIABLES):
            near = nearest_name(name, ours)
            lines.append(f"{variable} is not a setting" + (f"; did you mean {_PREFIX}{near}?" if near else ""))
    return lines
