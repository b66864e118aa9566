"""/keys over HTTP: a key is made, shown once, used, listed and revoked, on every store."""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness.waiting import LONGEST_WAIT_S
from shoal_service.access import Grant, Scope
from shoal_service.wire.models import KeysOut, NewKeyOut

pytestmark = pytest.mark.anyio

ADMIN_KEY = "the-admin-key-of-these-tests"
ADMIN = {"api-key": ADMIN_KEY}

in_memory = pytest.mark.parametrize("store_kind", ["memory"])
lasting = pytest.mark.parametrize("store_kind", ["sqlite", pytest.param("redis", marks=pytest.mark.redis)])


async def test_a_key_from_its_creation_to_its_end(start: Any) -> None:
    async with start(admin_key=ADMIN_KEY) as running:
        asked = {"name": "gauge", "scope": "write", "streams": ["sea-*"], "expires": "30d"}
        before = time.time()
        made = await running.http.post("/keys", json=asked, headers=ADMIN)
        assert made.status_code == 201, made.text
        body = NewKeyOut.model_validate(made.json())
        assert made.headers["location"] == f"/keys/{body.id}"
        assert made.headers["cache-control"] == "no-store"
        assert (body.name, body.scope, body.streams, body.last_used_at) == ("gauge", "write", ["sea-*"], None)
        expires = datetime.fromisoformat(str(body.expires_at)).timestamp()
        assert -1.0 <= expires - before - 30 * 86_400 <= 5.0

        own = {"Authorization": f"Bearer {body.key}"}
        assert (await running.http.put("/streams/sea-1", json={"n_features": 2}, headers=own)).status_code == 201
        assert (await running.http.put("/streams/lake-1", json={"n_features": 2}, headers=own)).status_code == 403
        assert (await running.http.get("/keys", headers=own)).status_code == 403

        listed = await running.http.get("/keys", headers=ADMIN)
        bootstrap, found = KeysOut.model_validate(listed.json()).keys
        assert (bootstrap.id, bootstrap.scope, bootstrap.created_at) == ("bootstrap", "admin", None)
        assert found.model_dump() == body.model_dump(exclude={"key"}) | {"last_used_at": found.last_used_at}
        used_at = datetime.fromisoformat(str(found.last_used_at)).timestamp()
        assert before - 1.0 <= used_at <= time.time()

        revoked = await running.http.delete(made.headers["location"], headers=ADMIN)
        assert (revoked.status_code, revoked.content) == (204, b"")
        assert (await running.http.get("/streams", headers=own)).status_code == 401
        again = await running.http.delete(made.headers["location"], headers=ADMIN)
        assert (again.status_code, again.json()["type"]) == (404, "/problems/unknown-key")
        assert [key["id"] for key in (await running.http.get("/keys", headers=ADMIN)).json()["keys"]] == ["bootstrap"]


@lasting
async def test_keys_survive_the_end_of_a_process(start: Any) -> None:
    async with start(admin_key=ADMIN_KEY) as running:
        made = (await running.http.post("/keys", json={"name": "a", "scope": "admin"}, headers=ADMIN)).json()
    async with start() as running:
        assert (await running.http.get("/streams")).status_code == 401
        assert (await running.http.get("/streams", headers=ADMIN)).status_code == 401
        assert (await running.http.get("/keys", headers={"api-key": made["key"]})).status_code == 200


@pytest.mark.parametrize(
    ("body", "slug", "words"),
    [
        (b"", "malformed-body", "JSON"),
        (b"[1]", "malformed-body", "JSON"),
        (b"{}", "parameter", "name is missing"),
        (b'{"name":"a"}', "parameter", "scope is missing"),
        (b'{"name":"a","scope":"root"}', "parameter", "'read', 'write' or 'admin'"),
        (b'{"name":"","scope":"read"}', "parameter", "name"),
        (b'{"name":"a\\nb","scope":"read"}', "parameter", "printable"),
        (b'{"name":"a","scope":"read","streams":"x"}', "parameter", "streams"),
        (b'{"name":"a","scope":"read","streams":["X"]}', "parameter", "matches no stream"),
        (b'{"name":"a","scope":"read","expires":"soon"}', "parameter", "30d"),
        (b'{"name":"a","scope":"read","expires":"2020-01-01T00:00:00Z"}', "parameter", "future"),
        (b'{"name":"a","scope":"read","expires":"2099-01-01T00:00:00"}', "parameter", "zone"),
        (b'{"name":"a","scope":"read","expires":"0d"}', "parameter", "future"),
        (b'{"name":"a","scope":"read","expires":"999999999w"}', "parameter", "after the year 9999"),
        (b'{"name":"a","scope":"read","stream":"x"}', "parameter", "stream"),
    ],
)
@in_memory
async def test_what_is_no_key_is_refused(start: Any, body: bytes, slug: str, words: str) -> None:
    async with start(admin_key=ADMIN_KEY) as running:
        headers = {**ADMIN, "Content-Type": "application/json"}
        reply = await running.http.post("/keys", content=body, headers=headers)
        assert (reply.status_code, reply.json()["type"]) == (400, f"/problems/{slug}"), reply.text
        assert words in reply.json()["detail"]
        assert len((await running.http.get("/keys", headers=ADMIN)).json()["keys"]) == 1


@in_memory
async def test_a_key_must_be_asked_for_as_json(start: Any) -> None:
    """A web page can send a form or plain text to another site without asking; JSON it cannot."""
    async with start() as running:
        for kind in ("text/plain", "application/x-www-form-urlencoded", None):
            headers = {} if kind is None else {"Content-Type": kind}
            reply = await running.http.post("/keys", content=b'{"name":"a","scope":"admin"}', headers=headers)
            assert reply.status_code == 415, kind
        assert not running.service.access.has_keys


@in_memory
async def test_the_first_key_must_be_one_that_can_make_others(start: Any) -> None:
    async with start() as running:
        for more in ({"scope": "write"}, {"scope": "admin", "streams": ["a"]}, {"scope": "admin", "expires": "1d"}):
            reply = await running.http.post("/keys", json={"name": "first", **more})
            assert (reply.status_code, reply.json()["type"]) == (400, "/problems/parameter"), more
            assert (await running.http.get("/streams")).status_code == 200
        made = await running.http.post("/keys", json={"name": "first", "scope": "admin"})
        assert made.status_code == 201
        assert (await running.http.get("/streams")).status_code == 401
        own = {"api-key": made.json()["key"]}
        assert (await running.http.post("/keys", json={"name": "b", "scope": "read"}, headers=own)).status_code == 201


@in_memory
async def test_of_two_first_keys_at_once_one_is_made(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start() as running:
        put, both = running.store.put_access_key, threading.Barrier(2)

        def put_once_both_are_let_in(key: Any, **more: Any) -> None:
            both.wait(LONGEST_WAIT_S)
            put(key, **more)

        monkeypatch.setattr(running.store, "put_access_key", put_once_both_are_let_in)
        replies = await asyncio.gather(
            *(running.http.post("/keys", json={"name": name, "scope": "admin"}) for name in ("a", "b"))
        )
        made, refused = sorted(replies, key=lambda reply: reply.status_code)
        assert (made.status_code, refused.json()["type"]) == (201, "/problems/unauthenticated")
        assert "another client has created the first key" in refused.json()["detail"]
        keys = (await running.http.get("/keys", headers={"api-key": made.json()["key"]})).json()["keys"]
        assert [key["id"] for key in keys] == [made.json()["id"]]


@in_memory
async def test_a_key_expires_while_the_service_runs(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(admin_key=ADMIN_KEY) as running:
        at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        made = await running.http.post("/keys", json={"name": "a", "scope": "read", "expires": at}, headers=ADMIN)
        own = {"api-key": made.json()["key"]}
        assert (await running.http.get("/streams", headers=own)).status_code == 200
        monkeypatch.setattr(running.service.access, "_clock", lambda: time.time() + 3601.0)
        late = await running.http.get("/streams", headers=own)
        assert late.status_code == 401
        assert "'a' has expired" in late.json()["detail"]


@in_memory
async def test_no_secret_is_in_answers_logs_or_metrics(start: Any) -> None:
    async with start(admin_key=ADMIN_KEY) as running:
        made = await running.http.post("/keys", json={"name": "gauge", "scope": "read"}, headers=ADMIN)
        secret, wrong = made.json()["key"], "shoal_" + "w" * 43
        shown = []
        for key in (secret, wrong, ADMIN_KEY, f"{secret}x", f" {secret} {secret}"):
            for headers in ({"api-key": key}, {"Authorization": f"Bearer {key}"}, {"Authorization": f"Basic {key}"}):
                for method, path in (("GET", "/keys"), ("DELETE", "/streams/a"), ("POST", "/ingest"), ("GET", "/x")):
                    shown.append((await running.http.request(method, path, headers=headers)).text)
        for path in ("/metrics", "/keys", "/streams", "/openapi.json", "/"):
            shown.append((await running.http.get(path, headers=ADMIN)).text)
        shown += [str(running.log()), repr(running.service.settings), repr(running.service.access.all_keys())]
        everything = "\n".join(shown)
        assert "gauge" in everything
        for key in (secret, wrong, ADMIN_KEY, secret.removeprefix("shoal_"), secret[6:26]):
            assert key not in everything


@in_memory
async def test_the_bootstrap_key_is_revoked_in_the_settings(start: Any) -> None:
    async with start(admin_key=ADMIN_KEY) as running:
        reply = await running.http.delete("/keys/bootstrap", headers=ADMIN)
        assert reply.status_code == 400
        assert "settings" in reply.json()["detail"]
        assert (await running.http.get("/keys", headers=ADMIN)).status_code == 200


@in_memory
async def test_a_key_of_some_streams_manages_no_keys(start: Any) -> None:
    async with start(admin_key=ADMIN_KEY) as running:
        secret = running.service.access.create("part", Grant(Scope.ADMIN, ("a*",))).secret
        own = {"api-key": secret}
        for method, path in (("GET", "/keys"), ("POST", "/keys"), ("DELETE", "/keys/1")):
            assert (await running.http.request(method, path, headers=own)).status_code == 403
