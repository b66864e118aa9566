"""Checks of the Redis server: its version, its role and its durability, with the reasons against it.

Refusing is better than writing to a server that forgets. The writer therefore checks on every new connection, and again
at each readiness check. After each group of writes it asks for the settings of durability alone.

A server that is killed while it writes a transaction to its file leaves an incomplete one. At the next start, Redis 7.0
cuts the file in the middle of that transaction, not before it (Valkey fixed this in valkey-io/valkey#4342). The next
writes become part of it, and one start later the two are read as one. Acknowledged entries can then be lost, and others
doubled. Nothing is therefore written to a server before it has rewritten its file since its start. The new file comes
from its memory, which holds no incomplete transaction.
"""

import re
from enum import StrEnum
from typing import Any, NamedTuple

import redis

from shoal_service.errors import StoreFormatError, StoreStartingError, StoreUnavailableError
from shoal_service.store.redis.connection import Command, Connection
from shoal_service.store.redis.keys import FORMAT_VERSION, RegistryKeys

OLDEST = (7, 0)
"""First version with flags of scripts and several parameters of CONFIG GET."""
OLDEST_WAIT_AOF = (7, 2)


class Durability(StrEnum):
    """Durability of an acknowledged append. The values are those of a setting."""

    ALWAYS = "always"
    """`appendfsync always`: on the disk of the server. Only losing that disk, or a failover to a replica, loses it."""
    WAIT_AOF = "wait-aof"
    """`appendfsync everysec`, and `WAITAOF` after each group: also on the disk. Appends wait up to a second."""
    MAY_LOSE_A_SECOND = "may-lose-a-second"
    """`appendfsync everysec` alone: a crash of the machine or of the server loses the last second or two."""

    @property
    def promise(self) -> str:
        """Description for people."""
        return {
            Durability.ALWAYS: "in its append-only file, synced (appendfsync always)",
            Durability.WAIT_AOF: "in its append-only file, synced (WAITAOF)",
            Durability.MAY_LOSE_A_SECOND: "in its memory; a crash may lose the last second or two (everysec)",
        }[self]


class ServerFacts(NamedTuple):
    """Facts that the server reports."""

    name: str
    """Either `redis` or `valkey`."""
    version: str
    compatible: tuple[int, ...]
    """First two numbers of the compatible version of Redis."""
    role: str
    clustered: bool
    settings: dict[str, str]
    """Values of the configuration parameters in `SETTINGS`."""
    format_version: int | None
    nodes: int
    run_id: str
    """Id that changes at each start."""
    rewritten: bool
    """Whether the append-only file was rewritten since the start."""
    rewriting: bool


SETTINGS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy")
ASK_DURABILITY: Command = ("CONFIG", "GET", "appendonly", "appendfsync")
"""Question after each group of writes. It costs the server some microseconds beside a sync."""


def ask_facts(connection: Connection, registry: RegistryKeys) -> ServerFacts:
    """Ask the server. StoreUnavailableError when the user lacks the permission."""
    questions: list[Command] = [
        ("INFO",), ("CONFIG", "GET", *SETTINGS), ("GET", registry.format), ("GET", registry.rewritten)
    ]  # fmt: skip
    replies = connection.exchange(questions)
    info, config, version, rewritten = replies
    for reply in replies:
        if isinstance(reply, redis.exceptions.RedisError):
            raise StoreUnavailableError(
                f"the server may not be asked for its settings ({reply}), so its durability is not known; allow the "
                "user INFO, CONFIG GET and GET"
            ) from reply
    said = dict(line.split(":", 1) for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
    compatible = tuple(map(int, re.findall(r"\d+", said["redis_version"])[:2]))
    name = said.get("server_name", "redis")
    clustered = said.get("redis_mode") == "cluster"
    return ServerFacts(
        name=name,
        version=said.get(f"{name}_version") or said["redis_version"],
        compatible=compatible,
        role=said.get("role", "master"),
        clustered=clustered,
        settings=_settings_in(config),
        format_version=int(version) if version is not None else None,
        nodes=_cluster_size(connection) if clustered else 1,
        run_id=said["run_id"],
        rewritten=rewritten == said["run_id"].encode() or _has_rewritten(said),
        rewriting=_is_rewriting(said),
    )


def _settings_in(reply: list[bytes]) -> dict[str, str]:
    return {reply[i].decode(): reply[i + 1].decode() for i in range(0, len(reply), 2)}


def _has_rewritten(said: dict[str, str]) -> bool:
    """Return whether the last rewrite since the start has succeeded. The server counts a rewrite when it begins."""
    begun = int(said.get("aof_rewrites", 0))
    return begun > 0 and not _is_rewriting(said) and said.get("aof_last_bgrewrite_status") == "ok"


def _is_rewriting(said: dict[str, str]) -> bool:
    return said.get("aof_rewrite_in_progress") == "1" or said.get("aof_rewrite_scheduled") == "1"


def _cluster_size(connection: Connection) -> int:
    (info,) = connection.exchange([("CLUSTER", "INFO")])
    found: Any = None if isinstance(info, redis.exceptions.RedisError) else re.search(rb"cluster_size:(\d+)", info)
    return int(found[1]) if found else 0


def check(where: str, facts: ServerFacts, durability: Durability) -> None:
    """Raise StoreFormatError for another format, and StoreUnavailableError with every reason against the server."""
    if facts.format_version not in (None, *range(1, FORMAT_VERSION + 1)):
        raise StoreFormatError(
            f"redis at {where} holds format {facts.format_version}, this shoal reads formats up to {FORMAT_VERSION}; "
            "use the shoal that wrote it, or another prefix"
        )
    if reasons := [*_server_reasons(facts), *_durability_reasons(facts, durability)]:
        raise StoreUnavailableError(
            f"{facts.name} {facts.version} at {where} cannot be trusted with a log: {'; '.join(reasons)}"
        )


def check_unchanged(reply: Any, facts: ServerFacts) -> None:
    """Raise an error of the client unless the reply to `ASK_DURABILITY` agrees with what was checked before."""
    now = reply if isinstance(reply, Exception) else _settings_in(reply)
    if isinstance(now, Exception) or any(facts.settings.get(name) != value for name, value in now.items()):
        raise redis.exceptions.ResponseError(f"its settings have changed, and are checked again ({now})")


def forget_rewrite(connection: Connection, facts: ServerFacts, registry: RegistryKeys) -> None:
    """Forget that the file was rewritten, if it is off. Once it is on again, it lacks what came in between."""
    if facts.settings.get("appendonly") != "yes":
        connection.exchange([("DEL", registry.rewritten)])


def ensure_rewritten(connection: Connection, where: str, facts: ServerFacts, registry: RegistryKeys, ask: bool) -> None:
    """Ensure that the file was rewritten since the start of the server, see above. `ask` allows to request a rewrite.

    StoreStartingError while the rewrite runs. It takes as long as writing everything that the server holds.
    """
    if facts.rewritten:
        connection.exchange([("SET", registry.rewritten, facts.run_id)])  # so that nobody waits for later rewrites
        return
    if ask and not facts.rewriting:
        (reply,) = connection.exchange([("BGREWRITEAOF",)])
        if isinstance(reply, redis.exceptions.NoPermissionError):
            raise StoreUnavailableError(f"redis at {where} must rewrite its file first; allow the user BGREWRITEAOF")
    raise StoreStartingError(f"redis at {where} has started, and rewrites its file before it accepts entries; wait")


def _server_reasons(facts: ServerFacts) -> list[str]:
    reasons = []
    if facts.compatible < OLDEST:
        reasons.append(f"version {'.'.join(map(str, OLDEST))} is the oldest that works")
    if facts.role != "master":
        role = "replica" if facts.role == "slave" else facts.role
        reasons.append(f"it is a {role}, point the address at the primary")
    if facts.nodes != 1:
        reasons.append(f"it is one of {facts.nodes} nodes of a cluster, and requests are not routed among nodes yet")
    if (policy := facts.settings.get("maxmemory-policy")) != "noeviction":
        reasons.append(f"maxmemory-policy is {policy}, which deletes entries when memory is full; set noeviction")
    return reasons


def _durability_reasons(facts: ServerFacts, durability: Durability) -> list[str]:
    if facts.settings.get("appendonly") != "yes":
        return ["appendonly is not yes, so a restart loses everything since the last dump; set appendonly yes"]
    reasons = []
    fsync = facts.settings.get("appendfsync")
    if fsync == "no" or (durability is Durability.ALWAYS and fsync != "always"):
        reasons.append(
            f"appendfsync is {fsync}, so a crash loses what was acknowledged last; set appendfsync always (or choose "
            f"the durability {Durability.WAIT_AOF!s}, or {Durability.MAY_LOSE_A_SECOND!s}, which says what it may lose)"
        )
    if durability is Durability.WAIT_AOF and facts.compatible < OLDEST_WAIT_AOF:
        reasons.append("WAITAOF needs version 7.2")
    if durability is not Durability.MAY_LOSE_A_SECOND and facts.settings.get("no-appendfsync-on-rewrite") == "yes":
        reasons.append("no-appendfsync-on-rewrite is yes, so nothing is synced while the file is rewritten; set no")
    return reasons
