"""The streams of one process of a role over a shared store, without HTTP: several of them live in one test."""

import io
import json
from typing import Any

from harness.redis_server import RedisServer
from shoal_service.logs import make_log
from shoal_service.settings import Settings
from shoal_service.store.redis import RedisStore
from shoal_service.streams import Runtime


class StreamProcess:
    """Runs from the start to `end`, in good order, or `die`, as by kill -9."""

    def __init__(self, server: RedisServer, prefix: str, role: str, **settings: Any) -> None:
        values = {"store": "redis", "role": role, "lease_s": 0.5, "publish_interval_s": 0.0, **settings}
        self.written = io.StringIO()
        self.store = RedisStore(server.url, prefix=prefix)
        self.runtime = Runtime(self.store, Settings(**values), make_log("debug", "json", self.written))
        self.runtime.start(answers=role != "learner")
        self.streams = self.runtime.streams
        self.ended = False

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.runtime.close(20)
            self.store.close()

    def die(self) -> None:
        """Nothing is renewed, written or given up any more."""
        self.ended = True
        leases = self.runtime.leases
        assert leases is not None
        leases.stop_accepting()
        for learner in leases.learners.values():
            learner.finish(float("-inf"))

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.written.getvalue().splitlines()]
