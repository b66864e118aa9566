"""Data that break a mixture written less carefully: far from zero, badly scaled, constant, repeated, few, wide."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.short_form import longer, short_form
from shoal import StreamingDPMixture
from shoal.mixture import MixtureSnapshot, MixtureState, snapshot_of

MOVES = {
    "shifted by 1e6": lambda x: x + 1e6,
    "scaled by 1e-3": lambda x: x * 1e-3,
    "scaled by 1e3": lambda x: x * 1e3,
    "shifted by 1e6, scaled by 1e-3": lambda x: 1e6 + 1e-3 * x,
    "shifted by 1e6, scaled by 1e3": lambda x: 1e6 + 1e3 * x,
    "shifted by -1e6 in one feature and scaled by 1e3 in the other": lambda x: x * [1.0, 1e3] - [1e6, 0.0],
}


def _same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two labelings group the points alike."""
    pairs = np.unique(np.stack([a, b], axis=1), axis=0)
    return len(pairs) == len(np.unique(a)) == len(np.unique(b))


def _all_finite(state: MixtureState) -> bool:
    n = state.n_components
    fields = [*state.stats, *state.cache, state.pairs[:n]]
    return all(bool(np.isfinite(field[:n]).all()) for field in fields)


def _finite_answers(snapshot: MixtureSnapshot, x: np.ndarray) -> bool:
    answer = snapshot.predict(x)
    total = answer.resp.sum(axis=1) + answer.novelty
    numbers = [answer.log_density, answer.novelty, answer.resp, snapshot.means, snapshot.variances]
    return all(bool(np.isfinite(array).all()) for array in numbers) and bool(np.allclose(total, 1.0, atol=1e-9))


@pytest.fixture(params=[None, longer("auto")])
def refinement(request: pytest.FixtureRequest) -> Any:
    """Whether the fits of the warm-up are searched: five times the time of all else."""
    return request.param


@pytest.fixture
def learn(stream: SimpleNamespace, family: str, refinement: Any) -> Any:
    """Learn x under the automatic prior, in pieces, and check that nothing became NaN on the way."""

    def learn(x: np.ndarray, **settings: Any) -> MixtureSnapshot:
        given = stream.settings(n_features=x.shape[1], family=family, refinement=refinement, **settings)
        state = stream.feed(given, x, 700).state
        assert _all_finite(state)
        assert stream.mass_error(state) < 1e-9
        snapshot = snapshot_of(state)
        assert _finite_answers(snapshot, x[:500])
        return snapshot

    return learn


FAMILIES = ("gaussian", "diagonal", "known_covariance")


@pytest.mark.parametrize(
    ("family", "move", "refinement"),
    short_form(
        [(family, move, refinement) for move in MOVES for family in FAMILIES for refinement in (None, "auto")],
        [
            ("gaussian", "shifted by -1e6 in one feature and scaled by 1e3 in the other", "auto"),
            ("diagonal", "shifted by 1e6, scaled by 1e3", None),
            ("known_covariance", "shifted by -1e6 in one feature and scaled by 1e3 in the other", None),
        ],
    ),
)
def test_moved_data_give_the_same_partition(stream: SimpleNamespace, learn: Any, move: str) -> None:
    x = stream.nine(1_400, seed=1)[0][:900]
    moved = MOVES[move](x)
    plain, other = learn(x, warmup_points=400), learn(moved, warmup_points=400)
    assert plain.n_components >= 8
    assert _same_partition(plain.predict(x).component, other.predict(moved).component)
    assert plain.ids.tolist() == other.ids.tolist()


@pytest.mark.parametrize(
    ("family", "move"),
    short_form(
        [(family, move) for move in ("shifted by 1e6", "scaled by 1e-3", "scaled by 1e3") for family in FAMILIES],
        [("gaussian", "scaled by 1e-3"), ("diagonal", "shifted by 1e6")],
    ),
)
def test_densities_follow_the_units(stream: SimpleNamespace, learn: Any, move: str) -> None:
    x, _ = stream.nine(700, seed=2)
    moved = MOVES[move](x)
    volume = 2 * np.log(moved[:, 0].std() / x[:, 0].std())
    np.testing.assert_allclose(
        learn(x, warmup_points=400).predict(x).log_density,
        learn(moved, warmup_points=400).predict(moved).log_density + volume,
        rtol=0,
        atol=1e-4,
    )


@pytest.mark.parametrize("move", MOVES)
def test_an_explicit_prior_in_the_units_of_moved_data(stream: SimpleNamespace, move: str) -> None:
    """No standardisation comes to help here: only the arithmetic itself."""
    from shoal.families import NormalInverseGamma

    x, _ = stream.far(1_500, 2, 6, seed=3)
    labels = []
    for data in (x, MOVES[move](x)):
        spread, centre = data.std(axis=0), data.mean(axis=0)
        prior = NormalInverseGamma(centre, 0.01, 10.0, 10.0 * (spread / x.std(axis=0)) ** 2)
        settings = stream.settings(n_features=2, family="diagonal", prior=prior)
        run = stream.feed(settings, data, 700)
        assert _all_finite(run.state)
        labels.append(snapshot_of(run.state).predict(data).component)
    assert len(np.unique(labels[0])) == 6
    assert _same_partition(*labels)


def test_constant_columns(stream: SimpleNamespace, learn: Any) -> None:
    x, _ = stream.nine(2_000, seed=4)
    padded = np.column_stack([np.full(2_000, 3.0), x[:, 0], np.zeros(2_000), x[:, 1], np.full(2_000, -1e6)])
    snapshot = learn(padded)
    assert snapshot.n_components >= 6, "three constant features cost a component as much as three others"
    np.testing.assert_allclose(snapshot.means[:, 0], 3.0, atol=0.5)
    other = padded[:50].copy()
    other[:, 0] += 1.0  # a constant column that is constant no more: unlikely, not impossible
    assert np.isfinite(snapshot.predict(other).log_density).all()


def test_all_columns_constant(learn: Any) -> None:
    snapshot = learn(np.full((1_500, 3), 7.0))
    assert snapshot.n_components == 1
    assert snapshot.means[0] == pytest.approx(7.0)


def test_duplicates(learn: Any) -> None:
    """Four points, five hundred times each: four components, and no scatter of the points to divide by."""
    points = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 12.0], [50.0, 50.0]])
    x = np.random.default_rng(5).permutation(np.repeat(points, 500, axis=0))
    snapshot = learn(x)
    assert len(np.unique(snapshot.predict(points).component)) == 4


def test_nothing_but_one_point_repeated_and_then_another(learn: Any) -> None:
    x = np.concatenate([np.full((1_200, 2), 2.0), np.full((30, 2), 500.0)])
    snapshot = learn(x)
    assert snapshot.predict(x[[0, -1]]).component.tolist() == [0, 1]


@pytest.mark.parametrize("value", [0.0, 3.5, -1e6, 1e150])
def test_one_point(learn: Any, value: float) -> None:
    snapshot = learn(np.full((1, 3), value))
    assert snapshot.n_components == 1
    assert snapshot.means[0] == pytest.approx(value)


def test_one_feature(stream: SimpleNamespace, learn: Any) -> None:
    x, z = stream.far(2_000, 1, 5, seed=6)
    snapshot = learn(x)
    assert _same_partition(snapshot.predict(x).component, z)


def test_512_features(learn: Any) -> None:
    rng = np.random.default_rng(7)
    z = rng.integers(4, size=90)
    x = 2.0 * rng.normal(size=(4, 512))[z] + rng.normal(size=(90, 512))
    snapshot = learn(x, warmup_points=40)
    assert _same_partition(snapshot.predict(x).component, z)


@pytest.mark.parametrize("family", [longer("gaussian"), "diagonal", longer("known_covariance")])
def test_2000_components(stream: SimpleNamespace, family: str) -> None:
    rng = np.random.default_rng(8)
    z = np.concatenate([rng.permutation(2_000), rng.integers(2_000, size=3_000)])
    centres = 30.0 * np.stack([np.arange(2_000) % 50, np.arange(2_000) // 50], axis=1)
    x = centres[z] + rng.normal(size=(5_000, 2))
    prior = stream.prior(family, 2, 1.0, 5e5)
    run = stream.feed(stream.settings(n_features=2, family=family, prior=prior), x, 3_000)
    assert run.state.n_components == 2_000
    assert _all_finite(run.state)
    assert stream.mass_error(run.state) < 1e-9
    assert _same_partition(snapshot_of(run.state).predict(x).component, z)


def test_an_outlier_as_far_as_numbers_go(stream: SimpleNamespace, learn: Any) -> None:
    x, _ = stream.nine(1_500, seed=9)
    x[1_200] = [1e150, -1e150]
    x[1_300] = [-1e120, 3.0]
    snapshot = learn(x)
    assert np.isfinite(snapshot.predict(x[[0, 1_200, 1_300]]).log_density).all()
    assert snapshot.n_components >= 9


def test_sorted_and_slowly_growing_data(learn: Any) -> None:
    """The warm-up sees a corner of it only."""
    x = np.sort(np.random.default_rng(10).normal(size=(4_000, 1)), axis=0) * [1.0, 2.0]
    learn(x)
    learn(np.cumsum(np.random.default_rng(11).normal(size=(4_000, 2)), axis=0), half_life=500.0)


def test_a_question_far_beyond_the_scale_of_tiny_data_is_answered_without_a_warning(
    stream: SimpleNamespace, family: str
) -> None:
    """(x - location) / scale overflows there; warnings are errors in this suite."""
    x, _ = stream.nine(1_200, seed=12)
    settings = stream.settings(n_features=2, family=family, refinement=None)
    snapshot = snapshot_of(stream.feed(settings, x * 1e-160, 700).state)
    assert np.isfinite(snapshot.predict(np.array([[1e150, -1e150]])).log_density).all()


def test_a_state_that_outliers_have_spoilt_reads_its_own_bytes(stream: SimpleNamespace, family: str) -> None:
    """The predictive cache differs from one made again by all the digits that they cost, and is accepted."""
    x, _ = stream.nine(3_000, seed=13)
    x[1_100], x[1_200:1_202] = 1e8, [[1e40, -1e40], [-1e40, 1e40]]
    settings = stream.settings(n_features=2, family=family, max_components=6, refinement=None)
    assert stream.feed(settings, x, 270, through_bytes=True).state.points_seen == 3_000


@pytest.mark.parametrize(
    ("family", "size", "share"),
    [
        ("subspace", 1e100, 0.3),
        ("gaussian", 1e100, 0.05),
        ("gaussian", 1e149, 0.9),
        ("known_covariance", 1e60, 0.05),
        ("known_covariance", 1e100, 0.9),
        ("known_covariance", 1e149, 0.9),
    ],
)
def test_absurd_values_after_the_warm_up(family: str, size: float, share: float) -> None:
    """As from memory that was never written. Refinements raised SettingError, or warned of overflows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6))
    far = np.flatnonzero(rng.random(200) < share) + 200
    x[far] = np.clip(x[far] * size * 10.0 ** rng.normal(size=(len(far), 1)), -1e150, 1e150)
    model = StreamingDPMixture(family, warmup_points=200).fit(x[:200]).partial_fit(x[200:])
    model.refine()
    model.partial_fit(x[:50])
    monitor = model._fitted.state.monitor
    assert monitor is not None
    assert all(np.isfinite(field).all() for field in monitor)
    assert np.isfinite(model.score_samples(x)).all()
    assert model.clusters().n_clusters >= 1


@pytest.mark.parametrize("size", [1e-60, 1e60])
def test_a_subspace_of_rows_of_any_size(size: float) -> None:
    """Rows are not standardised under it, and a prior has a range of variances."""
    x = size * np.random.default_rng(0).normal(size=(40, 6))
    model = StreamingDPMixture("subspace").fit(x)
    assert np.isfinite(model.score_samples(x)).all()
