"""The executor on Ray: a cluster of its own on loopback, a killed worker, and the error where Ray is absent."""

import builtins
import gc
import os
import signal
import socket
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from shoal import DPMixture
from shoal.errors import SettingError
from shoal.runtime.executors import executor_of, in_order
from shoal.runtime.ray_executor import Ray, _check_answers


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_ray(name: str, *arguments: Any) -> Any:
        if name == "ray":
            raise ImportError("no ray")
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_ray)
    assert executor_of("ray", 2, "auto") == Ray("auto", 2)
    with pytest.raises(SettingError, match=r"pip install 'shoal\[ray\]'"), Ray().started():
        pass


def test_an_address_where_nothing_listens_is_refused_at_once() -> None:
    with socket.socket() as bound:  # bound and not listening
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(SettingError, match=f"no Ray cluster answers at {address}"):
            _check_answers(address)
    with pytest.raises(SettingError, match="no Ray cluster answers"):
        _check_answers("ray://127.0.0.1:99999999")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster of this process, which both tests below share: it takes many seconds to start."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed; pip install 'shoal[ray]'")
    with Ray(workers=2).started():
        yield
    with warnings.catch_warnings():  # Ray leaves its processes to the interpreter, which warns of them
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def shifted(shift: int, item: int) -> int:
    if item < 0:
        raise ValueError(f"{item} is negative")
    return shift + item


def killed_once(marks: str, item: int) -> int:
    """The process of item 3 is killed when it is first computed."""
    mark = Path(marks, "killed")
    if item == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


@pytest.mark.slow
def test_tasks_of_a_killed_worker_are_done_again(cluster: None, tmp_path: Path) -> None:
    with Ray(workers=2).started() as pool:
        assert list(in_order(pool, shifted, 5, range(8))) == list(range(5, 13))
        assert list(in_order(pool, killed_once, str(tmp_path), range(8))) == [i * i for i in range(8)]
        assert (tmp_path / "killed").exists()
        with pytest.raises(ValueError, match="-1 is negative"):
            list(in_order(pool, shifted, 5, [1, -1]))


@pytest.mark.slow
def test_a_fit_on_ray_has_the_bits_of_one_in_this_process(cluster: None, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(4):
        np.save(tmp_path / f"{i}.npy", 5.0 * rng.integers(3, size=(400, 2)) + rng.normal(size=(400, 2)))
    here = DPMixture(random_state=0).fit(tmp_path)
    there = DPMixture(random_state=0, executor="ray", n_jobs=2).fit(tmp_path)
    assert there.elbo_history_.tolist() == here.elbo_history_.tolist()


@pytest.mark.slow
def test_a_cluster_of_its_own_listens_on_loopback_alone(cluster: None) -> None:
    below = {child.pid for child in psutil.Process().children(recursive=True)}
    listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.pid in below]
    assert listening
    assert {c.laddr.ip.removeprefix("::ffff:") for c in listening} <= {"127.0.0.1", "::1"}
