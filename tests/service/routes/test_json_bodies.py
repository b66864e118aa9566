"""Bodies of one JSON object: every endpoint reads their type, encoding and mark in the same way."""

import gzip
import json
from typing import Any

import numpy as np
import pytest

JSON = {"Content-Type": "application/json"}
SOURCE = {"kind": "redis-stream", "redis_url": "redis://redis.example:6379", "keys": ["a"], "enabled": False}
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("PUT", "/streams/other"): {"n_features": 2},
    ("POST", "/records/lookup"): {"keys": ["a"]},
    ("POST", "/projection"): {"features": [0, 1]},
    ("POST", "/refine"): {"method": "vdp"},
    ("PATCH", "/components/0"): {"label": "idle"},
    ("PUT", "/webhooks/hook"): {"url": "https://example.org/h", "events": ["born"], "secret": 4 * "secret"},
    ("PUT", "/sources/one"): SOURCE,
    ("PATCH", "/sources/one"): {"enabled": False},
    ("POST", "/keys"): {"name": "first", "scope": "admin", "streams": []},
}

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]


async def test_every_json_body_has_one_type_and_may_be_compressed(running: Any, clusters: np.ndarray) -> None:
    """Endpoints ignored the encoding, or advised to send formats that they do not read."""
    await running.learn(clusters)
    for (method, path), given in BODIES.items():
        plain = json.dumps(given).encode()

        async def send(body: bytes, method: str = method, path: str = path, **headers: str) -> Any:
            return await running.http.request(method, path, content=body, headers=JSON | headers)

        foreign = await send(plain, **{"Content-Encoding": "br"})
        assert (foreign.status_code, foreign.json()["type"]) == (415, "/problems/unsupported-media-type"), path
        for kind in ("application/msgpack", "text/plain", ""):
            other = await send(plain, **{"Content-Type": kind})
            assert other.status_code == 415, path
            assert other.json()["detail"].endswith("; send application/json"), path
        marked = await send(b"\xef\xbb\xbf" + plain)
        assert marked.status_code == 400
        assert "byte order mark" in marked.json()["detail"], path
        damaged = await send(gzip.compress(plain)[:-4], **{"Content-Encoding": "gzip"})
        assert "cut short" in damaged.json()["detail"], path
        bomb = await send(gzip.compress(b" " * (5 << 20)), **{"Content-Encoding": "gzip"})
        assert bomb.status_code == 413, path
        compressed = await send(gzip.compress(plain), **{"Content-Encoding": "gzip"})
        assert compressed.is_success, (path, compressed.text)
