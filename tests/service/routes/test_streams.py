"""/streams: making, changing, listing and ending them."""

import asyncio
from typing import Any

import numpy as np
import pytest

from harness.in_turn import in_turn

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])


async def test_a_stream_is_made_with_its_settings(running: Any) -> None:
    made = await running.http.put("/streams/sea", json={"n_features": 3, "family": "diagonal", "half_life": 500})
    assert made.status_code == 201
    assert made.headers["location"] == "/streams/sea"
    answer = made.json()
    assert list(answer) == [
        "stream", "incarnation", "log_offset", "points_seen", "status", "n_components", "predictive_score",
        "predictive_score_points", "newest_time", "late_points", "snapshot_age_s", "created_at", "settings",
    ]  # fmt: skip
    assert answer["stream"] == "sea"
    assert answer["log_offset"] == answer["points_seen"] == answer["n_components"] == 0
    assert answer["status"] == "empty"
    assert answer["created_at"].endswith("Z")
    settings = answer["settings"]
    assert (settings["n_features"], settings["family"], settings["half_life"]) == (3, "diagonal", 500.0)
    assert settings["concentration"] == 1.0
    shown = await running.json("/streams/sea")
    assert shown["settings"] == settings


@pytest.mark.parametrize(
    ("more", "family", "requested"),
    [
        ({}, "gaussian", "auto"),  # of provisional fits
        ({"family": None}, "gaussian", "auto"),
        ({"prior": "auto", "missing": "refuse"}, "gaussian", "auto"),
        ({"prior": "hierarchical"}, "gaussian", None),
        ({"missing": "marginal"}, "gaussian", None),
        ({"family": "gaussian"}, "gaussian", None),
    ],
)
@ON_MEMORY
async def test_the_family_is_automatic_unless_a_setting_needs_one_by_name(
    running: Any, more: dict[str, Any], family: str, requested: str | None
) -> None:
    made = await running.http.put("/streams/sea", json={"n_features": 3, **more})
    assert made.status_code == 201, made.text
    settings = made.json()["settings"]
    assert (settings["family"], settings["family_requested"]) == (family, requested)


@ON_MEMORY
async def test_a_family_by_name_is_not_automatic_as_well(running: Any) -> None:
    """The stream was created, and every batch of it became a dead letter."""
    made = await running.http.put(
        "/streams/sea", json={"n_features": 2, "family": "poisson", "family_requested": "auto"}
    )
    assert (made.status_code, made.json()["type"]) == (400, "/problems/setting")
    assert "leave family_requested out" in made.json()["detail"]
    new = await running.http.put("/streams/new", json={"n_features": 2})
    copied = await running.http.put("/streams/copy", json=new.json()["settings"])
    assert copied.status_code == 201, "the settings of a stream make another one"


async def test_settings_that_are_left_out_stay_as_they_are(running: Any) -> None:
    await running.http.put("/streams/sea", json={"n_features": 2, "concentration": 2.0, "half_life": 100})
    changed = await running.http.put("/streams/sea", json={"half_life": None})
    assert changed.status_code == 200
    assert changed.json()["settings"]["concentration"] == 2.0
    assert changed.json()["settings"]["half_life"] is None
    assert running.tails() == {"sea": (1, 0)}, "a change of settings is an entry of the log"
    same = await running.http.put("/streams/sea", json={"n_features": 2, "concentration": 2.0})
    assert same.status_code == 200
    assert running.tails() == {"sea": (1, 0)}, "no change, no entry"


@pytest.mark.parametrize(
    "change", [{"n_features": 3}, {"family": "diagonal"}, {"method": "sva"}, {"warmup_points": 10}]
)
@ON_MEMORY
async def test_a_change_of_shape_is_a_conflict(running: Any, change: dict[str, Any]) -> None:
    await running.http.put("/streams/sea", json={"n_features": 2})
    reply = await running.http.put("/streams/sea", json={"concentration": 3.0, **change})
    assert reply.status_code == 409
    assert reply.json()["type"] == "/problems/stream-conflict"
    assert next(iter(change)) in reply.json()["detail"]
    assert (await running.json("/streams/sea"))["settings"]["concentration"] == 1.0
    assert running.tails() == {"sea": (0, 0)}


@ON_MEMORY
@in_turn(
    ("body", "kind"),
    [
        (b"{}", "/problems/setting"),
        (b'{"n_features": 0}', "/problems/setting"),
        (b'{"n_features": 2.5}', "/problems/setting"),
        (b'{"n_features": 2, "concentration": -1}', "/problems/setting"),
        (b'{"n_features": 2, "family": "cauchy"}', "/problems/setting"),
        (b'{"n_features": 2, "colour": "blue"}', "/problems/setting"),
        (b'{"n_features": 2, "prior": {"mean": [0]}}', "/problems/setting"),
        (b'{"n_features": 1000, "max_state_bytes": 2000000}', "/problems/setting"),
        (b'{"n_features": 2, "half_life": "1 week"}', "/problems/setting"),
        (b'{"n_features": 5000}', "/problems/limit"),
        (b'{"n_features": 2, "max_state_bytes": 99999999999}', "/problems/limit"),
        (b'{"n_features": 2, "window": 1125899906842624}', "/problems/limit"),
        (b'{"n_features": 2, "window_bytes": 4503599627370496}', "/problems/limit"),
        (b"[]", "/problems/malformed-body"),
        (b"{", "/problems/malformed-body"),
    ],
)
async def test_bad_settings_are_problems_and_make_nothing(running: Any, body: bytes, kind: str) -> None:
    reply = await running.http.put("/streams/sea", content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code == 400, reply.text
    assert reply.json()["type"] == kind
    assert reply.headers["content-type"] == "application/problem+json"
    assert running.tails() == {}


@ON_MEMORY
@in_turn("name", ["Sea", "-sea", "_sea", "s" * 65, "s.a", "s%2Fa", "%C3%A9"])
async def test_a_bad_stream_name_is_a_problem_everywhere(running: Any, name: str) -> None:
    for method, path in (
        ("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "/components"), ("GET", "/components/1"),
        ("GET", "/snapshot"), ("GET", "/predict?x=1"),
    ):  # fmt: skip
        more = {"json": {"n_features": 2}} if method == "PUT" else {}
        reply = await running.http.request(method, f"/streams/{name}{path}", **more)
        assert reply.status_code in (400, 404), (method, path)
        assert reply.headers["content-type"] == "application/problem+json"
        if "%2F" not in name:
            assert reply.json()["type"] == "/problems/stream-name"
    assert running.tails() == {}


@pytest.mark.parametrize("name", ["a", "0", "a-b_c9", "s" * 64])
@ON_MEMORY
async def test_good_stream_names_are_taken(running: Any, name: str) -> None:
    assert (await running.http.put(f"/streams/{name}", json={"n_features": 1})).status_code == 201


async def test_an_unknown_stream_is_a_problem_everywhere(running: Any) -> None:
    for method, path in (
        ("GET", ""), ("DELETE", ""), ("GET", "/components"), ("GET", "/components/1"), ("GET", "/snapshot"),
        ("GET", "/predict?x=1"), ("POST", "/ingest"), ("POST", "/predict"),
    ):  # fmt: skip
        more = {"json": {"points": [[1]]}} if method == "POST" else {}
        reply = await running.http.request(method, f"/streams/nobody{path}", **more)
        assert reply.status_code == 404, (method, path)
        assert reply.json()["type"] == "/problems/unknown-stream"


async def test_the_first_points_create_a_stream_where_that_is_asked(running: Any) -> None:
    refused = await running.ingest([[1.0, 2.0]], "/streams/fresh/ingest")
    assert refused.status_code == 404
    detail = refused.json()["detail"]
    assert "PUT /streams/fresh" in detail
    assert "POST /streams/fresh/ingest?create=true" in detail
    made = await running.ingest([[1.0, 2.0]], "/streams/fresh/ingest", create="true")
    assert (made.status_code, made.json()["log_offset"]) == (202, 1)
    again = await running.ingest([[3.0, 4.0]], "/streams/fresh/ingest", create="true")
    assert (again.json()["log_offset"], again.json()["incarnation"]) == (2, made.json()["incarnation"])
    default = (await running.http.put("/streams/plain", json={"n_features": 2})).json()["settings"]
    assert (await running.json("/streams/fresh"))["settings"] == default
    other = await running.ingest([[1.0]], "/streams/fresh/ingest", create="true")
    assert (other.status_code, other.json()["type"]) == (400, "/problems/shape")
    bad = await running.ingest([[float("nan")]], "/streams/never/ingest", create="true")
    assert bad.status_code == 400
    assert "never" not in running.tails(), "a refused batch creates nothing"
    assert (await running.ingest([[1.0]], "/streams/NO/ingest", create="true")).status_code == 400


async def test_streams_are_listed_by_name(running: Any) -> None:
    assert await running.json("/streams") == {"streams": [], "next": None}
    for name in ("b", "a"):
        await running.http.put(f"/streams/{name}", json={"n_features": 1})
    await running.learn([[1.0, 2.0]])
    found = (await running.json("/streams"))["streams"]
    assert [row["stream"] for row in found] == ["a", "b", "default"]
    assert [row["log_offset"] for row in found] == [0, 0, 1]
    assert found[2]["n_components"] == 1


@ON_MEMORY
async def test_streams_are_listed_in_pages_and_by_a_pattern(running: Any) -> None:
    for name in ("sea-1", "air", "sea-2", "sea-10", "b"):
        await running.http.put(f"/streams/{name}", json={"n_features": 1})

    async def pages(**asked: Any) -> list[list[str]]:
        found, cursor = [], None
        while cursor is not None or not found:
            answer = await running.json("/streams", **asked, **({} if cursor is None else {"cursor": cursor}))
            found.append([row["stream"] for row in answer["streams"]])
            cursor = answer["next"]
        return found

    assert await pages() == [["air", "b", "sea-1", "sea-10", "sea-2"]]
    assert await pages(limit=2) == [["air", "b"], ["sea-1", "sea-10"], ["sea-2"]]
    assert await pages(limit=5) == [["air", "b", "sea-1", "sea-10", "sea-2"]]
    assert await pages(limit=2, name="sea-*") == [["sea-1", "sea-10"], ["sea-2"]]
    assert await pages(name="sea-1") == [["sea-1"]]
    assert await pages(name="sea") == [[]]
    first = await running.json("/streams", limit=2)
    await running.http.delete("/streams/b")  # the end of the page: the next one begins after its name all the same
    assert (await running.json("/streams", limit=2, cursor=first["next"]))["streams"][0]["stream"] == "sea-1"
    for bad in ({"limit": 0}, {"limit": 10_001}, {"cursor": "NO"}, {"cursor": ""}, {"name": "*" * 201}):
        refused = await running.http.get("/streams", params=bad)
        assert (refused.status_code, refused.json()["type"]) == (400, "/problems/parameter"), bad


@ON_MEMORY
async def test_more_streams_than_the_limit_are_refused(start: Any) -> None:
    async with start(max_streams=2) as running:
        for name, status in (("a", 201), ("b", 201), ("c", 400)):
            reply = await running.http.put(f"/streams/{name}", json={"n_features": 1})
            assert reply.status_code == status
        assert reply.json()["type"] == "/problems/limit"
        assert (await running.ingest([[1.0]])).json()["type"] == "/problems/limit"
        await running.http.delete("/streams/a")
        assert (await running.ingest([[1.0]])).status_code == 202


async def test_a_deleted_stream_is_gone_with_all_it_held(running: Any, clusters: np.ndarray) -> None:
    first = await running.learn(clusters)
    await running.http.post(
        "/ingest", json={"points": [[0, 0]]}, headers={"Idempotency-Key": "k"}, params={"wait": "applied"}
    )
    assert (await running.http.delete("/streams/default")).status_code == 204
    assert (await running.http.get("/streams/default")).status_code == 404
    assert (await running.json("/components"))["components"] == []
    again = await running.http.post("/ingest", json={"points": [[0, 0]]}, headers={"Idempotency-Key": "k"})
    assert again.json()["incarnation"] != first["incarnation"]
    assert again.json()["log_offset"] == 1
    assert "idempotency-replayed" not in again.headers
    assert (await running.json("/components", min_offset=1))["points_seen"] == 1


async def test_who_waits_on_a_stream_that_is_deleted_is_told(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from shoal_service.streams.learner import thread

    await running.learn([[0.0, 0.0]])
    go_on, apply_inplace = threading.Event(), thread.apply_inplace

    def stuck(*arguments: Any) -> Any:
        go_on.wait(120)
        return apply_inplace(*arguments)

    monkeypatch.setattr(thread, "apply_inplace", stuck)
    await running.ingest([[1.0, 1.0]])
    waiting = asyncio.create_task(running.http.get("/components", params={"min_offset": 2, "timeout": 60}))
    labels = asyncio.create_task(running.ingest([[1.0, 1.0]], wait="applied", timeout=60))
    while running.tails()["default"][0] < 3:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    await running.http.delete("/streams/default")
    for task in (waiting, labels):
        reply = await asyncio.wait_for(task, 120)
        assert reply.status_code == 409
        assert reply.json()["type"] == "/problems/stream-gone"
    go_on.set()


async def test_if_match_guards_changes_and_the_end(running: Any) -> None:
    made = await running.http.put("/streams/sea", json={"n_features": 2})
    tag = made.headers["etag"]
    assert (await running.http.get("/streams/sea", headers={"If-None-Match": tag})).status_code == 304
    changed = await running.http.put("/streams/sea", json={"concentration": 2.0}, headers={"If-Match": tag})
    assert changed.status_code == 200
    for reply in (
        await running.http.put("/streams/sea", json={"concentration": 3.0}, headers={"If-Match": tag}),
        await running.http.delete("/streams/sea", headers={"If-Match": tag}),
        await running.http.delete("/streams/sea", headers={"If-Match": f"W/{changed.headers['etag']}"}),
        await running.http.put("/streams/none", json={"n_features": 3}, headers={"If-Match": "*"}),
        await running.http.put("/streams/sea", json={"concentration": 3.0}, headers={"If-None-Match": "*"}),
    ):
        assert reply.status_code == 412
        assert reply.json()["type"] == "/problems/precondition-failed"
    new = await running.http.put("/streams/none", json={"n_features": 3}, headers={"If-None-Match": "*"})
    assert new.status_code == 201
    gone = await running.http.delete("/streams/sea", headers={"If-Match": changed.headers["etag"]})
    assert gone.status_code == 204


async def test_the_tag_of_a_stream_tells_new_points_and_guards_its_settings(running: Any) -> None:
    """It stood for the settings alone, so that 304 hid new points from a client that asked again."""
    made = await running.http.put("/streams/sea", json={"n_features": 2})
    await running.learn([[1.0, 2.0]], "/streams/sea/ingest")
    shown = await running.http.get("/streams/sea", headers={"If-None-Match": made.headers["etag"]})
    assert (shown.status_code, shown.json()["points_seen"]) == (200, 1)
    tags = [("If-None-Match", '"another"'), ("If-None-Match", shown.headers["etag"])]
    assert (await running.http.get("/streams/sea", headers=tags)).status_code == 304, "the second of two lines"
    tags = [("If-Match", '"another"'), ("If-Match", made.headers["etag"])]
    changed = await running.http.put("/streams/sea", json={"concentration": 2.0}, headers=tags)
    assert changed.status_code == 200, "points are no change of the settings"
    refused = await running.http.put("/streams/sea", json={"concentration": 3.0}, headers=tags)
    assert refused.status_code == 412


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_stream_that_is_deleted_while_its_tag_is_compared(
    running: Any, monkeypatch: pytest.MonkeyPatch, method: str, again: bool
) -> None:
    made = await running.http.put("/streams/moved", json={"n_features": 2})
    streams = running.service.streams
    describe = streams.describe

    async def late(name: str) -> Any:
        found = await describe(name)
        monkeypatch.undo()
        await streams.delete(name)
        if again:
            await streams.create(name, {"n_features": 2})
        return found

    monkeypatch.setattr(streams, "describe", late)
    body = {"json": {"n_features": 2, "concentration": 2.0}} if method == "PUT" else {}
    reply = await running.http.request(method, "/streams/moved", headers={"If-Match": made.headers["etag"]}, **body)
    assert reply.status_code == 412, reply.text
    there = await running.http.get("/streams/moved")
    assert there.status_code == (200 if again else 404)
    if again:
        assert there.json()["incarnation"] != made.json()["incarnation"]
        assert there.json()["settings"]["concentration"] == made.json()["settings"]["concentration"]
        assert (await running.http.delete("/streams/moved")).status_code == 204


async def test_settings_apply_from_their_place_in_the_log_on(running: Any) -> None:
    await running.learn([[0.0, 0.0]])
    await running.http.put("/streams/default", json={"concentration": 7.0})
    await running.learn([[0.0, 0.0]])
    answer = await running.json("/components")
    assert answer["new_weight"] == pytest.approx(7.0 / 9.0)
    assert answer["log_offset"] == answer["points_seen"] == 2


@ON_MEMORY
async def test_a_stream_of_mixed_columns_is_made_shown_and_fed(running: Any) -> None:
    family = {"cpu": "gaussian", "mem": "gaussian", "errors": "poisson", "region": "categorical"}
    names = ["cpu", "errors", "region", "mem"]
    body = {"n_features": 4, "feature_names": names, "family": family, "warmup_points": 64}
    made = await running.http.put("/streams/mixed", json=body)
    assert made.status_code == 201, made.text
    assert made.json()["settings"]["family"] == family
    same = await running.http.put(
        "/streams/mixed", json={"family": {"0,3": "gaussian", "1": "poisson", "2": "categorical"}}
    )
    assert same.status_code == 200, "the same columns in other words"
    other = await running.http.put("/streams/mixed", json={"family": {"0-3": "gaussian"}})
    assert other.status_code == 409
    bad = await running.http.post("/streams/mixed/ingest", json={"points": [[0.5, -1, 0, 2.0]]})
    assert bad.json()["type"] == "/problems/outside-domain"
    assert "column 1" in bad.json()["detail"]
    rng = np.random.default_rng(0)
    kind = np.arange(100) % 2
    reals = 20.0 * kind[:, None] + rng.normal(size=(100, 2))
    x = np.column_stack([reals[:, 0], rng.poisson(1.0 + 30.0 * kind), kind, reals[:, 1]])
    sent = await running.http.post("/streams/mixed/ingest", params={"wait": "applied"}, json={"points": x.tolist()})
    assert sent.status_code in (200, 202), sent.text
    asked = await running.http.post("/streams/mixed/predict", json={"points": x[:4].tolist()})
    ids = [row["component"] for row in asked.json()["predictions"]]
    assert ids[0] == ids[2] != ids[1] == ids[3]


@ON_MEMORY
async def test_an_automatic_family_is_chosen_shown_and_kept(running: Any) -> None:
    made = await running.http.put("/streams/any", json={"n_features": 2, "family": "auto", "warmup_points": 100})
    assert made.status_code == 201, made.text
    assert made.json()["settings"]["family_requested"] == "auto"
    assert made.json()["settings"]["family_reason"] is None
    rng = np.random.default_rng(0)
    x = rng.poisson(np.where(rng.integers(2, size=(160, 1)) > 0, [1.0, 20.0], [9.0, 2.0]))
    for part in (x[:60], x[60:]):
        sent = await running.http.post(
            "/streams/any/ingest", params={"wait": "applied"}, json={"points": part.tolist()}
        )
        assert sent.status_code in (200, 202), sent.text
    await running.json("/streams/any/components", min_offset=160, timeout=60)
    settings = (await running.json("/streams/any"))["settings"]
    assert (settings["family"], settings["family_requested"]) == ("poisson", "auto")
    assert settings["family_reason"].startswith("all values are whole numbers")
    bad = await running.http.post("/streams/any/ingest", json={"points": [[0.5, 1.0]]})
    assert bad.json()["type"] == "/problems/outside-domain"
    assert "chosen automatically" in bad.json()["detail"]
    same = await running.http.put("/streams/any", json={"family": "auto", "n_features": 2})
    assert same.status_code == 200, same.text
    changed = await running.http.put("/streams/any", json={"concentration": 2.0})
    assert changed.json()["settings"]["family"] == "poisson"
    for family in ("gaussian", "poisson"):
        other = await running.http.put("/streams/any", json={"family": family})
        assert other.status_code == 409
        assert (
            f"family gives the stream its shape and cannot change while it lives (it is 'auto', {family!r} was"
            in (other.json()["detail"])
        )
    asked = await running.http.post("/streams/any/predict", json={"points": x[:4].tolist()})
    assert asked.status_code == 200, asked.text
