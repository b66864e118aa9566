"""The redis-server that later tests build on: it is real, and what it acknowledged outlives kill -9."""

from pathlib import Path

import pytest

from harness.redis_server import running_redis

pytestmark = [pytest.mark.system, pytest.mark.redis]


def test_what_redis_acknowledged_outlives_kill_9(redis_binary: str, tmp_path: Path) -> None:
    with running_redis(redis_binary, tmp_path) as server:
        for n in range(1, 51):
            with server.client() as client:
                client.xadd("log", {"n": n}, id=f"{n}-0")
            if n % 10 == 0:
                server.kill()
                server.start()
        with server.client() as client:
            assert [int(fields[b"n"]) for _, fields in client.xrange("log")] == list(range(1, 51))
            assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
