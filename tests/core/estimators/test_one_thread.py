"""BLAS has one thread while a stream learns or answers, and afterwards as many as before."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from shoal import StreamingDPMixture
from shoal._blas import one_blas_thread
from shoal.estimators import fitted
from shoal.mixture import MixtureSnapshot


def n_threads() -> set[int]:
    """Threads of every BLAS library that is loaded."""
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """As on a machine where nobody says anything."""
    with threadpool_limits(2, user_api="blas"):
        yield


def test_while_it_learns_refines_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[int]] = {}

    def noted(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def wrapped(*args: object, **options: object) -> object:
            seen[name] = n_threads()
            return real(*args, **options)

        monkeypatch.setattr(owner, name, wrapped)

    noted(fitted, "assimilate_inplace")
    noted(fitted, "refine")
    noted(MixtureSnapshot, "predict")
    noted(MixtureSnapshot, "log_density")
    x = np.random.default_rng(0).normal(size=(300, 2))
    model = StreamingDPMixture("diagonal", warmup_points=200)
    model.partial_fit(x)
    assert n_threads() == {2}
    model.refine()
    for ask in (model.predict, model.predict_proba, model.novelty, model.score):
        ask(x)
        assert n_threads() == {2}
    assert seen == {name: {1} for name in ("assimilate_inplace", "refine", "predict", "log_density")}


def test_after_an_error() -> None:
    with pytest.raises(ValueError, match="NaN"):
        StreamingDPMixture("diagonal").partial_fit([[np.nan, 0.0]])
    assert n_threads() == {2}


def test_threads_that_overlap_set_it_back_when_the_last_leaves() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_blas_thread:
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with one_blas_thread:
        thread.start()
        assert entered.wait(10)
    assert n_threads() == {1}, "the other is still inside"
    leave.set()
    thread.join()
    assert n_threads() == {2}
