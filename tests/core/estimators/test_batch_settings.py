"""Settings of DPMixture: starts from given responsibilities, samples, and what is refused and how."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from shoal import DPMixture, SettingError, ShapeError
from shoal.estimators import warm_batch_kernels
from shoal.estimators.batch_engines import ENGINES
from shoal.families import KnownCovariance, NormalInverseWishart
from shoal.sampling import component_stats, log_joint
from shoal.sampling.gibbs_kernel import gibbs_sweep
from shoal.variational import fit_fast_vdp, fit_vdp, taylor_sweep_inplace
from shoal.variational.tree_kernel import sort_down

PRIOR = KnownCovariance([0.0, 0.0], 6.0, 1.0)
STARTED = tuple(name for name, row in ENGINES.items() if "resp_init" in row.reads)
SAMPLERS = ("gibbs", "blocked-gibbs", "split-merge")
ROUNDS = tuple(name for name in STARTED if name not in (*SAMPLERS, "tfv"))


def points(n: int = 40, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 2.5 * rng.normal(size=(3, 2))[rng.integers(3, size=n)] + rng.normal(size=(n, 2))


def partitions(n: int) -> Any:
    def extend(labels: list[int]) -> Any:
        if len(labels) == n:
            yield np.array(labels)
            return
        for label in range(max(labels, default=-1) + 2):
            yield from extend([*labels, label])

    return extend([])


@pytest.fixture(scope="module")
def evidence() -> float:
    """Of six points, by enumeration of their 203 partitions."""
    x = points(6)
    return float(logsumexp([log_joint(PRIOR, 1.4, component_stats(PRIOR, x, labels)) for labels in partitions(6)]))


@pytest.mark.parametrize("method", ["vdp", "fast-vdp", "tfv", "gibbs", "split-merge", "search"])
def test_bound_is_below_the_evidence_of_the_process(method: str, evidence: float) -> None:
    x = points(6)
    fitted = DPMixture(PRIOR, method, 1.4, random_state=0).fit(x)
    assert evidence - 6.0 < fitted.elbo_ < evidence


@pytest.mark.parametrize("method", ROUNDS)
def test_history_is_the_bound_after_each_round(method: str) -> None:
    """A fit of s rounds is the beginning of a longer one, and its components are those of resp_init."""
    x = points()
    start = np.random.default_rng(2).dirichlet(np.full(4, 0.3), size=len(x))
    histories = [
        DPMixture(PRIOR, method, max_iter=rounds, tol=0.0, random_state=0).fit(x, resp_init=start).elbo_history_
        for rounds in (0, 1, 2, 7)
    ]
    for rounds, history in zip((0, 1, 2), histories, strict=False):
        assert len(history) == rounds + 1
        assert_allclose(history, histories[3][: rounds + 1], rtol=1e-12)
    if method in ("vdp", "tsb", "o-tsb", "fsd"):
        assert np.all(np.diff(histories[3]) > -1e-9)


@pytest.mark.parametrize("method", STARTED)
def test_one_hot_start_of_one_component(method: str) -> None:
    """log p(x, z) of everything together, by each model's own label prior: exact, no approximation is left."""
    x = points()
    fitted = DPMixture(PRIOR, method, 1.0, random_state=0, **({} if method in SAMPLERS else {"max_iter": 0}))
    fitted.fit(x, resp_init=np.ones((len(x), 1)))
    together = log_joint(PRIOR, 1.0, component_stats(PRIOR, x, np.zeros(len(x), dtype=np.int64)))
    restaurant = together - float(component_evidence(x))
    truncated = {"tsb": 0.0, "o-tsb": 0.0, "ctsb": 0.0, "o-ctsb": 0.0, "fsd": 0.0, "cfsd": 0.0}  # T = 1: z is certain
    # one free stick: lB(1 + N, alpha) - lB(1, alpha) = -log(1 + N) at alpha = 1; the restaurant's is -log N
    sticks = {"vdp": -np.log(1.0 + len(x)), "tfv": -np.log(1.0 + len(x))}
    samplers = {"gibbs": restaurant, "split-merge": restaurant, "blocked-gibbs": 0.0}
    prior = {**sticks, **samplers, **truncated}[method]
    assert fitted.elbo_history_[0] == pytest.approx(float(component_evidence(x)) + prior, rel=1e-12)


def component_evidence(x: np.ndarray) -> float:
    """log m(x) of one component, by the chain rule of predictives."""
    total = 0.0
    for i in range(len(x)):
        stats = PRIOR.suffstats(x[:i], np.ones((i, 1)))
        total += float(PRIOR.log_predictive(PRIOR.posterior(stats), x[i : i + 1])[0, 0])
    return total


def test_gibbs_keeps_its_samples() -> None:
    x = points(30)
    fitted = DPMixture(PRIOR, "gibbs", n_samples=15, burn_in=5, thinning=2, n_chains=2, random_state=0).fit(x)
    assert fitted.samples_.shape == (30, 30)
    assert fitted.samples_.dtype == np.int64
    for labels, value in zip(fitted.samples_, fitted.sample_log_joint_, strict=True):
        counts = np.bincount(labels)
        assert np.all(counts > 0)
        assert np.all(np.diff(counts) <= 0)
        assert value == pytest.approx(log_joint(PRIOR, 1.0, component_stats(PRIOR, x, labels)), rel=1e-10)
    best = int(np.argmax(fitted.sample_log_joint_))
    assert_array_equal(fitted.labels_, fitted.samples_[best])
    assert fitted.elbo_ == fitted.sample_log_joint_[best]
    assert len(fitted.elbo_history_) == 1 + 5 + 30
    assert not hasattr(
        fitted.set_params(method="vdp", n_samples=100, burn_in=100, thinning=1, n_chains=1).fit(x), "samples_"
    )


def test_gibbs_of_named_family_tells_log_joints_in_the_units_of_the_data() -> None:
    x = points(50) * 1e3
    fitted = DPMixture("gaussian", "gibbs", random_state=0, n_samples=10).fit(x)
    z = (x - fitted.location_) / fitted.scale_
    joint = log_joint(fitted.prior_, 1.0, component_stats(fitted.prior_, z, fitted.labels_))
    assert fitted.elbo_ == pytest.approx(joint - 50 * np.log(fitted.scale_).sum(), rel=1e-10)
    assert fitted.sample_log_joint_.max() == pytest.approx(fitted.elbo_)


def test_resp_init_of_gibbs_is_where_chains_start() -> None:
    x = points(30)
    start = np.eye(3)[np.arange(30) % 3]
    fitted = DPMixture(PRIOR, "gibbs", random_state=0).fit(x, resp_init=start)
    there = log_joint(PRIOR, 1.0, component_stats(PRIOR, x, np.arange(30) % 3))
    assert fitted.elbo_history_[0] == pytest.approx(there, rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "em"}, "choose one of vdp"),
        ({"method": None}, "choose one of vdp"),
        ({"family": "cauchy"}, "choose one of gaussian"),
        ({"family": "student", "method": "gibbs"}, "only a lower bound"),
        ({"family": 3}, "shoal.families"),
        ({"family": NormalInverseWishart(np.zeros(3), 1.0, 5.0, np.eye(3))}, "prior for 3 features"),
        ({"concentration": 0.0}, "concentration is 0.0"),
        ({"concentration": "1"}, "concentration is '1'"),
        ({"concentration": float("nan")}, "concentration is nan"),
        ({"n_init": 0}, "n_init is 0"),
        ({"n_init": 2.0}, "n_init is 2.0"),
        ({"max_iter": -1}, "max_iter is -1"),
        ({"tol": -1e-3}, "tol is -0.001"),
        ({"tol": float("nan")}, "tol is nan"),
        ({"moves": "best"}, "'default' or 'paper'"),
        ({"method": "tsb", "truncation": 0}, "truncation is 0"),
        ({"method": "tsb", "truncation": True}, "truncation is True"),
        ({"method": "ctsb", "expectations": "monte carlo"}, "'taylor' or 'exact'"),
        ({"method": "gibbs", "burn_in": -1}, "burn_in is -1"),
        ({"method": "gibbs", "n_samples": 0}, "n_samples is 0"),
        ({"method": "gibbs", "n_init": 2}, "n_chains"),
        ({"method": "gibbs", "max_iter": 5}, "it is for vdp"),
        ({"method": "vdp", "truncation": 5}, "it is for tsb"),
        ({"method": "vdp", "burn_in": 5}, "it is for gibbs"),
        ({"method": "tsb", "expectations": "exact"}, "it is for ctsb"),
        ({"random_state": "seed"}, "random_state is 'seed'"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        DPMixture(**settings).fit(points())


@pytest.mark.parametrize(
    ("start", "error", "words"),
    [
        (np.ones((39, 1)), ShapeError, "39 rows for 40 points"),
        (np.full((40, 2), 0.6), SettingError, "summing to one"),
        (np.tile([1.5, -0.5], (40, 1)), SettingError, "not negative"),
    ],
)
@pytest.mark.parametrize("method", STARTED)
def test_unusable_starts_are_refused(method: str, start: np.ndarray, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        DPMixture(method=method).fit(points(), resp_init=start)


def test_fast_vdp_has_no_such_start() -> None:
    with pytest.raises(SettingError, match="resp_init is set"):
        DPMixture(method="fast-vdp").fit(points(), resp_init=np.ones((40, 1)))


def test_a_failed_fit_leaves_the_fit_before() -> None:
    fitted = DPMixture(random_state=0).fit(points())
    before = fitted.elbo_
    with pytest.raises(SettingError):
        fitted.set_params(concentration=-1.0).fit(points())
    assert fitted.elbo_ == before


def test_sticks_of_any_beta_reach_the_engine() -> None:
    """Beta(1, alpha) is the concentration; any other pair is another prior, whose bound the engine gives."""
    x = points(60)
    same = DPMixture(PRIOR, "vdp", sticks=(1.0, 0.7), random_state=0).fit(x)
    assert same.elbo_ == DPMixture(PRIOR, "vdp", 0.7, random_state=0).fit(x).elbo_
    for method, engine in (("vdp", fit_vdp), ("fast-vdp", fit_fast_vdp)):
        other = DPMixture(PRIOR, method, sticks=(0.5, 3.0), random_state=0).fit(x)
        assert other.elbo_ == engine(PRIOR, x, sticks=(0.5, 3.0), rng=np.random.default_rng(0)).elbo
        assert other.elbo_ != same.elbo_
    for bad in ((1.0,), (1.0, 0.0), 2.0):
        with pytest.raises(SettingError, match="sticks"):
            DPMixture(PRIOR, "vdp", sticks=bad).fit(x)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="sticks is set"):
        DPMixture(PRIOR, "tsb", sticks=(1.0, 2.0)).fit(x)


def test_leaves_and_rounds_on_points_reach_the_tree() -> None:
    x = points(400)
    bounds = [
        DPMixture(PRIOR, "fast-vdp", leaf_points=size, point_rounds=rounds, random_state=0).fit(x).elbo_
        for size, rounds in ((100.0, 0), (100.0, 5), (1.0, 0))
    ]
    assert bounds[0] < bounds[1] <= bounds[2] + 1.0
    with pytest.raises(SettingError, match="leaf_points"):
        DPMixture(PRIOR, "fast-vdp", leaf_points=0.5).fit(x)
    with pytest.raises(SettingError, match="point_rounds is set"):
        DPMixture(PRIOR, "vdp", point_rounds=3).fit(x)


def test_the_exact_bound_of_a_taylor_fit_is_in_the_units_of_the_data() -> None:
    """Twice the scale, the same fit: both bounds fall by the log volume; and the exact one is that of exact rounds."""
    x = points(30)
    fits = [DPMixture("diagonal", "ctsb", truncation=4, random_state=0).fit(c * x) for c in (1.0, 2.0)]
    volume = x.size * np.log(2.0)
    for name in ("elbo_", "exact_elbo_"):
        assert getattr(fits[0], name) - getattr(fits[1], name) == pytest.approx(volume, abs=1e-6)
    assert fits[0].exact_elbo_ != fits[0].elbo_
    assert abs(fits[0].exact_elbo_ - fits[0].elbo_) < 1.0
    exact = DPMixture("diagonal", "ctsb", truncation=4, expectations="exact", random_state=0).fit(x)
    assert exact.exact_elbo_ == exact.elbo_
    assert not hasattr(DPMixture("diagonal", "tsb", truncation=4, random_state=0).fit(x), "exact_elbo_")


def test_what_the_batch_methods_run_can_be_compiled_beforehand() -> None:
    warm_batch_kernels()
    before = [len(kernel.signatures) for kernel in (sort_down, taylor_sweep_inplace, gibbs_sweep)]
    assert min(before) >= 1
    for method in ("fast-vdp", "ctsb", "gibbs"):
        for family in ("gaussian", "diagonal", "known_covariance"):
            short = {"n_samples": 1, "burn_in": 0} if method == "gibbs" else {"max_iter": 1}
            DPMixture(family, method, **short, random_state=0).fit(points())  # type: ignore[arg-type]
    assert [len(kernel.signatures) for kernel in (sort_down, taylor_sweep_inplace, gibbs_sweep)] == before
