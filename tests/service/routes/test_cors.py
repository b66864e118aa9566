"""Web pages of other origins: none may read an answer, unless its origin is named."""

from typing import Any

import numpy as np
import pytest

from shoal.errors import SettingError
from shoal_service.settings import load_settings

pytestmark = pytest.mark.parametrize("store_kind", ["memory"])

ADMIN_KEY = "the-admin-key-of-these-tests"
APP = "https://app.example"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


@pytest.mark.anyio
async def test_by_default_no_origin_may_read_anything(start: Any) -> None:
    async with start() as running:
        asked = await running.http.options("/ingest", headers={"Origin": APP, **PREFLIGHT})
        assert asked.status_code == 405
        read = await running.http.get("/streams", headers={"Origin": APP})
        for reply in (asked, read):
            assert not [name for name in reply.headers if name.startswith("access-control-")]


@pytest.mark.anyio
async def test_a_named_origin_may_and_no_other(start: Any) -> None:
    async with start(admin_key=ADMIN_KEY, cors_origins=(APP, "http://localhost:3000")) as running:
        for origin in (APP, "http://localhost:3000"):
            asked = await running.http.options("/ingest", headers={"Origin": origin, **PREFLIGHT})
            assert asked.status_code == 200, "the browser asks without a key"
            assert asked.headers["access-control-allow-origin"] == origin
            assert "POST" in asked.headers["access-control-allow-methods"]
            allowed = asked.headers["access-control-allow-headers"].lower()
            assert all(name in allowed for name in ("authorization", "api-key", "content-type", "idempotency-key"))
            assert "access-control-allow-credentials" not in asked.headers
            for headers in ({}, {"api-key": ADMIN_KEY}):  # a page may read its errors, too
                reply = await running.http.get("/streams", headers={"Origin": origin, **headers})
                assert reply.status_code == (200 if headers else 401)
                assert reply.headers["access-control-allow-origin"] == origin
                assert "Origin" in reply.headers["vary"]
                assert "Retry-After" in reply.headers["access-control-expose-headers"]
        for origin in ("https://app.example.evil", "http://app.example", "null", "https://app.example:8443"):
            asked = await running.http.options("/ingest", headers={"Origin": origin, **PREFLIGHT})
            assert asked.status_code == 400
            reply = await running.http.get("/streams", headers={"Origin": origin, "api-key": ADMIN_KEY})
            assert "access-control-allow-origin" not in asked.headers
            assert "access-control-allow-origin" not in reply.headers


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 202),  # no browser
        ({"Origin": "http://localhost"}, 202),  # a page of the service itself
        ({"Origin": "https://localhost"}, 202),  # the same behind a proxy that speaks TLS
        ({"Origin": APP}, 202),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example", "Content-Type": "text/plain"}, 403),
        ({"Origin": "https://evil.example", "Content-Type": "Text/Plain; charset=utf-8"}, 403),
        ({"Origin": "https://evil.example", "Content-Type": "application/json"}, 202),  # the browser would ask first
    ],
)
async def test_a_page_of_another_origin_cannot_make_work(start: Any, headers: dict[str, str], status: int) -> None:
    """A refinement needs no body, so a browser sends the request without asking, even if the page cannot read it."""
    async with start(cors_origins=(APP,)) as running:
        await running.learn(np.random.default_rng(0).normal(size=(400, 2)))
        content = b"{}" if "json" in headers.get("Content-Type", "") else b""
        reply = await running.http.post("/refine", headers=headers, content=content)
        assert reply.status_code == status, reply.text
        if status == 403:
            assert reply.json()["type"] == "/problems/forbidden"
            assert "--cors-origin" in reply.json()["detail"]


@pytest.mark.anyio
async def test_every_answer_forbids_guessing_its_type(start: Any) -> None:
    async with start() as running:
        for path in ("/", "/docs", "/static/docs.js", "/streams", "/metrics", "/nowhere", "/openapi.json"):
            reply = await running.http.get(path)
            assert reply.headers.get_list("x-content-type-options") == ["nosniff"], path


def test_origins_are_written_as_browsers_send_them(store_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_CORS_ORIGINS", "https://App.Example/, http://localhost:3000,https://a:443")
    assert load_settings().cors_origins == (APP, "http://localhost:3000", "https://a")


@pytest.mark.parametrize("origin", ["*", "null", "app.example", "https://", "https://a/b", "ftp://a", "https://*.a"])
def test_what_is_no_origin_is_refused(store_kind: str, origin: str) -> None:
    with pytest.raises(SettingError, match="not an origin"):
        load_settings(cors_origins=(origin,))
