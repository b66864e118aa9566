"""The executor on a Ray cluster, with the extra `ray` (Moritz et al. 2018): tasks of Ray Core, and no other part of it.

Ray computes the task of a lost worker or machine again. Shared values lie in its object store, once a machine.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from shoal.errors import SettingError
from shoal.runtime.blas import one_blas_thread

_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_ON_LOOPBACK: list[Any] = []
"""The module of Ray, if it was imported so that a cluster of its own listens on loopback."""
_ANSWER_S = 10.0
"""Seconds within which a cluster must accept a connection."""
_RETRIES = 3
"""Times that Ray tries a task again whose worker was lost; then the map does, as with any executor."""


@dataclass(frozen=True)
class Ray:
    """A Ray cluster at an address ("auto", "host:6379", "ray://host:10001"); None: one of this process's own, on
    loopback. Tasks at a time: `workers`, None for the processors of the cluster.

    shoal must be installed on every machine, and the files must have the same names there.
    """

    address: str | None = None
    workers: int | None = None

    @contextmanager
    def started(self) -> Iterator["_RayPool"]:
        """See `shoal.runtime.executors.Executor`. Raises SettingError where Ray is absent or does not answer."""
        ray = _ray(own_cluster=self.address is None)
        mine = not ray.is_initialized()
        if mine:
            if self.address is None and not _ON_LOOPBACK and os.environ.get(_CLUSTERS) != "0":
                raise SettingError("Ray was imported before, and would listen on all interfaces; call ray.init() first")
            _connect(ray, self.address, self.workers)
        pool = _RayPool(ray, self.workers or max(1, int(ray.cluster_resources().get("CPU", 1))))
        try:
            yield pool
        finally:
            pool.shutdown()
            if mine:
                ray.shutdown()


def _connect(ray: Any, address: str | None, workers: int | None) -> None:
    own: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        own |= {"address": "local", "num_cpus": workers, "include_dashboard": False}
    else:
        _check_answers(address)
        own["address"] = address
    try:
        with _on_loopback() if address is None else nullcontext():
            ray.init(**own)
    except (ConnectionError, OSError, ValueError, RuntimeError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise SettingError(f"Ray cannot be used {where}: {str(error).strip().splitlines()[0]}") from error


def _check_answers(address: str) -> None:
    """Raise SettingError where nothing listens at an address with a port: Ray itself tries for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise SettingError(
            f"no Ray cluster answers at {address} ({error}); give the address that `ray start --head` shows, or none"
        ) from error


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Tell Ray that this machine is its only one: it then listens on loopback alone, and not on all interfaces.

    Ray reads this when it is imported, and so do the processes that it starts. On systems other than Linux it is Ray's
    default. (An address of the node on loopback is replaced by one that others reach.)
    """
    before = os.environ.get(_CLUSTERS)
    os.environ[_CLUSTERS] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CLUSTERS]
        else:
            os.environ[_CLUSTERS] = before


def _ray(*, own_cluster: bool) -> Any:
    try:
        if own_cluster and "ray" not in sys.modules:
            with _on_loopback():
                import ray
            _ON_LOOPBACK.append(ray)
        import ray
    except ImportError:
        raise SettingError(
            "executor is 'ray', but Ray is not installed; run pip install 'shoal[ray]', or choose 'processes'"
        ) from None
    return ray


class _RayPool:
    """Tasks of Ray, with futures of `concurrent.futures`."""

    def __init__(self, ray: Any, n_workers: int) -> None:
        self.n_workers = n_workers
        self._ray = ray
        self._call = ray.remote(num_cpus=1, max_retries=_RETRIES)(_call)
        self._open: list[Any] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":
        answer: Future[Any] = Future()
        found = self._call.remote(function, *arguments)
        self._open = [one for one in self._open if not one[1].done()]
        self._open.append((found, answer))
        found.future().add_done_callback(lambda done: self._answer(done, answer))
        return answer

    def _answer(self, done: "Future[Any]", answer: "Future[Any]") -> None:
        """Pass on a result, the error of the function, or the loss of a worker."""
        error = done.exception()
        if error is None:
            answer.set_result(done.result())
        elif isinstance(error, self._ray.exceptions.RayTaskError):
            answer.set_exception(error.cause if isinstance(error.cause, Exception) else error)
        elif isinstance(error, self._ray.exceptions.RayError):
            lost = BrokenExecutor(str(error).splitlines()[0])
            lost.__cause__ = error
            answer.set_exception(lost)
        else:
            answer.set_exception(error)

    def shared(self, value: Any) -> Any:
        return self._ray.put(value)

    def lost(self) -> bool:
        """Never without a word: Ray gives every task an end."""
        return False

    def renew(self) -> None:
        """Nothing: Ray starts workers itself."""

    def shutdown(self) -> None:
        for found, answer in self._open:
            if not answer.done():
                self._ray.cancel(found)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs in a worker of Ray."""
    with one_blas_thread:
        return function(*arguments)
