"""Partitions learnt by workers of an executor: the same bits, also when workers are lost."""

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

import shoal.partitions.workers
from harness.losing_workers import KilledProcesses
from shoal import StreamingDPMixture
from shoal.errors import SettingError
from shoal.runtime.executors import Pool, lasting

ROUND = 1_024
CALLS = (1_500, 100, 3_300, 1, 600)
"""Rows of each call: rounds that are whole, that are cut, and that are less than a range."""


@pytest.fixture(autouse=True, scope="module")
def _short_rounds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal.mixture.round.ROUND_ROWS", ROUND)
        patch.setattr("shoal.mixture.round.LEAST_ROUND_ROWS", 64)
        yield


def rows(n: int, seed: int = 0) -> np.ndarray:
    """Four clusters, of which two come later."""
    rng = np.random.default_rng(seed)
    z = rng.integers(np.where(np.arange(n) < n // 2, 2, 4))
    return 7.0 * np.stack([z % 2, z // 2, z], axis=1) + rng.normal(size=(n, 3))


def learnt(executor: Any, **settings: Any) -> StreamingDPMixture:
    """A model that has learnt rows in several calls."""
    model = StreamingDPMixture("gaussian", partitions=3, executor=executor, warmup_points=300, **settings)
    x, weights = rows(sum(CALLS)), np.random.default_rng(1).uniform(0.5, 2.0, sum(CALLS))
    start = 0
    for i, n in enumerate(CALLS):
        own = slice(start, start + n)
        model.partial_fit(x[own], sample_weight=weights[own] if i == 2 else None)
        start += n
    return model


def assert_same(model: StreamingDPMixture, other: StreamingDPMixture) -> None:
    """The same bits of the state, the same labels of the last call, and the same events."""
    assert saved(model) == saved(other)
    assert_array_equal(model.labels_, other.labels_)
    assert model.events_ == other.events_


def saved(model: StreamingDPMixture) -> bytes:
    file = BytesIO()
    model.save(file)
    return file.getvalue()


class ReadOnly:
    """A pool that gives arguments and results as Ray does: as views that may not be written."""

    n_workers = 2

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":
        answer: Future[Any] = Future()
        answer.set_result(read_only(function(*(read_only(argument) for argument in arguments))))
        return answer

    def shared(self, value: Any) -> Any:
        return value

    def lost(self) -> bool:
        return False

    def renew(self) -> None:
        raise AssertionError("nothing is lost")

    def shutdown(self) -> None:
        pass


def read_only(value: Any) -> Any:
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, 5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[memoryview(bytes(buffer.raw())) for buffer in buffers])


@dataclass(frozen=True)
class Views:
    """See `ReadOnly`."""

    @contextmanager
    def started(self) -> Iterator[Pool]:
        yield ReadOnly()


class Dying(ReadOnly):
    """A pool whose workers end with every task, from the third one on."""

    def __init__(self) -> None:
        self.submitted = 0

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":
        self.submitted += 1
        if self.submitted < 3:
            return super().submit(function, *arguments)
        lost: Future[Any] = Future()
        lost.set_exception(BrokenExecutor("the worker ended"))
        return lost

    def renew(self) -> None:
        pass


@dataclass(frozen=True)
class Mortal:
    """See `Dying`."""

    @contextmanager
    def started(self) -> Iterator[Pool]:
        yield Dying()


@dataclass(frozen=True)
class Recovering(Mortal):
    """The same, apart from others."""


@pytest.fixture(scope="module")
def here(_short_rounds: None) -> StreamingDPMixture:
    """The model that this process learns alone."""
    return learnt(None)


def test_workers_in_processes_give_the_bits_of_this_process(here: StreamingDPMixture) -> None:
    assert_same(learnt("processes"), here)


def test_arrays_that_may_not_be_written_change_nothing(here: StreamingDPMixture) -> None:
    assert_same(learnt(Views()), here)


def test_a_product_of_families_travels_to_workers() -> None:
    """Its tuples have no name in their module, by which others are pickled."""
    rng, x = np.random.default_rng(3), rows(3_000)
    mixed = np.column_stack([x, rng.poisson(2.0 + x[:, 0].clip(0)), rng.integers(3, size=len(x))])
    family = {"0-2": "gaussian", "3": "poisson", "4": "categorical"}
    alone, other = (StreamingDPMixture(family, partitions=3, refinement=None, executor=e) for e in (None, Views()))
    assert_same(other.partial_fit(mixed), alone.partial_fit(mixed))


def test_a_killed_worker_costs_nothing_but_time(here: StreamingDPMixture) -> None:
    assert_same(learnt(KilledProcesses(2, after=3)), here)


def test_without_workers_this_process_goes_on_alone_and_says_so_once(here: StreamingDPMixture) -> None:
    with pytest.warns(RuntimeWarning, match=r"no worker of Mortal\(\) computes any more .*goes on alone") as warned:
        model = learnt(Mortal())
    assert len(warned) == 1
    assert_same(model, here)


def test_lost_workers_are_tried_again_where_the_executor_is_set_again(here: StreamingDPMixture) -> None:
    with pytest.warns(RuntimeWarning, match="give executor again by set_params"):
        model = learnt(Recovering())
    pool, more = lasting(Recovering()).pool, rows(3_000, seed=2)
    assert isinstance(pool, Dying)
    pool.submitted = before = -1_000
    expected = saved(pickle.loads(pickle.dumps(here)).partial_fit(more))
    assert saved(model.set_params(executor=Recovering()).partial_fit(more)) == expected
    assert pool.submitted > before


def test_workers_of_another_version_compute_nothing(here: StreamingDPMixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def computed(common: Any, sent: Any) -> Any:
        return real(common._replace(version="1-of-another-machine"), sent)

    real = shoal.partitions.workers._computed
    monkeypatch.setattr(shoal.partitions.workers, "_computed", computed)
    with pytest.warns(RuntimeWarning, match="'1-of-another-machine'; give all machines of the cluster the same"):
        model = learnt(Views())
    assert_same(model, here)


def test_an_error_in_a_worker_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def computed(common: Any, sent: Any) -> Any:
        raise MemoryError("a worker has no more memory")

    monkeypatch.setattr(shoal.partitions.workers, "_computed", computed)
    with pytest.raises(MemoryError, match="a worker has no more memory"):
        learnt(Views())


def test_the_executor_is_no_part_of_what_is_saved(here: StreamingDPMixture) -> None:
    model, more = learnt(Views()), rows(3_000, seed=2)
    loaded = StreamingDPMixture.load(BytesIO(saved(model)))
    assert (loaded.executor, loaded.n_jobs) == (None, None)
    assert clone(model).executor == Views()
    expected = saved(pickle.loads(pickle.dumps(here)).partial_fit(more))
    for other in (pickle.loads(pickle.dumps(model)), loaded, loaded.set_params(executor=Views())):
        assert saved(pickle.loads(pickle.dumps(other)).partial_fit(more)) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"executor": "processes"}, "executor is 'processes', but one partition leaves workers nothing to do"),
        ({"executor": "threads", "partitions": 2}, "executor is 'threads'; choose"),
        ({"n_jobs": 2, "partitions": 2}, "2 workers are asked for without an executor"),
        ({"executor": "processes", "n_jobs": 0, "partitions": 2}, "the number of workers is 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_changed(given: dict[str, Any], message: str) -> None:
    model = StreamingDPMixture("gaussian").partial_fit(rows(200))
    before = saved(model)
    with pytest.raises(SettingError, match=message):
        model.set_params(**given).partial_fit(rows(200))
    with pytest.raises(SettingError, match=message):
        StreamingDPMixture("gaussian", **given).fit(rows(200))
    assert saved(model) == before


def test_workers_are_shared_by_equal_executors() -> None:
    assert lasting(Views()) is lasting(Views())
    assert lasting(Views()) is not lasting(Mortal())
