"""A primary, a replica and sentinels on loopback, each a real process: what fails over is the real thing."""

import contextlib
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import redis

from harness.ports import free_port
from harness.redis_server import RedisServer, running_redis
from harness.waiting import eventually

SERVICE = "shoal"
DOWN_MS = 1500
"""A server that is only slow on a busy machine is not replaced."""


class Watched:
    """Two servers, of which the sentinels make one the primary."""

    def __init__(self, servers: list[RedisServer], ports: list[int]) -> None:
        self.servers = servers
        self.url = f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in ports)}/{SERVICE}/0"
        self._ports = ports

    def primary(self) -> RedisServer:
        """The server that the first sentinel names."""
        with redis.Redis(port=self._ports[0], retry=None) as client:
            _, port = client.sentinel_get_master_addr_by_name(SERVICE)
        return next(server for server in self.servers if server.port == int(port))

    def replica(self) -> RedisServer:
        """The other one."""
        primary = self.primary()
        return next(server for server in self.servers if server is not primary)

    def wait_until_replicated(self) -> None:
        """Wait until the replica has all that the primary has, and the sentinels know it."""
        eventually(self._is_replicated, "the replica does not follow", pause_s=0.1)

    def _is_replicated(self) -> bool:
        with self.primary().client() as client, redis.Redis(port=self._ports[0], retry=None) as sentinel:
            said = client.info("replication")
            known = [r for r in sentinel.sentinel_slaves(SERVICE) if r["master-link-status"] == "ok"]
            return bool(known and said["connected_slaves"] and said["slave0"]["offset"] == said["master_repl_offset"])

    def wait_for_failover(self, before: RedisServer) -> None:
        """Wait until another server than `before` is the primary."""
        eventually(lambda: self._is_replaced(before), "no failover", pause_s=0.05)

    def _is_replaced(self, before: RedisServer) -> bool:
        with contextlib.suppress(redis.exceptions.RedisError):
            after = self.primary()
            if after is not before:
                with after.client() as client:
                    return bool(client.info("replication")["role"] == "master")
        return False


@contextlib.contextmanager
def watched_redis(binary: str, folder: Path, sentinels: int = 1) -> Iterator[Watched]:
    """The servers and their sentinels, for as long as the block lasts."""
    with contextlib.ExitStack() as stack:
        servers = []
        for n in range(2):
            place = folder / f"server-{n}"
            place.mkdir()
            servers.append(stack.enter_context(running_redis(binary, place, repl_diskless_sync_delay="0")))
        with servers[1].client() as client:
            client.replicaof("127.0.0.1", str(servers[0].port))
            # a sentinel looks every ten seconds only
            eventually(lambda: client.info("replication")["master_link_status"] == "up", "the replica is not linked")
        ports = [free_port() for _ in range(sentinels)]
        for port in ports:
            place = folder / f"sentinel-{port}"
            place.mkdir()
            file = place / "sentinel.conf"
            file.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {place}\n"
                f"sentinel monitor {SERVICE} 127.0.0.1 {servers[0].port} {sentinels // 2 + 1}\n"
                f"sentinel down-after-milliseconds {SERVICE} {DOWN_MS}\n"
                f"sentinel failover-timeout {SERVICE} 3000\n"
            )
            process = subprocess.Popen([binary, str(file), "--sentinel"], stdout=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        watched = Watched(servers, ports)
        for port in ports:
            eventually(partial(_answers, port), "a sentinel does not answer", pause_s=0.05)
        watched.wait_until_replicated()
        yield watched


def _answers(port: int) -> bool:
    with contextlib.suppress(redis.exceptions.ConnectionError), redis.Redis(port=port, retry=None) as client:
        return bool(client.ping())
    return False
