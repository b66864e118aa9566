"""While kernels are compiled NumPy answers: what it answers, and that nothing of it stays where it is not to."""

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoal import StreamingDPMixture
from shoal.families import FAMILIES, NormalInverseWishart
from shoal.families.predictive_cache import work_type
from shoal.mixture import MixtureState, StreamSettings, from_bytes, moves, to_bytes
from shoal.sequential import assimilate_inplace, auto_prior, initial_state, learning, readiness, trials

WORK_FORMS = {work_type(kind.weak(2)).__name__ for kind in FAMILIES.values()} | {"SharedBasisWork"}
ALONE = "variances_alone DiagonalWork"
PRIOR = NormalInverseWishart([4.0, 4.0], 0.1, 10.0, 10.0 * np.eye(2))


class Compiler:
    """Stands in for the compiler: at work from when it is asked until `finish`, or until somebody waits for it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.waited = 0
        self.error: Exception | None = None
        self._done: set[str] = set()
        self._go = threading.Event()

    def needs(self, kernel: Any, arguments: tuple[Any, ...]) -> bool:
        return self._named(kernel, arguments) not in {"", *self._done}

    def call(self, calls: list[tuple[Any, tuple[Any, ...]]]) -> None:
        names = {self._named(*call) for call in calls} - {""}
        self.asked += sorted(names)
        self._go.wait()
        if self.error is not None:
            raise self.error
        self._done |= names

    @staticmethod
    def _named(kernel: Any, arguments: tuple[Any, ...]) -> str:
        """Of the passes kernel and working form; empty for any other kernel."""
        name = kernel.py_func.__name__
        forms = sorted({type(argument).__name__ for argument in arguments} & WORK_FORMS)
        return " ".join([name, *forms]) if name in ("sva_pass", "variances_alone") else ""

    def finish(self) -> None:
        """The compiler has done what it was asked for."""
        self._go.set()
        for task in list(readiness._compiling.values()):
            task.compilation._thread.join()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """A machine that has compiled nothing; a kernel called before it is compiled is an error."""
    own, wait = Compiler(), readiness.Compilation.wait

    def waited(compilation: Any) -> None:
        own.waited += compilation.running
        own._go.set()
        wait(compilation)

    def only_compiled(call: Any) -> Any:
        def checked(*given: Any, **options: Any) -> Any:
            assert own._go.is_set(), "a kernel was called while it was being compiled"
            return call(*given, **options)

        return checked

    for name in ("needs_compiler", "call_all"):
        monkeypatch.setattr(readiness, name, getattr(own, name.partition("_")[0]))
    monkeypatch.setattr(readiness, "_at_hand", set())
    monkeypatch.setattr(readiness, "_compiling", {})
    monkeypatch.setattr(readiness, "MOST_WORK", 20_000.0)
    monkeypatch.setattr(readiness.Compilation, "wait", waited)
    callers = [(learning, "one_pass_inplace"), (learning, "standardised_by_kernel"), (moves, "join_ceiling")]
    callers += [(trials, "one_pass_inplace"), (auto_prior, "pooled_variances")]
    for module, name in callers:
        monkeypatch.setattr(module, name, only_compiled(getattr(module, name)))
    yield own
    own.finish()


def pass_of(family: str, n_features: int) -> str:
    """What the one pass of a family is asked for by."""
    return f"sva_pass {work_type(FAMILIES[family].weak(n_features)).__name__}"


def mixture(state: MixtureState) -> list[bytes]:
    """All that a state has learnt, but for the ids and births of its components."""
    n = state.n_components
    arrays = [*(field[:n] for field in (*state.stats, *state.work)), state.pairs[:n, :n], state.location, state.scale]
    prior = state.prior
    assert prior is not None
    return [array.tobytes() for array in [*arrays, *prior.to_arrays().values()]]


def test_a_first_call_is_answered_by_numpy(family: str, compiler: Compiler) -> None:
    z = np.arange(60) % 3
    x = np.random.default_rng(0).normal(30.0 * np.eye(3)[z])
    model = StreamingDPMixture(family)
    assert model.partial_fit(x[:40]) is model
    assert np.isfinite(model.score_samples(x)).all()
    labels = model.partial_fit(x[40:]).predict(x)
    assert len(set(labels.tolist())) == len(set(zip(labels.tolist(), z.tolist(), strict=True))) == 3
    assert model.means_.shape == (3, 3)
    assert np.isfinite(model.covariances_).all()
    assert compiler.waited == 0
    compiler.finish()
    assert compiler.asked == [pass_of(family, 3), ALONE]


@pytest.mark.parametrize(
    ("n_features", "prior", "needed"),
    [
        (2, PRIOR, [pass_of("gaussian", 2)]),
        (32, "auto", [pass_of("gaussian", 32), ALONE]),
        (33, "auto", [pass_of("gaussian", 33), ALONE, pass_of("diagonal", 33)]),
    ],
)
def test_a_search_is_compiled_for_where_there_is_one(
    n_features: int, prior: Any, needed: list[str], compiler: Compiler
) -> None:
    """From 33 features on the family `diagonal` stands in for the stream's own."""
    state = initial_state(StreamSettings(family="gaussian", n_features=n_features, prior=prior))
    assert readiness.learns_plainly(state, 1)
    compiler.finish()
    assert compiler.asked == needed
    assert readiness.kernels_at_hand(state)


@pytest.mark.parametrize("name", ["multinomial", "bernoulli", "poisson", "dirichlet", "von_mises_fisher"])
def test_every_family_is_answered_for(name: str, compiler: Compiler) -> None:
    rng = np.random.default_rng(0)
    rates = rng.dirichlet(np.full(6, 0.2), size=3)[np.arange(90) % 3]
    x = rng.poisson(20.0 * rates).astype(float)
    if name == "bernoulli":
        x = np.minimum(x, 1.0)
    if name in ("dirichlet", "von_mises_fisher"):
        x = rng.dirichlet(np.ones(6), size=90) + 3.0 * rates
        x /= x.sum(axis=1, keepdims=True) if name == "dirichlet" else np.linalg.norm(x, axis=1, keepdims=True)
    model = StreamingDPMixture(name)
    for start in range(0, 90, 30):
        model.partial_fit(x[start : start + 30])
    assert np.isfinite(model.score_samples(x)).all()
    assert np.isin(model.predict(x), model.component_ids_).all()
    assert model.masses_.sum() == pytest.approx(90.0)
    assert compiler.waited == 0
    compiler.finish()
    assert compiler.asked == [pass_of(name, 6)]
    assert np.isfinite(model.partial_fit(x).score(x))


def test_after_the_warm_up_the_mixture_is_that_of_kernels_alone(
    stream: SimpleNamespace, family: str, compiler: Compiler
) -> None:
    """Bit for bit, but for ids; the last fit has waited."""
    x, _ = stream.nine(1_300, seed=4)
    model = StreamingDPMixture(family, refinement=None)
    for start in range(0, 1_300, 130):
        model.partial_fit(x[start : start + 130])
        assert compiler.waited == (start + 130 > 1_000)
    state = model._fitted.state
    whole = StreamingDPMixture(family, refinement=None).fit(x)._fitted.state
    assert mixture(state) == mixture(whole)
    assert (state.points_seen, state.next_check, state.schedule) == (
        whole.points_seen,
        whole.next_check,
        whole.schedule,
    )


def test_under_a_prior_of_ones_own_it_is_the_kernel_to_rounding(stream: SimpleNamespace, compiler: Compiler) -> None:
    x, _ = stream.nine(900, seed=4)
    model = StreamingDPMixture(prior=PRIOR)
    for start in range(0, 600, 200):
        model.partial_fit(x[start : start + 200])
    assert compiler.waited == 0
    compiler.finish()
    model.partial_fit(x[600:])
    whole = StreamingDPMixture(prior=PRIOR).fit(x)
    assert np.array_equal(model.component_ids_, whole.component_ids_)
    np.testing.assert_allclose(model.masses_, whole.masses_, rtol=1e-9)
    assert model.events_ == whole.events_
    assert mixture(model._fitted.state) != mixture(whole._fitted.state)  # or nothing was learnt by NumPy


@pytest.mark.parametrize("rows", [1_000, 11_000])
def test_more_than_two_seconds_of_work_waits_for_the_compiler(
    stream: SimpleNamespace, rows: int, compiler: Compiler
) -> None:
    """And so does what brings a refinement: then all of it is learnt by kernels."""
    x, _ = stream.nine(rows, seed=4)
    settings: dict[str, Any] = {"prior": PRIOR, "refinement": None if rows > 1_000 else "auto"}
    model = StreamingDPMixture(**settings).partial_fit(x)
    assert compiler.waited == 1
    assert mixture(model._fitted.state) == mixture(StreamingDPMixture(**settings).fit(x)._fitted.state)


def test_the_work_of_all_calls_counts(stream: SimpleNamespace, compiler: Compiler) -> None:
    x, _ = stream.nine(400, seed=4)
    model, calls = StreamingDPMixture(prior=PRIOR, refinement=None), 0
    while compiler.waited == 0:
        model.partial_fit(x)
        calls += 1
    assert 5 <= calls * 400 / 1_000 <= 11


def test_one_call_to_fit_waits(stream: SimpleNamespace, compiler: Compiler) -> None:
    """A table given at once has the same answer on every machine."""
    x, _ = stream.nine(400)
    model = StreamingDPMixture().fit(x[:200])
    assert compiler.waited == 1
    state, _ = assimilate_inplace(initial_state(stream.settings(n_features=2, refinement=None)), x[:200])
    assert mixture(model._fitted.state) == mixture(state)
    model.partial_fit(x[200:])
    state, _ = assimilate_inplace(state, x[200:])
    assert mixture(model._fitted.state) == mixture(state)


def test_a_compilation_that_ends_while_it_is_asked_for_leaves_the_rows_to_the_kernels(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: NumPy's share of the work is reckoned to a compilation under way."""
    state = initial_state(StreamSettings(family="gaussian", n_features=2, prior=PRIOR))
    at_hand = readiness.kernels_at_hand

    def ends_after(state: MixtureState) -> bool:
        found = at_hand(state)
        compiler.finish()
        return found

    monkeypatch.setattr(readiness, "kernels_at_hand", ends_after)
    assert not readiness.learns_plainly(state, 1)
    assert compiler.asked == [pass_of("gaussian", 2)]


def test_an_interrupted_wait_begins_no_second_compilation(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    state = initial_state(StreamSettings(family="gaussian", n_features=2, prior=PRIOR))
    assert readiness.learns_plainly(state, 10)

    def interrupted(compilation: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(readiness.Compilation, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            readiness.wait_for_kernels(state)
    assert readiness.learns_plainly(state, 10)
    compiler.finish()
    assert compiler.asked == [pass_of("gaussian", 2)]


def test_a_compiler_that_fails_is_heard_and_asked_again(stream: SimpleNamespace, compiler: Compiler) -> None:
    x, _ = stream.nine(1_200)
    model = StreamingDPMixture().partial_fit(x[:100])
    compiler.error = RuntimeError("the compiler broke")
    with pytest.raises(RuntimeError, match="compiler broke"):
        model.partial_fit(x[100:1_100])
    assert len(model.predict(x)) == 1_200
    compiler.error = None
    model.partial_fit(x[100:])
    assert mixture(model._fitted.state) == mixture(StreamingDPMixture().fit(x)._fitted.state)


def test_what_is_saved_knows_nothing_of_it(stream: SimpleNamespace, compiler: Compiler) -> None:
    x, _ = stream.nine(1_200)
    model = StreamingDPMixture(refinement=None).partial_fit(x[:300])
    blob = model._fitted.to_bytes()
    assert to_bytes(*from_bytes(blob)) == blob
    loaded = pickle.loads(pickle.dumps(model))
    for one in (model, loaded):
        one.partial_fit(x[300:])
    assert to_bytes(model._fitted.state) == to_bytes(loaded._fitted.state)


@pytest.mark.parametrize("method", ["default", "sva-pm"])
def test_checks_decays_and_renewals_call_no_kernel(
    stream: SimpleNamespace, family: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, _ = stream.nine(1_300, spacing=2.5)
    prior = stream.prior(family, 2, 0.5, 30.0)
    settings = stream.settings(n_features=2, family=family, prior=prior, method=method, half_life=500.0)
    expected, told = assimilate_inplace(initial_state(settings), x)
    for name in ("one_pass_inplace", "renew_gaussian", "renew_diagonal"):
        monkeypatch.setattr(learning, name, None)
    state, info = assimilate_inplace(initial_state(settings), x, plain=True)
    assert info.events == told.events
    assert np.array_equal(info.labels, told.labels)
    for ours, theirs in zip(state.stats, expected.stats, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)


COLD = """
import hashlib, json, sys, threading
import numpy as np
from numba.core.compiler_lock import global_compiler_lock
from shoal import StreamingDPMixture
from shoal.sequential.sva_kernel import sva_pass

rng = np.random.default_rng(0)
x = rng.poisson(np.exp(rng.normal(0, 2, (4, 6)))[rng.integers(4, size=1_100)])
model = StreamingDPMixture("poisson", refinement=None)
held, answered = threading.Event(), threading.Event()

def hold():  # nobody compiles, or loads what is compiled, before the answer is there
    with global_compiler_lock:
        held.set()
        answered.wait()

warm = sys.argv[1:] == ["warm"]
if not warm:
    threading.Thread(target=hold).start()
    held.wait()
model.partial_fit(x[:50])
answer = np.isfinite(model.score_samples(x)).all() and len(set(model.predict(x).tolist())) > 1
compiled = len(sva_pass.signatures)
compiling = sum(thread.name == "shoal-compiler" for thread in threading.enumerate())
answered.set()
for start in range(50, 1_100, 150):
    model.partial_fit(x[start : start + 150])
state = model._fitted.state
fields = [field[: state.n_components] for field in (*state.stats, *state.work)]
digest = hashlib.sha256(b"".join(field.tobytes() for field in [*fields, *state.prior.to_arrays().values()]))
misses = sum(sva_pass.stats.cache_misses.values())
print(json.dumps([bool(answer), compiled, compiling, misses, len(sva_pass.signatures), digest.hexdigest()]))
"""


def test_a_process_that_finds_nothing_compiled(tmp_path: Path) -> None:
    """It answers, goes on with the kernel that it has compiled, and ends with what a process has that finds it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SHOAL_KERNEL_CACHE": str(tmp_path)}
    found = []
    for how in ("cold", "warm"):
        command = [sys.executable, "-c", COLD, how]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
        found.append(json.loads(done.stdout))
    (*cold, cold_digest), (*warm, warm_digest) = found
    assert cold == [True, 0, 1, 1, 1]
    assert warm == [True, 1, 0, 0, 1]
    assert cold_digest == warm_digest
