"""The misfit monitor: what a refinement tells it, what the kernel makes of it, and when it calls."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.metrics import adjusted_rand_score

from harness.short_form import longer
from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart, take
from shoal.families.capabilities import log_left_out, log_left_out_by_partition
from shoal.inference import best_entries
from shoal.mixture import MisfitMonitor, snapshot_of, to_bytes
from shoal.refinement.job import own_fit
from shoal.sequential import assimilate_inplace


def test_the_fit_is_that_of_points_left_out(stream: SimpleNamespace, family: str) -> None:
    """Against statistics made again from the other points."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(90, 2)), 20.0 + rng.normal(size=(60, 2)), 90.0 + rng.normal(size=(9, 2))])
    x[20, 0] += 50.0  # an outlier, which the monitor clips
    resp = np.zeros((159, 3))
    resp[:90, 0], resp[90:150, 1], resp[150:, 2] = 1.0, 1.0, 1.0
    resp[:5, 0], resp[:5, 1] = 0.7, 0.3
    weights = rng.uniform(0.3, 1.0, size=159)
    prior = stream.prior(family, 2, 1.0, 1e3)
    stats = prior.suffstats(x, resp * weights[:, None])
    base, spread = own_fit(prior, stats, x, weights, csr_matrix(resp))
    for k, own in enumerate((np.arange(90), np.arange(90, 150))):
        scores = []
        for row in own:
            others = np.delete(np.arange(159), row)
            rest = prior.suffstats(x[others], (resp * weights[:, None])[others][:, [k]])
            scores.append(prior.log_predictive(prior.posterior(rest), x[[row]])[0, 0])
        assert spread[k] == pytest.approx(max(np.std(scores), 0.5), rel=1e-6)
        clipped = np.clip((np.mean(scores) - np.array(scores)) / spread[k], -3.0, 8.0).mean()
        assert base[k] == pytest.approx(np.mean(scores) - spread[k] * clipped, rel=1e-6)
        assert (abs(clipped) > 1e-3) == (k == 0)
    assert spread[2] == 0.0  # too few points to say
    assert take(stats, [2]).mass[0] > 0


GAUSSIANS: dict[str, Callable[[int], AnyFamily]] = {
    "full": lambda d: NormalInverseWishart.weak(d, within_variance=0.3, mean_strength=0.01),
    "diagonal": lambda d: NormalInverseGamma.weak(d, within_variance=0.3, mean_strength=0.01),
    "known": lambda d: KnownCovariance.weak(d, within_variance=0.3, mean_strength=0.01),
    "known full": lambda d: KnownCovariance(np.full(d, 0.5), np.diag(1.0 + np.arange(d)), np.eye(d) + 0.3),
}


@pytest.mark.parametrize("name", list(GAUSSIANS))
@pytest.mark.parametrize("d", [1, 3, 12])
@pytest.mark.parametrize("n", [2, 40])
def test_gaussians_leave_points_out_as_every_family_does(name: str, d: int, n: int) -> None:
    """In closed form, against a posterior for each point; with a point that the rest knows nothing of, all of it and a
    part of it in the component."""
    rng = np.random.default_rng([d, n])
    x, share = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3.0, rng.uniform(0.2, 1.0, n)
    x[0] += 1e3
    share[:2] = 1.0, 1e-9
    family = GAUSSIANS[name](d)
    component = family.suffstats(x, share[:, None])
    found = log_left_out(family, component, x, share)
    np.testing.assert_allclose(found, log_left_out_by_partition(family, component, x, share), rtol=1e-6)
    for i in range(n):
        without = np.where(np.arange(n) == i, 0.0, share)
        rest = family.posterior(family.suffstats(x, without[:, None]))
        assert found[i] == pytest.approx(family.log_predictive(rest, x[[i]])[0, 0], rel=1e-6)


def test_best_entries_are_the_largest_the_first_of_equals() -> None:
    resp = np.array([[0.2, 0.8, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 1.0], [0.1, 0.2, 0.7]])
    best, share = best_entries(csr_matrix(resp))
    assert best.tolist() == [1, 0, 2, 2]
    assert share.tolist() == [0.8, 0.5, 1.0, 0.7]


def test_a_row_without_an_entry_has_no_best_one() -> None:
    with pytest.raises(ValueError, match="a row has no responsibility"):
        best_entries(csr_matrix(([0.3], [0], [0, 1, 1]), shape=(2, 2)))


def watched(stream: SimpleNamespace, family: str, n: int = 400) -> object:
    """A live state of three clusters far apart, two of which are watched, the third collecting from nothing."""
    x, _ = stream.far(n, 2, 3)
    prior = stream.prior(family, 2, 1.0, 1e4)
    state = stream.feed(stream.settings(n_features=2, family=family, prior=prior), x).state
    assert state.n_components == 3
    monitor: MisfitMonitor = state.monitor
    monitor.base[:3], monitor.spread[:3], monitor.level[:3] = (-3.0, -3.0, 0.0), (1.0, 2.0, 0.0), (0.1, -0.2, 0.0)
    monitor.settled_at[:3], monitor.collected[:3] = (1, 1, 0), 0.0
    return state._replace(schedule=state.schedule._replace(refined_at=1, adopted=1))


def test_levels_are_running_averages_of_the_shortfall(stream: SimpleNamespace, family: str) -> None:
    """Point by point, from the predictive density of the statistics as they were before it."""
    state = watched(stream, family)
    x, _ = stream.far(480, 2, 3)
    x = x[400:].copy()
    x[30] += 300.0  # founds a component: no component's shortfall
    x[40, 1] += 3.9
    monitor = state.monitor
    levels, spreads = monitor.level[:2].copy(), monitor.spread[:2].copy()
    prior, collected = state.prior, []
    for row in x:
        stats = take(state.stats, slice(0, state.n_components))
        score = prior.log_predictive(prior.posterior(stats), row[None])[0]
        k = int(np.argmax(score + np.log(stats.mass)))
        state, info = assimilate_inplace(state, row[None])
        if info.n_births == 0 and k < 2:
            shortfall = np.clip((-3.0 - score[k]) / spreads[k], -3.0, 8.0)
            levels[k] += (shortfall - levels[k]) / 50.0
        if info.n_births == 0 and k == 2:
            collected.append(float(score[k]))
        np.testing.assert_allclose(state.monitor.level[:2], levels, rtol=0, atol=1e-7)
    assert len(collected) == state.monitor.collected[2] > 15
    assert state.monitor.base[2] == pytest.approx(np.mean(collected), abs=1e-6)
    assert state.monitor.level[2] == pytest.approx(len(collected) * np.var(collected), rel=1e-6)
    assert state.monitor.spread[2] == 0.0
    assert state.monitor.collected[3] == 0.0  # the newborn is too light to say anything of


def test_a_component_that_no_refinement_has_placed_is_watched_after_a_while(stream: SimpleNamespace) -> None:
    x, z = stream.far(2_000, 2, 3)
    prior = stream.prior("gaussian", 2, 1.0, 1e4)
    settings = stream.settings(n_features=2, prior=prior)
    state = stream.feed(settings, x[:600]).state
    assert (state.monitor.spread[:3] == 0.0).all()
    state = stream.feed(settings, x, 190, through_bytes=True).state
    assert state.monitor.collected[:3].tolist() == [200.0] * 3
    assert state.monitor.spread[:3] == pytest.approx(1.0, abs=0.25)  # half a chi-squared of two degrees
    assert state.monitor.base[:3] == pytest.approx(-1.0 - np.log(2.0 * np.pi), abs=0.3)
    assert np.abs(state.monitor.level[:3]).max() < 0.6
    x[:, 1] += 4.0 * (z == 1)
    state = stream.feed(state, x[:300]).state
    assert state.schedule.alarm > 2_000
    assert state.monitor.level[:3].argmax() == 1


@pytest.mark.parametrize("family", ["gaussian", longer("diagonal"), longer("known_covariance")])
def test_the_alarm_is_the_offset_of_the_first_misfit_whatever_the_cuts(stream: SimpleNamespace, family: str) -> None:
    x, _ = stream.far(640, 2, 3)
    x = x[400:].copy()
    x[40:, 1] += 2.0
    blobs, alarms = set(), set()
    for cut in (1, 7, 64, 300):
        state = stream.feed(watched(stream, family), x, cut, through_bytes=True).state
        blobs.add(to_bytes(state))
        alarms.add(state.schedule.alarm)
    assert len(blobs) == 1
    (alarm,) = alarms
    before = stream.feed(watched(stream, family), x[: alarm - 401]).state
    at = stream.feed(watched(stream, family), x[: alarm - 400]).state
    assert before.schedule.alarm == -1
    assert at.schedule.alarm == alarm > 0
    assert at.monitor.level[:2].max() > 0.75 >= before.monitor.level[:2].max()


@pytest.mark.parametrize("family_name", ["gaussian", "diagonal"])
def test_a_cluster_that_comes_beside_a_settled_one_is_told_apart(
    stream: SimpleNamespace, refining: SimpleNamespace, family_name: str
) -> None:
    """Five deviations away, where one pass takes it for the tail of the old one: the old one misfits, the refinement
    that this asks for parts them."""
    rng = np.random.default_rng(3)
    n = 9_000
    x = rng.normal(size=(n, 2))
    late = (np.arange(n) >= 5_000) & (rng.random(n) < 0.3)
    x[late, 0] += 5.0
    settings = stream.settings(n_features=2, family=family_name, birth_threshold=1.0 - 1e-12)
    calm = refining.run(settings, x[:5_000])
    assert calm.state.n_components == 1
    assert calm.state.schedule.alarm == -1
    run = refining.run(settings, x)
    assert "misfit" in run.reasons
    assert run.made[run.reasons.index("misfit")].changed
    assert run.made[run.reasons.index("misfit")].base_offset - 5_000 <= 2_000
    assert run.state.n_components >= 2
    assert any(event.kind == "split" for event in run.events)
    assert adjusted_rand_score(late[-3_000:], snapshot_of(run.state).predict(x[-3_000:]).component) > 0.8


@pytest.mark.parametrize("d", [1, 2, 16])
def test_a_stationary_stream_raises_no_alarm(stream: SimpleNamespace, refining: SimpleNamespace, d: int) -> None:
    x, _ = stream.far(9_000, d, 4, seed=1)
    run = refining.run(stream.settings(n_features=d, window=4_000), x)
    assert "misfit" not in run.reasons
    assert run.state.schedule.alarm == -1
    watched = run.state.monitor.spread[: run.state.n_components] > 0
    assert watched.all()
    assert np.abs(run.state.monitor.level[: run.state.n_components]).max() < 0.6
