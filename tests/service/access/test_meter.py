"""Limits of a key: what a long run lets through, counted by hand, and what waits."""

import itertools

import numpy as np
import pytest

from shoal_service.access import Limits, Meter
from shoal_service.access.meter import TokenBucket
from shoal_service.errors import BodyTooLargeError, RateLimitedError


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("rate", "n"), [(5.0, 1.0), (0.25, 1.0), (100.0, 37.0), (100.0, 950.0)])
def test_whoever_waits_as_told_gets_exactly_the_rate(rate: float, n: float) -> None:
    """n tokens a turn at `rate` take n / rate seconds, but for the one full bucket at the start."""
    clock = Clock()
    bucket = TokenBucket(rate, clock)
    turns = 200
    for _ in range(turns):
        if (wait_s := bucket.take(n)) > 0.0:
            clock.now += wait_s
            assert bucket.take(n) == 0.0, "one wait is enough"
    took, at_once = clock.now - 100.0, max(1.0, rate) / n
    assert took == pytest.approx((turns - max(at_once, 1.0)) * n / rate, rel=0.02)


def test_no_window_of_time_lets_more_through_than_the_rate_and_one_bucket() -> None:
    rng = np.random.default_rng(3)
    clock = Clock()
    bucket = TokenBucket(10.0, clock)
    taken = []
    for _ in range(3000):
        clock.now += float(rng.exponential(0.03))
        n = float(rng.integers(1, 8))
        if bucket.take(n) == 0.0:
            taken.append((clock.now, n))
    times, sizes = np.array(taken).T
    total = np.concatenate([[0.0], np.cumsum(sizes)])
    for first, last in itertools.combinations(range(0, len(times), 25), 2):
        let_through = total[last + 1] - total[first]
        assert let_through <= 10.0 * (times[last] - times[first]) + 10.0 + 1e-6
    assert total[-1] > 0.95 * 10.0 * (times[-1] - times[0]), "what may pass, passes"


def test_a_refusal_takes_nothing_and_its_wait_is_exact() -> None:
    clock = Clock()
    bucket = TokenBucket(2.0, clock)
    assert [bucket.take(1.0), bucket.take(1.0)] == [0.0, 0.0]
    waits = [bucket.take(1.0) for _ in range(5)]
    assert waits == [0.5] * 5
    clock.now += 0.49
    assert bucket.take(1.0) > 0.0
    clock.now += 0.01 + 1e-9
    assert bucket.take(1.0) == 0.0


def test_a_batch_larger_than_a_second_passes_once_and_is_paid_for() -> None:
    clock = Clock()
    meter = Meter("gauge", Limits(points_per_s=100.0), clock)
    meter.check_points()
    meter.count_points(1000)
    for refused in (meter.check_points, lambda: meter.count_points(1)):
        with pytest.raises(RateLimitedError, match="'gauge' is at its limit of 100 points a second") as caught:
            refused()
        assert 9.0 <= (caught.value.retry_after_s or 0.0) <= 9.02
    clock.now += 9.02
    meter.check_points()
    meter.count_points(1)


def test_bytes_in_flight_are_those_of_bodies_that_are_not_done() -> None:
    meter = Meter("gauge", Limits(bytes_in_flight=100), Clock())
    meter.hold(0, 60)
    meter.hold(0, 30)
    with pytest.raises(RateLimitedError, match="100 bytes in flight"):
        meter.hold(0, 11)
    meter.hold(30, 40)
    with pytest.raises(RateLimitedError):
        meter.hold(40, 41)
    meter.release(60)
    meter.hold(40, 100)
    with pytest.raises(BodyTooLargeError, match="smaller batches"):
        meter.hold(0, 101)
    meter.release(100)
    meter.hold(0, 100)


def test_a_key_without_a_limit_waits_for_nothing() -> None:
    meter = Meter("gauge", Limits(), Clock())
    for _ in range(1000):
        meter.count_request()
        meter.check_points()
        meter.count_points(10**9)
        meter.hold(0, 10**12)
