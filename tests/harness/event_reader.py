"""A connection to GET /events of an application in this process, which httpx would read to its end."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from harness.waiting import LONGEST_WAIT_S
from shoal_service.wire.models import EventOut


class Reader:
    """One connection to /events, spoken to over ASGI; it reads at its own pace."""

    def __init__(self, app: Any, path: str, headers: dict[str, str] | None = None, query: str = "") -> None:
        self.status = 0
        self.chunks: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)  # a socket that takes no more until it is read
        self._gone = asyncio.Event()
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "path": path,
            "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "scheme": "http",
            "headers": [(k.lower().encode(), v.encode()) for k, v in {"host": "localhost", **(headers or {})}.items()],
            "client": ("127.0.0.1", 1), "server": ("localhost", 80),
        }  # fmt: skip
        self._task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message.get("body"):
            await self.chunks.put(message["body"])

    async def blocks(self) -> AsyncIterator[dict[str, str]]:
        """Each event, or comment, as its fields."""
        while True:
            chunk = await asyncio.wait_for(self.chunks.get(), LONGEST_WAIT_S)
            for block in chunk.decode().split("\n\n"):
                if block:
                    yield dict(line.split(": ", 1) for line in block.splitlines())

    async def events(self, n: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async for block in self.blocks():
            if "event" in block:
                data = json.loads(block["data"])
                EventOut.model_validate(data)
                assert data["kind"] == block["event"]
                found.append({"id": block["id"], **data})
            if len(found) == n:
                return found
        raise AssertionError

    async def close(self) -> None:
        self._gone.set()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
