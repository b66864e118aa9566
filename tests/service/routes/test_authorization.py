"""Every route with each scope, with a key of other streams, with a wrong key and with none."""

import re
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from shoal_service.access import Grant, Scope

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]

ADMIN_KEY = "the-admin-key-of-these-tests"
OPEN_ROUTES = {"GET /healthz", "GET /readyz", "GET /", "GET /docs", "GET /openapi.json", "GET /static"}
NEEDS = {
    "GET /predict": "read", "POST /predict": "read", "GET /components": "read", "GET /components/{component}": "read",
    "GET /clusters": "read", "GET /clusters/{cluster}": "read",
    "GET /events": "read", "GET /refinements": "read", "GET /refinements/{refinement}": "read",
    "GET /dead-letters": "read", "GET /dead-letters/{seq}": "read", "POST /dead-letters/{seq}/requeue": "write",
    "PATCH /components/{component}": "write",
    "GET /records/{key}": "read", "POST /records/lookup": "read", "DELETE /records/{key}": "write",
    "GET /webhooks": "read", "GET /webhooks/{webhook}": "read", "PUT /webhooks/{webhook}": "admin",
    "GET /sources": "read", "GET /sources/{source}": "read", "PUT /sources/{source}": "admin",
    "PATCH /sources/{source}": "admin", "DELETE /sources/{source}": "admin",
    "DELETE /webhooks/{webhook}": "admin", "GET /sample": "read", "POST /projection": "read",
    "POST /score": "read", "GET /records": "read", "GET /components/{component}/records": "read",
    "GET /snapshot": "read", "GET /streams": "read", "GET /streams/{stream}": "read", "GET /metrics": "read",
    "POST /ingest": "write", "POST /refine": "write", "PUT /streams/{stream}": "write",
    "DELETE /streams/{stream}": "admin", "PUT /snapshot": "admin",
    "GET /keys": "admin", "POST /keys": "admin", "DELETE /keys/{key}": "admin",
}  # fmt: skip
"""What each route needs, as docs/http.md promises. A data endpoint needs the same under /streams/{stream}."""
SCOPES = ["read", "write", "admin"]


def routes_of(app: Any) -> dict[str, str]:
    """Every route of an application as `METHOD template`, with a path that leads to it."""
    found = {}
    for route in app.router.routes:
        methods = {"GET"} if isinstance(route, Mount) else route.methods - {"HEAD"}
        path = re.sub(r"\{stream\}", "sea-1", route.path)
        path = re.sub(r"\{\w+(:\w+)?\}", "1", path) + ("/docs.js" if isinstance(route, Mount) else "")
        found |= {f"{method} {route.path}": path for method in methods}
    return found


def need_of(name: str) -> str | None:
    method, path = name.replace(":text", "").split(" ")
    plain = f"{method} {path.removeprefix('/streams/{stream}')}"
    return None if name in OPEN_ROUTES else NEEDS.get(name) or NEEDS[plain]


async def ask(running: Any, name: str, path: str, key: str | None = None, **headers: str) -> httpx.Response:
    """Ask for a route. The points are wrong on purpose: nobody who may come in changes anything."""
    given = {} if key is None else {"Authorization": f"Bearer {key}"}
    method = name.split(" ")[0]
    query = "?after=not-an-event" if path.endswith("/events") else ""
    return await running.http.request(method, path + query, headers={**given, **headers}, content=b"")


@pytest.fixture
def keyed(start: Any) -> Any:
    return start(admin_key=ADMIN_KEY)


async def test_every_route_with_every_scope_and_with_none(keyed: Any) -> None:
    async with keyed as running:
        create = running.service.access.create
        keys: dict[str | None, str | None] = {scope: create(scope, Grant(Scope(scope))).secret for scope in SCOPES}
        keys |= {"bootstrap": ADMIN_KEY, "wrong": "shoal_" + "x" * 43, None: None}
        routes = routes_of(running.http._transport.app)
        assert {name.replace(":text", "") for name in routes} >= NEEDS.keys() | OPEN_ROUTES
        for name, path in routes.items():
            need = need_of(name)
            for held, secret in keys.items():
                reply = await ask(running, name, path, secret)
                what = (name, held, reply.status_code, reply.text[:200])
                if need is None:
                    assert reply.status_code == 200, what
                elif held in (None, "wrong"):
                    assert (reply.status_code, reply.json()["type"]) == (401, "/problems/unauthenticated"), what
                    assert reply.headers["www-authenticate"].startswith("Bearer"), what
                elif held == "bootstrap" or SCOPES.index(held) >= SCOPES.index(need):
                    assert reply.status_code < 500, what
                    assert reply.status_code not in (401, 403), what
                else:
                    assert (reply.status_code, reply.json()["type"]) == (403, "/problems/forbidden"), what
                    assert reply.json()["scope"] == need, what
                    assert f"'{need}'" in reply.json()["detail"], what
                if reply.status_code in (401, 403):
                    assert reply.headers["content-type"] == "application/problem+json", what
                    assert reply.json()["retryable"] is False, what


async def test_a_key_of_some_streams_reaches_those_and_no_others(keyed: Any) -> None:
    async with keyed as running:
        secret = running.service.access.create("sea", Grant(Scope.ADMIN, ("sea-*", "default"))).secret
        for name, path in routes_of(running.http._transport.app).items():
            if need_of(name) is None:
                continue
            covered = await ask(running, name, path, secret)
            whole = name == "GET /metrics" or "/keys" in name
            assert (covered.status_code == 403) == whole, (name, covered.text)
            if "{stream}" in name:
                other = await ask(running, name, path.replace("sea-1", "lake-1"), secret)
                assert other.status_code == 403, (name, other.text)
                assert "'lake-1'" in other.json()["detail"]
                assert "scope" not in other.json()


async def test_plain_paths_are_those_of_the_stream_default(keyed: Any) -> None:
    async with keyed as running:
        secret = running.service.access.create("sea", Grant(Scope.READ, ("sea-*",))).secret
        reply = await ask(running, "GET", "/components", secret)
        assert reply.status_code == 403
        assert "'default'" in reply.json()["detail"]


async def test_a_list_of_streams_has_those_that_the_key_covers(keyed: Any) -> None:
    async with keyed as running:
        admin = {"api-key": ADMIN_KEY}
        for name in ("sea-1", "sea-2", "lake-1"):
            made = await running.http.put(f"/streams/{name}", json={"n_features": 2}, headers=admin)
            assert made.status_code == 201, made.text
        secret = running.service.access.create("sea", Grant(Scope.READ, ("sea-*",))).secret
        seen = (await running.http.get("/streams", headers={"api-key": secret})).json()["streams"]
        assert [stream["stream"] for stream in seen] == ["sea-1", "sea-2"]
        every = (await running.http.get("/streams", headers=admin)).json()["streams"]
        assert [stream["stream"] for stream in every] == ["lake-1", "sea-1", "sea-2"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": f"Bearer {ADMIN_KEY}"}, 200),
        ({"authorization": f"bearer   {ADMIN_KEY} "}, 200),
        ({"api-key": ADMIN_KEY}, 200),
        ({"API-Key": ADMIN_KEY, "Authorization": "Basic dXNlcjpwYXNz"}, 200),
        ({"api-key": "wrong", "Authorization": f"Bearer {ADMIN_KEY}"}, 200),
        ({"api-key": ADMIN_KEY, "Authorization": "Bearer wrong"}, 401),
        ({"Authorization": ADMIN_KEY}, 401),
        ({"Authorization": f"Basic {ADMIN_KEY}"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": f"Bearer {ADMIN_KEY}{ADMIN_KEY}"}, 401),
        ({"Cookie": f"api-key={ADMIN_KEY}"}, 401),
        ({}, 401),
    ],
)
async def test_the_two_ways_to_send_a_key(keyed: Any, headers: dict[str, str], status: int) -> None:
    async with keyed as running:
        assert (await running.http.get("/streams", headers=headers)).status_code == status


async def test_a_key_in_the_address_is_no_key(keyed: Any) -> None:
    async with keyed as running:
        assert (await running.http.get(f"/streams?api-key={ADMIN_KEY}")).status_code == 401


async def test_what_is_not_there_is_not_told_from_what_is_without_a_key(keyed: Any) -> None:
    async with keyed as running:
        admin = {"api-key": ADMIN_KEY}
        for method, path in (("GET", "/nowhere"), ("POST", "/streams"), ("PATCH", "/ingest"), ("OPTIONS", "/ingest")):
            assert (await running.http.request(method, path)).status_code == 401, path
        assert (await running.http.get("/nowhere", headers=admin)).status_code == 404
        assert (await running.http.patch("/ingest", headers=admin)).status_code == 405
        assert (await running.http.head("/streams")).status_code == 401
        assert (await running.http.head("/streams", headers=admin)).status_code == 200
        unknown = await running.http.get("/streams/none", headers=admin)
        assert (unknown.status_code, unknown.json()["type"]) == (404, "/problems/unknown-stream")


async def test_a_route_that_declares_nothing_needs_an_admin_key(keyed: Any) -> None:
    async with keyed as running:

        async def forgotten(request: Request) -> Response:
            return Response("secret")

        running.http._transport.app.add_route("/forgotten", forgotten)
        write = running.service.access.create("write", Grant(Scope.WRITE)).secret
        replies = [
            await running.http.get("/forgotten", headers=headers)
            for headers in ({}, {"api-key": write}, {"api-key": ADMIN_KEY})
        ]
        assert [reply.status_code for reply in replies] == [401, 403, 200]


async def test_metrics_are_open_by_a_setting(start: Any) -> None:
    async with start(admin_key=ADMIN_KEY, open_metrics=True) as running:
        assert (await running.http.get("/metrics")).status_code == 200
        assert (await running.http.get("/streams")).status_code == 401


async def test_a_service_without_keys_is_open_until_the_first_one(start: Any) -> None:
    async with start() as running:
        assert (await running.http.get("/streams", headers={"api-key": "whatever"})).status_code == 200
        assert (await running.http.get("/streams")).status_code == 200
        running.service.access.create("first", Grant(Scope.READ))
        assert (await running.http.get("/streams")).status_code == 401


async def test_a_body_is_not_read_for_a_caller_who_may_not_send_it(keyed: Any) -> None:
    async with keyed as running:
        sent = 0

        async def body() -> Any:
            nonlocal sent
            for _ in range(100):
                sent += 1
                yield b"x" * 1000

        assert (await running.http.post("/ingest", content=body())).status_code == 401
        assert sent == 0


async def test_openapi_says_what_needs_a_key(keyed: Any) -> None:
    async with keyed as running:
        document = await running.json("/openapi.json")
        schemes = document["components"]["securitySchemes"]
        assert schemes["bearer"]["scheme"] == "bearer"
        assert (schemes["api-key"]["in"], schemes["api-key"]["name"]) == ("header", "api-key")
        for path, item in document["paths"].items():
            for verb, operation in item.items():
                secured = need_of(f"{verb.upper()} {path}") is not None
                assert operation["security"] == ([{"bearer": []}, {"api-key": []}] if secured else []), (verb, path)
                assert ({"401", "403", "429"} <= operation["responses"].keys()) == secured, (verb, path)
