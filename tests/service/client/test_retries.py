"""Retries: what is tried again, how long, and that nothing is stored twice."""

import email.utils
import time
from collections.abc import Callable

import httpx
import numpy as np
import pytest
from fake_shoal import Deliver, FakeShoal, Pauses, problem

from shoal_service.client import (
    Client,
    ConflictError,
    InvalidRequestError,
    OutcomeUnknownError,
    ServerError,
    UnavailableError,
    UnreachableError,
)
from shoal_service.client.flow import Session
from shoal_service.retry_after import parse_retry_after

X = np.random.default_rng(5).normal(size=(30, 2))
ClientOf = Callable[..., Client]


def busy(retry_after: float | None = None) -> httpx.Response:
    return problem(503, "overloaded", "too much is waiting", retry_after=retry_after)


def test_lost_reply_after_the_server_stored_the_batch_stores_it_once(
    deliver: Deliver, stream: str, client_of: ClientOf
) -> None:
    client = client_of(deliver, stream, ["pass", "lose", "lose", "lose", "pass"])
    result = client.ingest(X, batch_size=10)
    assert (result.accepted, result.log_offset, result.batches, result.replayed_batches) == (30, 30, 3, 1)
    assert client.components(min_offset=30).points_seen == 30


def test_every_kind_of_trouble_at_once_stores_every_point_once(fake: FakeShoal, client_of: ClientOf) -> None:
    faults = ["refuse", busy(), "lose", "cut", httpx.Response(502), problem(429, "x", "slow down"), "lose", "refuse"]
    result = client_of(fake.handle, faults=faults).ingest(X, batch_size=7)
    assert result.accepted == 30
    np.testing.assert_array_equal(fake.streams["default"].x, X)


def test_same_key_and_points_sent_by_another_process_are_stored_once(
    deliver: Deliver, stream: str, client_of: ClientOf
) -> None:
    first = client_of(deliver, stream).ingest(X, batch_size=8, idempotency_key="upload 7")
    again = client_of(deliver, stream).ingest(X, batch_size=8, idempotency_key="upload 7")
    assert (first.replayed_batches, again.replayed_batches) == (0, 4)
    assert again.log_offset == first.log_offset == 30


def test_same_key_with_other_points_is_refused(deliver: Deliver, stream: str, client_of: ClientOf) -> None:
    client = client_of(deliver, stream)
    client.ingest(X, idempotency_key="k")
    with pytest.raises(InvalidRequestError) as caught:
        client.ingest(X + 1, idempotency_key="k")
    assert (caught.value.status, caught.value.type) == (422, "idempotency-mismatch")


def test_pauses_grow_to_a_limit_and_start_again_with_the_next_batch(
    fake: FakeShoal, client_of: ClientOf, pauses: Pauses
) -> None:
    client_of(fake.handle, faults=[busy()] * 8 + ["pass", busy()]).ingest(X, batch_size=15)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.1]


def test_pauses_are_jittered_by_half() -> None:
    session = Session("")
    pauses = {session.pause_s(4, UnreachableError("")) for _ in range(200)}
    assert 0.4 <= min(pauses) < 0.45 < 0.75 < max(pauses) <= 0.8  # each end is missed with probability < 1e-11


def test_retry_after_is_honoured(fake: FakeShoal, client_of: ClientOf, pauses: Pauses) -> None:
    client_of(fake.handle, faults=[busy(7), busy(0)]).ingest(X)
    assert pauses == [7.0, 0.2]


def test_retry_after_is_read_as_seconds_or_as_a_date() -> None:
    assert parse_retry_after("12") == 12.0
    assert parse_retry_after(None) is None
    assert parse_retry_after("soon") is None
    assert parse_retry_after(f"Mon, 01 Jan {10**20} 00:00:00 GMT") is None, "a number that no date can hold"
    in_a_minute = email.utils.formatdate(time.time() + 60, usegmt=True)
    assert 57 < (parse_retry_after(in_a_minute) or 0) <= 60
    assert parse_retry_after("Mon, 01 Jan 2001 00:00:00 GMT") == 0.0


def test_number_of_tries_is_bounded(fake: FakeShoal, client_of: ClientOf, pauses: Pauses) -> None:
    client = client_of(fake.handle, faults=[busy()] * 100, retries=3)
    with pytest.raises(UnavailableError, match="gave up after 4 tries") as caught:
        client.ingest(X)
    assert len(pauses) == 3
    assert caught.value.retryable
    assert caught.value.accepted == 0


def test_deadline_bounds_all_tries_together(fake: FakeShoal, client_of: ClientOf, pauses: Pauses) -> None:
    client = client_of(fake.handle, faults=[busy()] * 1000, retries=1000, deadline_s=10.0)
    with pytest.raises(UnavailableError):
        client.ingest(X)
    assert 5.0 < pauses.now <= 10.0


def test_pause_that_would_outlast_the_deadline_is_not_begun(
    fake: FakeShoal, client_of: ClientOf, pauses: Pauses
) -> None:
    with pytest.raises(UnavailableError, match="too much is waiting"):
        client_of(fake.handle, faults=[busy(60)], deadline_s=10.0).ingest(X)
    assert pauses == []


def test_one_try_is_bounded_by_what_is_left_of_the_deadline(client_of: ClientOf, pauses: Pauses) -> None:
    seen = []

    def slow(request: httpx.Request) -> httpx.Response:
        seen.append(request.extensions["timeout"]["read"])
        pauses.now += 4.0
        return busy()

    with pytest.raises(UnavailableError):
        client_of(slow, deadline_s=10.0, timeout_s=5.0).ingest(X)
    assert seen[0] == 5.0
    assert seen[-1] < 2.0


def test_server_that_never_answered_is_given_up_soon_and_says_how_to_start_one(
    fake: FakeShoal, client_of: ClientOf, pauses: Pauses
) -> None:
    client = client_of(fake.handle, faults=["refuse"] * 100)
    with pytest.raises(UnreachableError, match="shoal serve"):
        client.components()
    assert pauses.now < 1.0


def test_server_that_restarts_is_waited_for(fake: FakeShoal, client_of: ClientOf, pauses: Pauses) -> None:
    client = client_of(fake.handle, faults=["pass"] + ["refuse"] * 9)
    assert client.ingest(X, batch_size=15).accepted == 30
    assert pauses.now > 10.0


@pytest.mark.parametrize("status", [400, 404, 409, 413, 415, 422])
def test_refusals_that_would_be_repeated_are_not_tried_again(
    status: int, fake: FakeShoal, client_of: ClientOf, pauses: Pauses
) -> None:
    with pytest.raises(Exception, match="no such luck") as caught:
        client_of(fake.handle, faults=[problem(status, "x", "no such luck")]).ingest(X)
    assert caught.value.status == status  # type: ignore[attr-defined]
    assert pauses == []


def test_fault_of_the_server_is_not_tried_again(fake: FakeShoal, client_of: ClientOf, pauses: Pauses) -> None:
    with pytest.raises(ServerError):
        client_of(fake.handle, faults=[problem(500, "internal", "its log says why")]).components()
    assert pauses == []


def test_lost_reply_to_a_delete_is_told_and_not_repeated(fake: FakeShoal, client_of: ClientOf) -> None:
    client = client_of(fake.handle, faults=["pass", "lose"])
    client.create_stream("s", n_features=2)
    with pytest.raises(OutcomeUnknownError, match="may have been done"):
        client.delete_stream("s")
    assert fake.streams == {}


def test_delete_that_was_refused_at_the_door_is_repeated(fake: FakeShoal, client_of: ClientOf) -> None:
    client = client_of(fake.handle, faults=["pass", busy(), "refuse", "pass"])
    client.create_stream("s", n_features=2)
    client.delete_stream("s")
    assert fake.streams == {}


def test_failure_in_the_middle_says_how_many_points_are_stored(fake: FakeShoal, client_of: ClientOf) -> None:
    client = client_of(fake.handle, faults=["pass", "pass", problem(409, "stream-conflict", "no")])
    with pytest.raises(ConflictError) as caught:
        client.ingest(X, batch_size=7)
    assert caught.value.accepted == 14 == len(fake.streams["default"].x)


def test_wait_goes_on_through_timeouts_of_the_server_until_its_own(
    fake: FakeShoal, client_of: ClientOf, pauses: Pauses
) -> None:
    late = problem(504, "offset-not-applied", "not applied yet", retry_after=1)
    client = client_of(fake.handle, faults=["pass"] + [late] * 30, retries=2)
    client.ingest(X)
    assert client.wait(30, timeout_s=300.0) == 30
    assert len(pauses) == 30

    client = client_of(fake.handle, faults=[late] * 1000, retries=2)
    with pytest.raises(UnavailableError, match="not applied yet"):
        client.wait(30, timeout_s=20.0)


def test_a_wait_that_its_deadline_ends_in_the_middle_of_a_try_says_what_the_server_said(
    client_of: ClientOf, pauses: Pauses
) -> None:
    def slow(request: httpx.Request) -> httpx.Response:
        limit = request.extensions["timeout"]["read"]
        pauses.now += min(limit, 5.0)
        if limit < 5.0:
            raise httpx.ReadTimeout("", request=request)
        return problem(504, "offset-not-applied", "learnt as far as offset 7", retry_after=1)

    with pytest.raises(UnavailableError, match="as far as offset 7"):
        client_of(slow).wait(30, timeout_s=20.0)
