"""Several `shoal serve` processes over one redis-server: what is deployed, on one machine."""

import threading
from collections.abc import Iterable
from pathlib import Path

from harness.redis_server import RedisServer
from harness.running_service import RunningService


class Fleet:
    """API processes and learners over one server. Whatever still runs is ended by `close`."""

    def __init__(
        self, folder: Path, server: RedisServer, apis: int, learners: int, refiners: int = 0, **settings: object
    ) -> None:
        self.server = server
        common = {"store": "redis", "redis_url": server.url, "lease_s": 1.0, **settings}
        self.apis = [self._one(folder, f"api-{n}", {**common, "role": "api"}) for n in range(apis)]
        beside = {"refine_in_learners": refiners == 0}
        self.learners = [
            self._one(folder, f"learner-{n}", {**common, "role": "learner", **beside}) for n in range(learners)
        ]
        self.refiners = [self._one(folder, f"refiner-{n}", {**common, "role": "refiner"}) for n in range(refiners)]

    def _one(self, folder: Path, name: str, settings: dict[str, object]) -> RunningService:
        return RunningService(folder / name, settings)

    @property
    def services(self) -> list[RunningService]:
        """All processes but the server."""
        return [*self.apis, *self.learners, *self.refiners]

    def start(self, services: Iterable[RunningService] | None = None) -> None:
        """Start them side by side, and wait until all are ready."""
        failures: list[Exception] = []

        def one(service: RunningService) -> None:
            try:
                service.start()
            except Exception as error:  # noqa: BLE001 - raised again below
                failures.append(error)

        threads = [threading.Thread(target=one, args=(service,)) for service in services or self.services]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def leader(self) -> RunningService | None:
        """The learner that leads the only stream, by the server's lease; None while nobody does."""
        with self.server.client() as client:
            leases = [client.get(key) for key in client.scan_iter("*:lease")]
        pids = {int(lease.split(b":")[-2]) for lease in leases if lease is not None}
        return next((s for s in self.learners if s.process is not None and s.process.pid in pids), None)

    def close(self) -> None:
        """kill -9 to all."""
        for service in self.services:
            service.kill()
