"""GET /components and /components/{id}: what the stream is made of."""

import asyncio
from typing import Any

import numpy as np
import pytest

from harness.in_turn import in_turn
from shoal.mixture import MixtureSnapshot

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])

LINE = {"n_features": 1, "prior": {"mean": [0.0], "mean_strength": 1e-7, "dof": 5.0, "scale": [[5.0]]}}
"""A stream whose prior expects unit variances and means anywhere: clusters far apart are components at once."""


async def test_components_come_largest_first_with_all_that_is_promised(running: Any, clusters: np.ndarray) -> None:
    receipt = await running.learn(np.concatenate([clusters, clusters[::3]]))
    answer = await running.json("/components")
    assert list(answer) == [
        "stream", "incarnation", "log_offset", "points_seen", "status", "feature_names", "new_weight", "components",
        "next",
    ]  # fmt: skip
    assert answer["stream"] == "default"
    assert answer["incarnation"] == receipt["incarnation"]
    assert answer["log_offset"] == answer["points_seen"] == 800
    assert answer["next"] is None
    rows = answer["components"]
    assert len(rows) == 3
    for row in rows:
        assert list(row) == [
            "id",
            "weight",
            "mass",
            "mean",
            "variance",
            "born_at",
            "last_seen_at",
            "telling",
            "label",
            "note",
        ]
        assert isinstance(row["id"], int)
    masses = [row["mass"] for row in rows]
    assert masses == sorted(masses, reverse=True)
    assert sum(row["weight"] for row in rows) + answer["new_weight"] == pytest.approx(1.0)
    assert sum(masses) == pytest.approx(800, abs=1.0)
    assert rows[0]["mean"] == pytest.approx([0.0, 0.0], abs=0.3)


async def test_a_stream_without_points_has_no_components_and_predicts_nothing(running: Any) -> None:
    await running.http.put("/streams/still", json={"n_features": 2})
    for path, incarnation in (("", ""), ("/streams/default", ""), ("/streams/still", None)):
        answer = await running.json(f"{path}/components")
        assert answer["components"] == []
        assert answer["next"] is None
        assert answer["new_weight"] == 1.0
        assert answer["log_offset"] == answer["points_seen"] == 0
        assert answer["status"] == "empty"
        assert incarnation is None or answer["incarnation"] == incarnation
        reply = await running.http.get(f"{path}/predict", params={"x": "1,2"})
        assert reply.status_code == 409
        assert reply.json()["type"] == "/problems/no-points"
    assert running.tails() == {"still": (0, 0)}, "reading makes nothing"


@ON_MEMORY
async def test_pages_go_through_all_components_once(running: Any) -> None:
    rng = np.random.default_rng(2)
    centres = 50.0 * rng.permutation(12)
    counts = np.repeat(np.arange(12), rng.integers(20, 30, size=12))
    await running.http.put("/streams/line", json=LINE)
    await running.learn((centres[counts] + rng.normal(size=len(counts)))[:, None], "/streams/line/ingest")
    whole = (await running.json("/streams/line/components", limit=1000))["components"]
    pages, cursor = [], {}
    while True:
        page = await running.json("/streams/line/components", limit=5, **cursor)
        pages.append(page["components"])
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert [row for page in pages for row in page] == whole
    assert {len(page) for page in pages[:-1]} == {5}
    keys = [(-row["mass"], row["id"]) for row in whole]
    assert keys == sorted(keys)


@ON_MEMORY
async def test_covariances_come_when_asked_for(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters)
    for row in (await running.json("/components", fields="covariance"))["components"]:
        covariance = np.array(row["covariance"])
        assert covariance.shape == (2, 2)
        np.testing.assert_allclose(np.diag(covariance), row["variance"])
        np.testing.assert_allclose(covariance, np.eye(2), atol=0.5)


@ON_MEMORY
async def test_a_page_of_wide_covariances_ends_early_and_goes_on(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal_service.streams import view

    monkeypatch.setattr(view, "MAX_PAGE_NUMBERS", 8)
    await running.learn(np.array([[0.0, 0.0], [900.0, 0.0], [0.0, 900.0]]).repeat(4, axis=0))
    first = await running.json("/components", fields="covariance")
    assert len(first["components"]) == 2
    assert first["next"] is not None
    rest = await running.json("/components", fields="covariance", cursor=first["next"])
    assert len(rest["components"]) == 1
    assert rest["next"] is None


async def test_the_tag_answers_304_until_something_changes(running: Any) -> None:
    await running.learn([[0.0, 0.0]])
    for path in ("/components", "/components/0", "/snapshot"):
        first = await running.http.get(path)
        tag = first.headers["etag"]
        for asked in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = await running.http.get(path, headers={"If-None-Match": asked})
            assert again.status_code == 304
            assert again.headers["etag"] == tag
            assert again.content == b""
        assert (await running.http.get(path, headers={"If-None-Match": '"other"'})).status_code == 200
    await running.learn([[0.1, 0.0]])
    changed = await running.http.get("/components", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


async def test_the_tag_changes_with_the_incarnation(running: Any) -> None:
    await running.learn([[0.0, 0.0]])
    tag = (await running.http.get("/components")).headers["etag"]
    await running.http.delete("/streams/default")
    await running.learn([[0.0, 0.0]])
    assert (await running.http.get("/components")).headers["etag"] != tag


async def test_one_component_shows_its_covariance_and_its_life(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters)
    (row, *_) = (await running.json("/components"))["components"]
    one = await running.json(f"/components/{row['id']}")
    assert {name: one[name] for name in row} == row
    assert np.array(one["covariance"]).shape == (2, 2)
    assert one["live"] is True
    assert one["retired_at"] is None
    assert one["successors"] == []
    assert isinstance(one["lineage"], list)
    assert one["log_offset"] == 600


async def test_a_component_that_lives_no_more_names_its_heir(running: Any) -> None:
    """Twins around one centre are born apart and merged by the bound at a check."""
    rng = np.random.default_rng(0)
    early = np.concatenate([rng.normal(-2.2, 0.4, size=(60, 1)), rng.normal(2.2, 0.4, size=(60, 1))])
    later = rng.normal(0.0, 2.0, size=(4000, 1))
    prior = {"mean": [0.0], "mean_strength": 0.01, "dof": 3.0, "scale": [[0.5]]}
    await running.http.put("/streams/twins", json={"n_features": 1, "prior": prior})
    ids = set((await running.learn(rng.permutation(early), "/streams/twins/ingest"))["components"])
    for part in np.array_split(later, 8):
        ids |= set((await running.learn(part, "/streams/twins/ingest"))["components"])
    live = {row["id"] for row in (await running.json("/streams/twins/components"))["components"]}
    gone = sorted(ids - live)
    assert gone, "the test needs a merge; choose other points"
    one = await running.json(f"/streams/twins/components/{gone[0]}")
    assert one["live"] is False
    assert one["retired_at"] > one["born_at"]
    assert set(one["successors"]) <= live
    successor = await running.json(f"/streams/twins/components/{one['successors'][0]}")
    born, retired = one["born_at"], one["retired_at"]
    assert {"id": gone[0], "born_at": born, "retired_at": retired} in successor["lineage"]


@ON_MEMORY
async def test_an_id_that_was_never_given_out_is_unknown(running: Any) -> None:
    await running.learn([[0.0, 0.0]])
    reply = await running.http.get("/components/77")
    assert reply.status_code == 404
    assert reply.json()["type"] == "/problems/unknown-component"
    assert (await running.http.get("/components/minus")).status_code == 400


@ON_MEMORY
async def test_infinite_moments_are_null(running: Any) -> None:
    prior = {"mean": [0.0], "mean_strength": 1.0, "dof": 1.0, "scale": [[1.0]]}
    await running.http.put("/streams/wide", json={"n_features": 1, "prior": prior})
    await running.learn([[0.0]], "/streams/wide/ingest")
    (row,) = (await running.json("/streams/wide/components"))["components"]
    assert row["variance"] == [None]
    assert row["mean"] != [None]
    one = await running.json("/streams/wide/components/0")
    assert one["covariance"] == [[None]]


@ON_MEMORY
async def test_numbers_that_do_not_exist_are_null(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await running.learn([[0.0, 1.0]])
    nothing = np.full((1, 2), np.nan)
    monkeypatch.setattr(MixtureSnapshot, "means", nothing)
    monkeypatch.setattr(MixtureSnapshot, "variances", nothing)
    (row,) = (await running.json("/components"))["components"]
    assert row["mean"] == row["variance"] == [None, None]


@ON_MEMORY
@in_turn(
    "query",
    [
        {"limit": 0}, {"limit": "many"}, {"limit": 10**9}, {"cursor": "!"}, {"cursor": "AAAA"}, {"fields": "all"},
        {"min_offset": -1}, {"min_offset": "x"}, {"min_offset": 10**30}, {"timeout": 0}, {"timeout": "nan"},
        {"timeout": 1e9},
    ],
)  # fmt: skip
async def test_a_parameter_out_of_range_is_a_problem(running: Any, query: dict[str, Any]) -> None:
    await running.learn([[0.0, 0.0]])
    reply = await running.http.get("/components", params=query)
    assert reply.status_code == 400, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["type"] == "/problems/parameter"
    assert next(iter(query)) in reply.json()["detail"]


async def test_min_offset_reads_ones_own_writes(running: Any) -> None:
    for n in range(1, 6):
        receipt = (await running.ingest([[float(n), 0.0]])).json()
        answer = await running.json("/components", min_offset=receipt["log_offset"])
        assert answer["points_seen"] == answer["log_offset"] == n


@ON_MEMORY
async def test_min_offset_beyond_the_log_is_refused(running: Any) -> None:
    for n, path in enumerate(("/components", "/predict?x=1,1", "/snapshot", "/components/0")):
        reply = await running.http.get(
            path, params={"min_offset": n + 1, **({"x": "1,1"} if "predict" in path else {})}
        )
        assert reply.status_code == (404 if path == "/snapshot" and n == 0 else reply.status_code)
        await running.learn([[0.0, 0.0]])
        reply = await running.http.get(
            path, params={"min_offset": n + 2, **({"x": "1,1"} if "predict" in path else {})}
        )
        assert reply.status_code == 400
        assert reply.json()["type"] == "/problems/offset-beyond-log"


async def test_min_offset_that_takes_too_long_says_to_ask_again(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from shoal_service.streams.learner import thread

    await running.learn([[0.0, 0.0]])
    go_on, apply_inplace = threading.Event(), thread.apply_inplace

    def stuck(*arguments: Any) -> Any:
        go_on.wait(120)
        return apply_inplace(*arguments)

    monkeypatch.setattr(thread, "apply_inplace", stuck)
    await running.ingest([[1.0, 0.0]])
    reply = await running.http.get("/components", params={"min_offset": 2, "timeout": 0.05})
    assert reply.status_code == 504
    assert reply.json()["type"] == "/problems/offset-not-applied"
    assert "as far as offset 1;" in reply.json()["detail"]
    assert reply.json()["retryable"] is True
    assert "retry-after" in reply.headers
    assert (await running.json("/components"))["log_offset"] == 1, "readers of what there is never wait"
    waiting = asyncio.create_task(running.json("/components", min_offset=2))
    await asyncio.sleep(0.02)
    go_on.set()
    assert (await waiting)["log_offset"] == 2


@ON_MEMORY
async def test_many_who_wait_are_all_answered(running: Any) -> None:
    await running.learn([[0.0, 0.0]])
    waiting = [asyncio.create_task(running.ingest([[1.0, 0.0]], wait="applied", timeout=60)) for _ in range(40)]
    replies = await asyncio.gather(*waiting)
    assert {reply.status_code for reply in replies} == {200}
