"""BLAS has one thread while a stream learns or answers, and afterwards as many as before."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from shoal import StreamingDPMixture
from shoal.estimators import fitted
from shoal.mixture import MixtureSnapshot
from shoal.runtime import blas
from shoal.runtime.blas import one_blas_thread


def n_threads() -> set[int]:
    """Threads of every BLAS library that is loaded."""
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Two threads, as on a machine with no setting, whatever an earlier test of this process has set.

    threadpoolctl cannot do it: it ignores every thread but the first that ever set a limit.
    """
    before = [(library, library.num_threads) for library in blas._libraries()]
    for library, now in before:
        blas._set(library, 2, now)
    yield
    for library, n_threads in before:
        blas._set(library, n_threads, library.num_threads)


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
            leave.wait(120)

    thread = threading.Thread(target=other)
    with one_blas_thread:
        thread.start()
        assert entered.wait(120)
    assert n_threads() == {1}, "the other is still inside"
    leave.set()
    thread.join()
    assert n_threads() == {2}


def test_of_a_library_whose_setting_is_each_threads_own_every_thread_sets_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OpenBLAS built with OpenMP is such a one."""

    class OpenMP:
        threading_layer = "openmp"

        def __init__(self) -> None:
            self.of_thread: dict[int, int] = {}

        @property
        def num_threads(self) -> int:
            return self.of_thread.get(threading.get_ident(), 8)

        def set_num_threads(self, n: int) -> None:
            self.of_thread[threading.get_ident()] = n

    library, seen = OpenMP(), list[int]()
    monkeypatch.setattr(blas, "_libraries", lambda: [library])

    def other() -> None:
        with one_blas_thread, one_blas_thread:
            seen.append(library.num_threads)
        seen.append(library.num_threads)

    with one_blas_thread:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        seen.append(library.num_threads)
    seen.append(library.num_threads)
    assert seen == [1, 8, 1, 8]


def test_a_child_of_a_fork_begins_with_nobody_inside() -> None:
    with one_blas_thread:
        one_blas_thread.forget()  # what a fork calls in the child
        assert one_blas_thread._shared.inside == 0
        one_blas_thread.__enter__()  # so that the end of this block has something to leave
    with one_blas_thread:
        assert n_threads() == {1}
