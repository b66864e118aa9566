"""Audit lines: each act that needs an admin key, who did it, on what, and how it ended."""

from typing import Any

import pytest

from shoal_service.access import Grant, Scope

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]

ADMIN_KEY = "the-admin-key-of-these-tests"
ADMIN = {"api-key": ADMIN_KEY}


def audited(running: Any) -> list[dict[str, Any]]:
    return [line for line in running.log() if line["event"] == "audit"]


async def test_acts_of_admins_are_logged_with_who_what_where_and_how_it_ended(start: Any) -> None:
    async with start(admin_key=ADMIN_KEY) as running:
        made = running.service.access.create("gauge", Grant(Scope.WRITE))
        own = {"api-key": made.secret}
        await running.http.put("/streams/a", json={"n_features": 2}, headers=own)
        await running.http.get("/streams", headers=ADMIN)
        assert audited(running) == [], "what needs no admin key is no act of an admin"

        created = await running.http.post("/keys", json={"name": "k", "scope": "read"}, headers=ADMIN)
        await running.http.delete("/streams/a", headers=own)
        await running.http.delete("/streams/a", headers={**ADMIN, "X-Request-Id": "my-id"})
        await running.http.delete("/streams/a", headers=ADMIN)
        await running.http.put("/snapshot", content=b"", headers={})
        await running.http.delete(f"/keys/{created.json()['id']}", headers=ADMIN)
        lines = audited(running)
        picked = ("key_id", "key_name", "action", "stream", "subject", "status", "outcome")
        assert [tuple(line[name] for name in picked) for line in lines] == [
            ("bootstrap", "bootstrap key of the settings", "POST /keys", None, created.json()["id"], 201, "done"),
            (made.record.id, "gauge", "DELETE /streams/{stream}", "a", None, 403, "refused"),
            ("bootstrap", "bootstrap key of the settings", "DELETE /streams/{stream}", "a", None, 204, "done"),
            ("bootstrap", "bootstrap key of the settings", "DELETE /streams/{stream}", "a", None, 404, "refused"),
            (None, None, "PUT /snapshot", "default", None, 401, "refused"),
            (
                "bootstrap", "bootstrap key of the settings", "DELETE /keys/{key}", None, created.json()["id"], 204,
                "done",
            ),
        ]  # fmt: skip
        assert lines[2]["request_id"] == "my-id"
        assert all(line["level"] == "info" for line in lines)


async def test_without_keys_the_actor_is_anyone(start: Any) -> None:
    async with start() as running:
        await running.http.put("/streams/a", json={"n_features": 2})
        await running.http.delete("/streams/a")
        (line,) = audited(running)
        assert (line["key_id"], line["key_name"], line["outcome"]) == (None, "anyone", "done")


async def test_an_act_that_fails_is_said_to_have_failed(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(admin_key=ADMIN_KEY) as running:

        def broken(*given: Any) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr(running.service.store, "delete_access_key", broken)
        assert (await running.http.delete("/keys/a", headers=ADMIN)).status_code == 500
        (line,) = audited(running)
        assert (line["status"], line["outcome"], line["subject"]) == (500, "failed", "a")
