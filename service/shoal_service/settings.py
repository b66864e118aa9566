"""The service's settings: one frozen object, from flags over `SHOAL_*` environment over a TOML file over defaults.

Sizes may be written as text (`SHOAL_MAX_BODY_BYTES=16MiB`). Another variable that begins with SHOAL_ may be somebody
else's, so it is only pointed out; a name in the TOML file that is no setting is refused, for there it is a slip.
"""

import difflib
import ipaddress
import os
import tomllib
from collections.abc import Mapping
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

from shoal.errors import SettingError

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_PREFIX = "SHOAL_"
_OTHER_VARIABLES = frozenset(("URL", "STREAM", "KERNEL_CACHE", "DATA", "REQUIRE_REDIS"))
"""Read by the command line, the library and the tests."""


class Settings(BaseSettings):
    """Everything that can be set. Raises pydantic's ValidationError; `load_settings` puts that into words."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    config: Path | None = None
    """TOML file with any of the settings below, at its top level."""

    # where it listens, and to whom
    host: str = "127.0.0.1"
    """Address to listen on. Anything but loopback needs `insecure`."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    insecure: bool = False
    """Listen beyond this machine although nothing asks who is calling: anyone who can reach the port can read, write
    and delete every stream."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ("localhost", "127.0.0.1", "[::1]")
    """Names that a request's Host header may have, without port; `*` allows all. As text: separated by commas. The
    address listened on is allowed too, unless it is a wildcard."""

    # what it does
    role: Literal["all", "api", "learner", "refiner"] = "all"
    """`all` answers requests, learns and refines, in one process. `api` answers only, `learner` learns (and refines,
    unless `refine_in_learners` is off), `refiner` refines only; the last two say on their port how they are. Any number
    of each, over the store `redis`."""

    # where it keeps things
    store: Literal["sqlite", "redis", "memory"] = "sqlite"
    """`sqlite` keeps everything in `data_dir`; `redis` on the server at `redis_url`, for any number of processes;
    `memory` forgets everything at exit."""
    data_dir: Path = Path("shoal-data")
    """Folder of the SQLite store, made if it is absent. One process owns it; not on a network file system."""

    redis_url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    """Address of the Redis (or Valkey) server: redis://, rediss:// or unix://, with user and password if it asks for
    them. Never shown."""
    redis_prefix: str = Field("shoal", pattern=r"^[A-Za-z0-9_.:-]{1,64}$")
    """What all keys begin with: two services on one server need two."""
    redis_durability: Literal["always", "wait-aof", "may-lose-a-second"] = "always"
    """What an acknowledged batch has behind it, and how the server must be set: `always` (appendfsync always),
    `wait-aof` (appendfsync everysec, from Redis 7.2 on: appends wait for the sync, up to a second), or
    `may-lose-a-second` (appendfsync everysec: a crash loses what was acknowledged last)."""
    redis_timeout_s: float = Field(10.0, gt=0)
    """How long an answer of the server is waited for."""
    lease_s: float = Field(5.0, ge=0.5)
    """How long a learner that has died, or does not answer, leads its streams on: then another takes over. What a
    refiner does is taken over after three times as long."""

    # how much one request may hold
    max_body_bytes: ByteSize = Field(ByteSize(64 * _MIB), ge=_KIB, le=4 * _GIB - _MIB)
    """Largest body, before and after decompression."""
    max_rows: int = Field(1_000_000, ge=1)
    """Most points in one body."""
    max_features: int = Field(4096, ge=1)
    """Most features of a point."""
    max_predict_get: int = Field(100, ge=1)
    """Most points in the query of GET /predict."""
    max_predict_rows: int = Field(100_000, ge=1)
    """Most points in the body of POST /predict: each is answered with some hundred bytes."""
    max_snapshot_bytes: ByteSize = Field(ByteSize(_GIB), ge=_KIB)
    """Largest snapshot that PUT /snapshot takes."""
    default_wait_s: float = Field(5.0, gt=0)
    """How long `?wait=applied` and `?min_offset=` wait where the request does not say."""
    max_wait_s: float = Field(60.0, gt=0)
    """Longest wait that a request may ask for."""
    decode_processes: int = Field(1, ge=1, le=64)
    """Child processes that decode large JSON bodies."""
    decode_inline_bytes: ByteSize = Field(ByteSize(64 * _KIB), ge=0)
    """Bodies up to this size are decoded at once, between other requests."""
    decode_waiting_bytes: ByteSize = Field(ByteSize(256 * _MIB), ge=_MIB)
    """Bytes of large bodies that may wait to be decoded; past it, 503."""

    # how much a stream may hold
    max_streams: int = Field(64, ge=1)
    """Most streams: each has a thread."""
    max_components: int = Field(4096, ge=1)
    """Most components of a stream whose own settings do not say."""
    max_state_bytes: ByteSize = Field(ByteSize(_GIB), ge=_MIB)
    """Largest state of one stream; a stream's own setting cannot exceed it."""
    log_budget_bytes: ByteSize = Field(ByteSize(256 * _MIB), ge=_MIB)
    """Bytes of a stream's log that may wait to be applied; past it, 503 with Retry-After."""
    log_pace_bytes: ByteSize = Field(ByteSize(16 * _MIB), ge=0)
    """Past so many waiting bytes a batch is let in at the learner's pace: it waits at the door, a second at most."""

    # when things happen
    publish_interval_s: float = Field(0.1, ge=0)
    """Shortest time between two snapshots for readers, unless somebody waits for one."""
    checkpoint_interval_s: float = Field(30.0, gt=0)
    """Longest time between two checkpoints of a stream that changes: what a restart has to replay."""
    checkpoint_points: int = Field(1_000_000, ge=1)
    """Most points between two checkpoints."""
    idempotency_hours: float = Field(24.0, gt=0)
    """How long an Idempotency-Key is remembered."""
    idempotency_keys: int = Field(1_000_000, ge=1)
    """How many Idempotency-Keys of a stream are remembered."""
    shutdown_s: float = Field(20.0, gt=0)
    """Time to finish at SIGTERM: requests are drained, and each stream writes a last checkpoint."""

    # how refinements are made
    refine_timeout_s: float = Field(1800.0, gt=0)
    """Longest that one attempt at a refinement may take."""
    refine_attempts: int = Field(3, ge=1, le=100)
    """Failures of the refining process after which a refinement counts as failed. A restart of the service is none."""
    refine_in_learners: bool = True
    """Whether processes of role `learner` refine too; if not, only those of role `refiner` do."""
    refine_nice: int = Field(10, ge=0, le=19)
    """By how much the process that refines gives way to others."""
    events_kept: int = Field(10_000, ge=1)
    """Changes of identity of a stream that GET /events can go back over."""

    # what it says
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe events that are logged."""
    log_format: Literal["auto", "console", "json"] = "auto"
    """`auto` writes for people on a terminal, JSON elsewhere."""

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split_hosts(cls, value: Any) -> Any:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            return value
        return [_host_name(part) if isinstance(part, str) else part for part in parts if part != ""]

    @field_validator("host")
    @classmethod
    def _unbracketed(cls, value: str) -> str:
        return value.strip().removeprefix("[").removesuffix("]")

    @model_validator(mode="after")
    def _closed_by_default(self) -> Self:
        if not self.insecure and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host!r} can be reached from outside this machine, and there are no keys yet: anyone who"
                " reaches the port could read, write and delete every stream. Use 127.0.0.1, behind a proxy that checks"
                " who is calling, or say --insecure (SHOAL_INSECURE=1) if the network is yours"
            )
        return self

    @model_validator(mode="after")
    def _roles_need_a_shared_store(self) -> Self:
        if self.role != "all" and self.store != "redis":
            raise ValueError(
                f"role {self.role!r} is one of several processes, and the store {self.store!r} belongs to one alone."
                " Say --store redis --redis-url redis://HOST:PORT/0 for all of them, or --role all for one process"
            )
        return self

    @property
    def hosts_allowed(self) -> frozenset[str]:
        """The names that `wire.check_host` takes: `allowed_hosts`, and the address listened on where it is one."""
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
        """Flags, environment, file; no .env and no secrets folder."""
        path = init_settings().get("config") or env_settings().get("config")
        toml = [TomlConfigSettingsSource(settings_cls, toml_file=Path(path))] if path else []
        return (init_settings, env_settings, *toml)


def load_settings(config: Path | str | None = None, **flags: Any) -> Settings:
    """The settings, flags that are None being left to the environment, the file and the defaults.

    SettingError names each setting that is wrong, where it came from, and what it may be.
    """
    given = {name: value for name, value in {"config": config, **flags}.items() if value is not None}
    path = given.get("config") or os.environ.get(f"{_PREFIX}CONFIG")
    if path and not Path(path).is_file():
        raise SettingError(f"there is no settings file {str(path)!r}; give the path of a TOML file, or none")
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingError("; ".join(_in_words(fault, set(given)) for fault in error.errors())) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"the settings file {str(path)!r} is not TOML: {error}") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. A name other than `localhost` is not looked up: it could change."""
    if host.lower().removesuffix(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _host_name(text: str) -> str:
    """A name as a Host header has it: lower case, IPv6 in brackets, no port."""
    name = text.strip().lower()
    try:
        return f"[{ipaddress.IPv6Address(name)}]"
    except ValueError:
        if ":" in name and not name.endswith("]"):
            raise ValueError(f"{text!r} has a port; write the name alone, it is allowed at any port") from None
        return name


def _in_words(fault: Any, flags: set[str]) -> str:
    """One validation error: the setting, where it came from, what was given, what is wrong."""
    if not fault["loc"]:
        return str(fault["msg"]).removeprefix("Value error, ")
    name = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, Settings.model_fields, 1)
        return f"there is no setting {name!r}" + (
            f"; did you mean {near[0]!r}?" if near else "; see shoal serve --help"
        )
    variable = _PREFIX + name.upper()
    source = "flag" if name in flags else variable if variable in map(str.upper, os.environ) else "settings file"
    given = "(not shown)" if name == "redis_url" else repr(fault["input"])
    return f"{name} ({source}) is {given}: {fault['msg']}"


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """One line for each variable that begins as ours do and is none, with the nearest that is one: likely a slip."""
    ours = {name.upper() for name in Settings.model_fields} | _OTHER_VARIABLES
    lines = []
    for variable in sorted(environment):
        prefix, name = variable[: len(_PREFIX)], variable[len(_PREFIX) :]
        if prefix == _PREFIX and name not in ours:
            near = difflib.get_close_matches(name, ours, 1)
            lines.append(f"{variable} is no setting" + (f"; did you mean {_PREFIX}{near[0]}?" if near else ""))
    return lines
