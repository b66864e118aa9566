"""The verbs, against the fake server and the real one."""

import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fake_shoal import Deliver, FakeShoal, answer, problem

from shoal_service.client import (
    BadPointsError,
    Client,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    ProtocolError,
    UnreachableError,
    requests,
)
from shoal_service.wire.models import SampleOut

ClientOf = Callable[..., Client]


def two_heaps(n: int = 400) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(11)
    return rng.normal(size=(n, 2)) * 0.1 + np.where(np.arange(n) % 4 == 0, -3.0, 3.0)[:, None]


X = two_heaps()


@pytest.fixture
def client(deliver: Deliver, stream: str, client_of: ClientOf) -> Client:
    return client_of(deliver, stream)


def test_ingest_then_components_gives_what_the_stream_is_made_of(client: Client, stream: str) -> None:
    result = client.ingest(X, batch_size=150)
    assert (result.stream, result.accepted, result.log_offset, result.batches) == (stream, 400, 400, 3)
    assert result.components is None

    found = client.components(min_offset=result.log_offset)
    assert (found.stream, found.incarnation, found.log_offset) == (stream, result.incarnation, 400)
    assert len(found) == 2
    assert [round(c.mass) for c in found] == [300, 100]
    np.testing.assert_allclose(found.means, [[3.0, 3.0], [-3.0, -3.0]], atol=0.1)
    assert found.weights.sum() + found.new_weight == pytest.approx(1.0)
    assert found.ids.dtype == np.int64


def test_clusters_are_groups_of_the_components(client: Client) -> None:
    assert len(client.clusters()) == 0
    offset = client.ingest(X).log_offset
    live = client.components(min_offset=offset)
    found = client.clusters(min_offset=offset)
    assert (found.rule, found.points_seen, len(found)) == ("penalty", 400, 2)
    assert [one.components for one in found] == [(c.id,) for c in live]
    assert [round(one.mass) for one in found] == [300, 100]
    whole = client.clusters(1)[0]
    assert whole.components == tuple(sorted(live.ids.tolist()))
    assert (client.clusters(1).rule, whole.id) == ("number", min(live.ids))
    one = client.cluster(whole.id, n_clusters=1)
    assert (one.id, one.components) == (whole.id, whole.components)
    np.testing.assert_allclose(one.mean, X.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(one.variance, X.var(axis=0), rtol=0.1)
    said = client.predict(X[:9], level="cluster")
    assert said.clusters is not None
    assert said.clusters.tolist() == said.components.tolist()
    assert client.predict(X[:9]).clusters is None
    learnt = client.ingest(X[:90], wait="applied", level="cluster", batch_size=40)
    assert learnt.clusters is not None
    assert learnt.components is not None
    assert learnt.clusters.tolist() == learnt.components.tolist()
    assert client.ingest(X[:9], wait="applied").clusters is None
    with pytest.raises(BadPointsError, match="wait"):
        client.ingest(X, level="cluster")
    with pytest.raises(NotFoundError):
        client.cluster(12_345)
    with pytest.raises(InvalidRequestError, match="at most"):
        client.clusters(50)


def test_wait_applied_gives_each_point_its_component(client: Client) -> None:
    result = client.ingest(X, batch_size=100, wait="applied")
    assert result.components is not None
    assert result.components.dtype == np.int64
    assert len(result.components) == 400
    live = client.components(min_offset=400)
    last = result.components[-100:]
    assert set(last.tolist()) <= set(live.ids.tolist())
    assert (last == live.ids[0]).mean() == 0.75


def test_component_by_id_has_its_past(client: Client) -> None:
    client.ingest(X, wait="applied")
    first = client.components()[0]
    one = client.component(first.id)
    assert (one.id, one.live, one.successors, one.born_at) == (first.id, True, (), first.born_at)
    np.testing.assert_allclose(one.mean, first.mean)
    with pytest.raises(NotFoundError) as caught:
        client.component(2**40)
    assert caught.value.type == "unknown-component"


def test_a_component_names_those_that_live_on_in_it(client: Client) -> None:
    noise = np.random.default_rng(0).uniform(size=(600, 2))  # the provisional fits of the warm-up differ on it
    client.ingest(noise, wait="applied")
    ancestors = [a for live in client.components() for a in client.component(live.id).lineage]
    assert ancestors
    assert all(ancestor.born_at <= ancestor.retired_at for ancestor in ancestors)


def test_predict_says_where_points_belong(client: Client) -> None:
    client.ingest(X, wait="applied")
    got = client.predict(X, batch_size=130)
    assert len(got) == 400
    assert got.log_offset == 400
    found = client.components()
    np.testing.assert_array_equal(got.components == found.ids[0], X[:, 0] > 0)
    assert got.components.dtype == got.responsibility_ids.dtype == np.int64
    assert got.responsibilities.shape == (400, 5)
    assert ((got.responsibilities > 0) == (got.responsibility_ids >= 0)).all()
    assert (got.responsibilities.sum(axis=1) + got.novelty <= 1 + 1e-9).all()
    assert np.isfinite(got.log_density).all()


def test_predict_before_any_point_is_refused_by_name(client: Client) -> None:
    with pytest.raises(ConflictError) as caught:
        client.predict(X)
    assert caught.value.type == "no-points"


def test_a_sample_is_read_as_the_route_documents_it(client_of: ClientOf) -> None:
    asked: list[httpx.Request] = []
    body = dict(SampleOut.model_config["json_schema_extra"]["examples"][0])  # type: ignore[call-overload,index,arg-type]

    def deliver(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return answer(200, body)

    found = client_of(deliver, "s").sample(2, after=1998)
    assert (asked[0].url.path, dict(asked[0].url.params)) == ("/streams/s/sample", {"n": "2", "after": "1998"})
    assert found.points == body["points"]
    assert found.keys == tuple(body["keys"])
    for name in ("components", "novelty", "log_density", "log_offsets"):
        assert getattr(found, name).tolist() == body[name]


def test_wait_returns_the_offset_reached(client: Client) -> None:
    assert client.wait(client.ingest(X).log_offset or 0) == 400
    with pytest.raises(InvalidRequestError) as caught:
        client.wait(401)
    assert caught.value.type == "offset-beyond-log"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_both_precisions_are_taken(client: Client, dtype: Any) -> None:
    assert client.ingest(X.astype(dtype)).accepted == 400


def test_generators_of_rows_and_of_arrays_are_taken(client: Client) -> None:
    def stream_of_things() -> Iterator[Any]:
        yield X[:33]
        yield from X[33:50]
        yield X[50:]

    assert client.ingest(stream_of_things(), batch_size=64).accepted == 400
    assert client.ingest(row.tolist() for row in X).accepted == 400
    assert client.components(min_offset=800).points_seen == 800


def test_no_points_ask_nothing_of_the_server(never: Deliver, client_of: ClientOf) -> None:
    client = client_of(never)
    result = client.ingest([], wait="applied")
    assert (result.accepted, result.log_offset, result.batches) == (0, None, 0)
    assert result.components is not None
    assert result.components.shape == (0,)
    got = client.predict(np.empty((0, 2)))
    assert (len(got), got.log_offset, got.responsibilities.shape) == (0, None, (0, 5))


def test_bad_row_is_refused_before_its_batch_is_sent(client: Client) -> None:
    bad = X.copy()
    bad[250, 1] = np.nan
    with pytest.raises(BadPointsError) as caught:
        client.ingest(bad, batch_size=100)
    assert (caught.value.row, caught.value.accepted) == (250, 200)
    assert client.components(min_offset=200).points_seen == 200


def test_row_that_the_server_refuses_is_numbered_over_all_points(fake: FakeShoal, client_of: ClientOf) -> None:
    refusal = problem(400, "not-finite", "row 7 holds something", row=7)
    with pytest.raises(InvalidRequestError, match=r"row 207 \(row 7 of the batch that starts at row 200\)") as caught:
        client_of(fake.handle, faults=["pass", "pass", refusal]).ingest(X, batch_size=100)
    assert (caught.value.row, caught.value.accepted) == (207, 200)


def test_wrong_number_of_features_is_refused_by_the_server(client: Client) -> None:
    client.ingest(X)
    with pytest.raises(InvalidRequestError, match="3 features") as caught:
        client.ingest(np.ones((5, 3)))
    assert caught.value.type == "shape"
    assert not caught.value.retryable


def test_progress_is_told_after_each_batch(client: Client) -> None:
    told: list[tuple[int, int | None]] = []
    client.ingest(X, batch_size=150, progress=lambda done, total: told.append((done, total)))
    assert told == [(150, 400), (300, 400), (400, 400)]
    told.clear()
    client.wait(400)
    client.predict(iter(X), batch_size=250, progress=lambda done, total: told.append((done, total)))
    assert told == [(250, None), (400, None)]


def test_error_of_the_users_own_iterable_says_what_is_stored(client: Client) -> None:
    def breaks() -> Iterator[np.ndarray[Any, Any]]:
        yield X[:250]
        raise LookupError("the tape is torn")

    with pytest.raises(LookupError, match="torn") as caught:
        client.ingest(breaks(), batch_size=100)
    assert any("first 200 points are stored" in note for note in caught.value.__notes__)


def test_asynchronous_iterable_needs_the_asynchronous_client(never: Deliver, client_of: ClientOf) -> None:
    async def rows() -> Any:
        yield [1.0, 2.0]

    with pytest.raises(BadPointsError, match="AsyncClient"):
        client_of(never).ingest(rows())


def test_streams_are_read_page_by_page_and_by_a_pattern(
    client: Client, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "STREAMS_PAGE", 1)
    names = [f"{stream}-{i}" for i in range(3)]
    for name in names:
        client.create_stream(name, n_features=1)
    assert [one.stream for one in client.streams(f"{stream}-*")] == names
    assert {stream, *names} <= {one.stream for one in client.streams()}
    assert [one.stream for one in client.streams(names[1])] == [names[1]]
    assert client.streams("no-such-name") == []


def test_streams_are_listed_changed_and_ended(client: Client, stream: str) -> None:
    assert stream in [s.stream for s in client.streams()]
    changed = client.create_stream(stream, half_life=5000.0)
    assert changed.settings["half_life"] == 5000.0
    with pytest.raises(ConflictError) as caught:
        client.create_stream(stream, n_features=3)
    assert caught.value.type == "stream-conflict"
    client.delete_stream(stream)
    assert stream not in [s.stream for s in client.streams()]
    with pytest.raises(NotFoundError) as missing:
        client.components()
    assert missing.value.type == "unknown-stream"


def test_snapshot_is_saved_and_restored(client: Client, tmp_path: Path) -> None:
    client.ingest(X)
    file = tmp_path / "state.shoal"
    assert client.snapshot_save(file, min_offset=400) == file.stat().st_size > 0
    assert os.listdir(tmp_path) == ["state.shoal"]
    assert client.snapshot_restore(file).log_offset == 400
    file.write_bytes(b"not a snapshot")
    with pytest.raises(InvalidRequestError) as caught:
        client.snapshot_restore(file)
    assert caught.value.type == "snapshot-damaged"


def test_pages_are_turned_until_the_last(client_of: ClientOf) -> None:
    asked = []
    base = {"id": 0, "weight": 0.1, "mass": 1.0, "mean": [0.0], "variance": [1.0], "born_at": 0, "last_seen_at": 0}
    pages = {
        None: {"components": [base | {"id": 4}, base | {"id": 2}], "next": "two"},
        "two": {"components": [base | {"id": 2}, base | {"id": 9}], "next": "three"},
        "three": {"components": [], "next": None},
    }
    head = {"stream": "default", "log_offset": 3, "points_seen": 3, "status": "live", "new_weight": 0.1}

    def server(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        return answer(200, head | pages[request.url.params.get("cursor")])

    found = client_of(server).components(min_offset=3, covariance=True)
    assert found.ids.tolist() == [4, 2, 9]  # 2 grew between the pages
    assert [a.get("cursor") for a in asked] == [None, "two", "three"]
    assert all(a["min_offset"] == "3" and a["fields"] == "covariance" for a in asked)


def test_infinite_moments_arrive_as_nan(client_of: ClientOf, fake: FakeShoal) -> None:
    client = client_of(fake.handle)
    client.ingest([[1.0, 2.0]])
    (one,) = client.components()
    assert one.variance is not None
    assert np.isnan(one.variance).all()


def test_wait_applied_that_takes_longer_than_a_request_is_asked_again(client_of: ClientOf, fake: FakeShoal) -> None:
    def slow(request: httpx.Request) -> httpx.Response:
        response = fake.handle(request)
        first = sum(r.url.path == "/ingest" for r in fake.requests) == 1
        return answer(202, response.json()) if first and request.url.path == "/ingest" else response

    result = client_of(slow).ingest(X, wait="applied")
    assert (result.accepted, result.replayed_batches) == (400, 0)
    assert result.components is not None
    np.testing.assert_array_equal(result.components, X[:, 0] > 0)


def test_labels_that_the_server_has_forgotten_are_minus_one(client_of: ClientOf, fake: FakeShoal) -> None:
    def forgetful(request: httpx.Request) -> httpx.Response:
        response = fake.handle(request)
        if request.url.path != "/ingest":
            return response
        return answer(202, {k: v for k, v in response.json().items() if k != "components"})

    result = client_of(forgetful).ingest(X, wait="applied")
    assert result.components is not None
    assert set(result.components.tolist()) == {-1}


def test_health(client: Client, client_of: ClientOf, fake: FakeShoal) -> None:
    assert client.health().ready
    starting = client_of(fake.handle, faults=[problem(503, "not-ready", "starting")]).health()
    assert (starting.ready, starting.detail["detail"]) == (False, "starting")


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(200, html="<h1>hello</h1>"),
        httpx.Response(200, text="[1, 2"),
        httpx.Response(200, json=[1, 2]),
        httpx.Response(200, json={"ok": True}),
        httpx.Response(404, html="<h1>not found</h1>"),
    ],
)
def test_something_else_on_the_port_is_named(response: httpx.Response, fake: FakeShoal, client_of: ClientOf) -> None:
    with pytest.raises(ProtocolError, match="shoal server"):
        client_of(fake.handle, faults=[response]).components()


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://a:b", "127.0.0.1"])
def test_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(UnreachableError, match="address"):
        Client(url)


def test_an_http_address_needs_no_root_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read them took longer than most requests, in every command."""

    def read(*_: object, **__: object) -> None:
        raise AssertionError("certificates are read")

    monkeypatch.setattr(ssl, "create_default_context", read)
    Client("http://127.0.0.1:9").close()
    Client("http://shoal.example").close()
    with pytest.raises(AssertionError, match="certificates are read"):
        Client("https://shoal.example")


@pytest.mark.parametrize("key", ["", "x" * 101, "naïve", "a\nb", " a"])
def test_idempotency_key_is_checked_before_anything_is_sent(key: str, never: Deliver, client_of: ClientOf) -> None:
    with pytest.raises(BadPointsError, match="idempotency_key"):
        client_of(never).ingest(X, idempotency_key=key)


def test_names_of_streams_are_quoted(client_of: ClientOf) -> None:
    seen = []

    def server(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.raw_path)
        return problem(400, "stream-name", "no")

    with pytest.raises(InvalidRequestError):
        client_of(server, "..x y").components()
    assert seen == [b"/streams/%2E%2Ex%20y/components?limit=10000"]
