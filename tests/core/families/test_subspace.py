"""Gaussians in a subspace, against dense densities of all features, and what streams and engines make of them."""

import pickle
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import null_space
from scipy.stats import invwishart, multivariate_normal, multivariate_t, ortho_group
from sklearn.metrics import adjusted_rand_score

from harness.short_form import longer
from shoal import DPMixture, StreamingDPMixture
from shoal.errors import SettingError
from shoal.families import SubspaceGaussian
from shoal.families.capabilities import lags_behind, log_left_out, quadratic_form, refitted, split_rows, working_rows
from shoal.families.natural_statistics import Origin
from shoal.families.prior_choices import choices, restated
from shoal.families.subspace import SubspaceStats
from shoal.families.subspace.refit import _over
from shoal.sequential.one_pass import one_pass_inplace
from shoal.sequential.passes import PassRules, Piece, new_components
from shoal.sequential.reference import reference_pass_inplace


def prior(d: int, rank: int, seed: int = 0) -> SubspaceGaussian:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(rank, rank + 2))
    axes = np.linalg.qr(rng.normal(size=(d, rank)))[0]
    return SubspaceGaussian(rng.normal(size=d), axes, 0.3, rng.normal(size=rank), 0.5, rank + 4.0, root @ root.T)


def unit_vectors(n: int, d: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """n unit vectors with one direction in common and a direction for each of k clusters of Zipf sizes."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, k + 1)
    z = rng.choice(k, size=n, p=share / share.sum())
    common, own = rng.normal(size=d), rng.normal(size=(k, d))
    x = 0.6 * common + 0.5 * own[z] + 0.5 * rng.normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True), z


@pytest.mark.parametrize(("d", "rank"), [(5, 5), (6, 5), (7, 3), (60, 4)])
def test_density_is_that_of_the_dense_covariance(d: int, rank: int) -> None:
    """Determinant and inverse of the D x D matrix by SciPy; ranks D and D - 1, whose working rows would look alike."""
    family, rng = prior(d, rank), np.random.default_rng(1)
    params = family.posterior(family.empty_stats(3))
    drawn = family.sample_parameters(params, rng)
    x = family.sample_points(drawn, 4, rng).reshape(-1, d)
    axes, outside = family.directions, np.eye(d) - family.directions @ family.directions.T
    for k in range(3):
        whole = axes @ drawn.covariance[k] @ axes.T + family.noise_variance * outside
        exact = multivariate_normal(family.center + axes @ drawn.mean[k], whole).logpdf(x)
        assert_allclose(family.log_likelihood(drawn, x)[:, k], exact, rtol=1e-10, atol=1e-10)


def test_predictive_is_a_student_t_times_the_noise() -> None:
    """In the rotated coordinates (W, complement of W), which has determinant one."""
    family, rng = prior(9, 3), np.random.default_rng(2)
    x, resp = rng.normal(size=(30, 9)), rng.dirichlet(np.ones(2), 30)
    params = family.posterior(family.suffstats(x, resp))
    offset = x - family.center
    beyond = offset @ null_space(family.directions.T)
    noise = multivariate_normal(np.zeros(6), family.noise_variance * np.eye(6)).logpdf(beyond)
    for k in range(2):
        dof = float(params.dof[k]) - 2.0
        shape = params.scale[k] * (params.mean_strength[k] + 1.0) / (params.mean_strength[k] * dof)
        t = multivariate_t(params.mean[k], shape, dof).logpdf(offset @ family.directions)
        assert_allclose(family.log_predictive(params, x)[:, k], t + noise, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("d", "rank"), [(4, 4), (5, 4), (8, 3)])
def test_working_rows_serve_in_place_of_points(d: int, rank: int) -> None:
    family, rng = prior(d, rank), np.random.default_rng(3)
    x, resp = rng.normal(size=(40, d)), rng.dirichlet(np.ones(3), 40)
    rows = working_rows(family, x)
    assert rows.shape[1] != d
    assert working_rows(family, rows) is rows
    stats = family.suffstats(x, resp)
    for a, b in zip(stats, family.suffstats(rows, resp), strict=True):
        assert_array_equal(a, b)
    params, origin = family.posterior(stats), Origin(np.zeros(d), True)
    for method in (family.expected_log_likelihood, family.log_predictive):
        assert_array_equal(method(params, x), method(params, rows))
    for a, b in zip(
        family.natural_statistics(x, origin),
        family.natural_statistics(rows, Origin(np.zeros(rows.shape[1]), True)),
        strict=True,
    ):
        assert_array_equal(a, b)
    form = quadratic_form(family, params)
    assert form is not None
    away = np.einsum("kab,nkb->nka", form.root, rows[:, None, :] - form.centre)
    assert_allclose(
        form.constant - 0.5 * np.square(away).sum(axis=2), family.expected_log_likelihood(params, x), rtol=1e-11
    )
    assert split_rows(family, rows).shape == (40, rank)
    component = family.suffstats(x, np.ones((40, 1)))
    for n, score in enumerate(log_left_out(family, component, rows[:5], np.ones(5))):
        rest = family.suffstats(np.delete(x, n, axis=0), np.ones((39, 1)))
        assert score == pytest.approx(float(family.log_predictive(family.posterior(rest), x[n : n + 1])[0, 0]))


def drive(family: SubspaceGaussian, x: np.ndarray, cuts: tuple[int, ...], engine: object, **more: object) -> tuple:
    components, n, start = new_components(family, 61, "entropy"), 0, 0
    labels, log_density = np.empty(len(x), dtype=np.int64), np.empty(len(x))
    for stop in (*cuts, len(x)):
        rules, part = PassRules(1.0, 0.5, 1e-3, "entropy", 60), slice(start, stop)
        given = (family, rules, components, n, start, Piece(x[part], labels[part], log_density[part]))
        n, start = engine(*given, **more).n_components, stop  # type: ignore[operator]
    return (*(field[:n] for field in (*components.stats, *components.cache)), labels, log_density)


def test_one_pass_has_the_same_bits_wherever_it_is_cut_and_with_every_component_scored() -> None:
    """30 clusters in 16 coordinates of 40 features: bounds are worked out, and leave most components unscored."""
    rng, axes = np.random.default_rng(4), np.linalg.qr(np.random.default_rng(5).normal(size=(40, 16)))[0]
    family = SubspaceGaussian(rng.normal(size=40), axes, 0.5, np.zeros(16), 0.02, 40.0, 12.0 * np.eye(16))
    centres = 3.0 * rng.normal(size=(30, 16)) @ axes.T + family.center
    x = centres[rng.integers(30, size=1_500)] + 0.7 * rng.normal(size=(1_500, 40))
    whole = drive(family, x, (), one_pass_inplace)
    assert len(whole[0]) >= 20
    for other in (
        drive(family, x, (1, 7, 640, 641, 1_203), one_pass_inplace),
        drive(family, x, (), one_pass_inplace, block_rows=1),
    ):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(whole, other, strict=True))


def test_kernel_and_reference_learn_the_same() -> None:
    family, (x, _) = prior(12, 4, seed=5), unit_vectors(400, 12, 6, 5)
    by_kernel, by_numpy = (drive(family, 10.0 * x, (), engine) for engine in (one_pass_inplace, reference_pass_inplace))
    assert_array_equal(by_kernel[-2], by_numpy[-2])
    for a, b in zip(by_kernel, by_numpy, strict=True):
        assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_noise_is_estimated_from_what_lies_outside() -> None:
    """Three directions of a thousand points, all noise of variance 4 beyond them: 12,000 squares, 5 standard errors."""
    rng, family = np.random.default_rng(6), prior(15, 3)
    x = family.center + rng.normal(size=(1_000, 3)) @ family.directions.T
    x += 2.0 * rng.normal(size=x.shape) @ (np.eye(15) - family.directions @ family.directions.T)
    choice = choices(family, family.suffstats(x, rng.dirichlet(np.ones(2), 1_000)), 2)
    assert choice is not None
    chosen = choice.build(*choice.start)
    assert isinstance(chosen, SubspaceGaussian)
    assert chosen.noise_variance == pytest.approx(4.0, rel=5.0 * np.sqrt(2.0 / 12_000))
    assert_array_equal(chosen.directions, family.directions)


@pytest.mark.parametrize("rows", [np.ones((1, 6)), np.ones((5, 6)), np.eye(6)[:4], np.arange(120.0).reshape(20, 6)])
def test_priors_for_rows_of_fewer_directions_than_wanted(rows: np.ndarray) -> None:
    for family in SubspaceGaussian.candidate_priors(rows, thorough=False):
        axes = family.directions
        assert_allclose(axes.T @ axes, np.eye(family.rank), atol=1e-12)
        assert np.isfinite(family.log_predictive(family.posterior(family.empty_stats(1)), rows + 1.0)).all()


def test_stream_of_embeddings_finds_their_clusters_and_survives_a_restart() -> None:
    """The warm-up chooses the subspace; a model that was saved and loaded has it, and learns on with the same bits."""
    x, z = unit_vectors(2_500, 96, 12, 7)
    model = StreamingDPMixture("subspace").partial_fit(x[:1_300])
    twin = pickle.loads(pickle.dumps(model))
    for one in (model, twin):
        one.partial_fit(x[1_300:1_700])
    held = x[1_700:]
    assert adjusted_rand_score(z[1_700:], model.predict(held)) > 0.99
    assert_array_equal(model.score_samples(held), twin.score_samples(held))
    assert model.means_.shape == (len(model.component_ids_), 96)


@pytest.mark.parametrize("method", ["vdp", "fast-vdp"])
def test_batch_methods_find_clusters_of_many_features(method: str) -> None:
    x, z = unit_vectors(500, 40, 4, 8)
    fitted = DPMixture("subspace", method, random_state=0).fit(x)
    assert adjusted_rand_score(z, fitted.labels_) > 0.95


def test_directions_that_are_not_orthonormal_are_refused() -> None:
    axes = np.eye(4, 2)
    with pytest.raises(SettingError, match="from orthonormal"):
        SubspaceGaussian(np.zeros(4), 1.1 * axes, 1.0, np.zeros(2), 1.0, 3.0, np.eye(2))
    with pytest.raises(SettingError, match="there are 2 directions"):
        SubspaceGaussian(np.zeros(4), axes, 1.0, np.zeros(3), 1.0, 4.0, np.eye(3))
    with pytest.raises(SettingError, match="give \\(4, R\\)"):
        SubspaceGaussian(np.zeros(4), np.eye(3, 2), 1.0, np.zeros(2), 1.0, 3.0, np.eye(2))


def over(family: SubspaceGaussian, directions: np.ndarray) -> SubspaceGaussian:
    return SubspaceGaussian.from_arrays({**family.to_arrays(), "directions": directions})


def test_statistics_follow_a_turn_of_the_directions_exactly() -> None:
    """Other axes of the same subspace: nothing is lost, so they are those of the points themselves."""
    family, rng = prior(7, 3), np.random.default_rng(9)
    x, resp = rng.normal(size=(50, 7)), rng.dirichlet(np.ones(2), 50)
    turned = over(family, family.directions @ np.linalg.qr(rng.normal(size=(3, 3)))[0])
    for a, b in zip(restated(turned, family.suffstats(x, resp), family), turned.suffstats(x, resp), strict=True):
        assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def test_statistics_seen_from_another_subspace_are_those_expected_under_the_noise() -> None:
    """20,000 points of one component: each element within 6 standard errors, sums of squares to rounding."""
    family, rng = prior(6, 2), np.random.default_rng(10)
    drawn = family.sample_parameters(family.posterior(family.empty_stats(1)), rng)
    x = family.sample_points(drawn, 20_000, rng)[0]
    other = over(family, np.linalg.qr(rng.normal(size=(6, 2)))[0])
    stats, exact = (
        restated(other, family.suffstats(x, np.ones((20_000, 1))), family),
        other.suffstats(x, np.ones((20_000, 1))),
    )
    spread = np.sqrt(np.trace(exact.scatter[0]) / 20_000)
    assert_allclose(stats.mean, exact.mean, atol=6 * spread / np.sqrt(20_000))
    assert_allclose(stats.scatter / 20_000, exact.scatter / 20_000, atol=6 * spread**2 * np.sqrt(2 / 20_000))
    for one in (stats, exact):
        total = one.outside + np.trace(one.scatter[0]) + one.mass * np.square(one.mean).sum()
        assert_allclose(total, np.square(x - family.center).sum(), rtol=1e-11)


def test_refit_takes_in_a_direction_that_only_later_points_have() -> None:
    """The past keeps its directions; where points show nothing new, the family stays."""
    family, rng = prior(30, 3), np.random.default_rng(11)
    noise = np.sqrt(0.3) * rng.normal(size=(500, 30))
    old = family.center + 5.0 * rng.normal(size=(500, 3)) @ family.directions.T + noise
    past = family.suffstats(old[:400], np.ones((400, 1)))
    assert refitted(family, old, np.ones(500), past) is family
    new = null_space(family.directions.T)[:, 0]
    later = family.center + 5.0 * new + noise
    found = refitted(family, later, np.ones(500), past)
    assert isinstance(found, SubspaceGaussian)
    assert float(np.linalg.norm(found.directions.T @ new)) > 0.99
    strongest = np.linalg.eigh(past.scatter[0] + 400 * np.outer(past.mean[0], past.mean[0]))[1][:, -1]
    assert float(np.linalg.norm(found.directions.T @ family.directions @ strongest)) > 0.98


@pytest.mark.parametrize("rank", [4, 50])
def test_refit_has_more_directions_where_points_lie_far_outside(rank: int) -> None:
    """Twice as many, up to 64, and as firm a prior of the coordinates. Points and past keep their energy."""
    family, rng, more = prior(140, rank), np.random.default_rng(14), min(2 * rank, 64)
    beyond = null_space(family.directions.T)[:, : more - rank]
    x = family.center + np.sqrt(0.3) * rng.normal(size=(2_000, 140))
    past = family.suffstats(x[:500], rng.dirichlet(np.ones(3), 500))
    x += 20.0 * rng.normal(size=(2_000, more - rank)) @ beyond.T
    found = refitted(family, x, np.ones(2_000), past)
    assert isinstance(found, SubspaceGaussian)
    assert found.rank == more
    assert_allclose(found.directions.T @ found.directions, np.eye(more), atol=1e-12)
    assert float(np.linalg.svd(found.directions.T @ beyond)[1].min()) > 0.99
    assert found.dof - found.rank == family.dof - family.rank
    seen = restated(found, past, family)
    assert_allclose(_energy(seen), _energy(past), rtol=1e-11)


def test_more_directions_leave_the_prior_along_the_others_as_it_was() -> None:
    """By SciPy's moments of the inverse Wishart distribution; along the new directions it expects the noise."""
    family, turn = prior(60, 4), ortho_group(6, seed=3).rvs()
    family = SubspaceGaussian(
        family.center, family.directions, 0.3, family.mean, family.mean_strength, 9.5, family.scale_matrix
    )
    wide = np.hstack([family.directions, null_space(family.directions.T)[:, :2]])
    found = _over(family, wide @ turn)
    scale = turn @ found.scale_matrix @ turn.T
    before, after = invwishart(family.dof, family.scale_matrix), invwishart(found.dof, scale)
    assert_allclose(after.mean()[:4, :4], before.mean(), rtol=1e-10)
    assert_allclose(after.var()[:4, :4], before.var(), rtol=1e-10)
    assert_allclose(after.mean()[4:, 4:], 0.3 * np.eye(2), atol=1e-12)
    assert_allclose(turn @ found.mean, np.append(family.mean, np.zeros(2)), atol=1e-12)


def _energy(stats: SubspaceStats) -> np.ndarray:
    spread = np.trace(stats.scatter, axis1=1, axis2=2) + stats.mass * np.square(stats.mean).sum(axis=1)
    return np.asarray(stats.outside + spread)


def test_a_few_outliers_turn_the_directions_but_add_none() -> None:
    family, rng = prior(60, 4), np.random.default_rng(17)
    x = family.center + np.sqrt(0.3) * rng.normal(size=(1_000, 60))
    new = null_space(family.directions.T)[:, 0]
    x[::100] += 300.0 * new
    found = refitted(family, x, np.ones(1_000), family.empty_stats(1))
    assert isinstance(found, SubspaceGaussian)
    assert found.rank == 4
    assert float(np.linalg.norm(found.directions.T @ new)) > 0.85  # each counts as if as far as the farthest other row


def test_subspace_lags_behind_points_that_it_does_not_expect() -> None:
    """56 squares outside a point: of 1,000 points they have their mean to .6 %, and the limit is 20 % above."""
    family, rng = prior(60, 4), np.random.default_rng(15)
    drawn = family.sample_parameters(family.posterior(family.empty_stats(1)), rng)
    x, one = family.sample_points(drawn, 1_000, rng)[0], np.ones((1_000, 1))
    as_expected, none = family.suffstats(x, one), family.empty_stats(1)
    new = null_space(family.directions.T)[:, 0]
    nearer, further = (family.suffstats(x + size * new, one) for size in np.sqrt(56 * 0.3 * np.array([0.15, 0.25])))
    assert not lags_behind(family, as_expected, none)
    assert not lags_behind(family, nearer, none)
    assert lags_behind(family, further, none)
    assert not lags_behind(family, family.add(further, as_expected), none)
    assert lags_behind(family, family.add(further, as_expected), as_expected)
    whole = prior(4, 4)
    assert not lags_behind(whole, whole.suffstats(10.0 * x[:, :4], one), whole.empty_stats(1))


def test_stream_follows_clusters_that_come_later_into_new_directions() -> None:
    """Four clusters in the first rows, four others after. With the directions of the first rows it is .93."""
    x, z = unit_vectors(6_000, 200, 8, 13)
    order = np.argsort(z % 2, kind="stable")
    model = StreamingDPMixture("subspace")
    for start in range(0, 6_000, 1_000):
        model.partial_fit(x[order[start : start + 1_000]])
    assert adjusted_rand_score(z, model.predict(x)) > 0.99


@pytest.mark.parametrize(("n", "n_rows"), [(3_000, 2_500), longer(4_000, 3_500)])
def test_stream_asks_for_a_refinement_and_for_directions_when_its_subspace_lags_behind(n: int, n_rows: int) -> None:
    """Fifty clusters of which 46 begin at row 874, or at row 1,311. By rows alone, refinements at 1,000 and 2,000 find
    44 of them."""
    x, z = unit_vectors(n, 128, 50, 16)
    order = np.argsort(z >= 4, kind="stable")[-n_rows:]
    model, refined = StreamingDPMixture("subspace"), []
    for start in range(0, n_rows, 250):
        model.partial_fit(x[order[start : start + 250]])
        refined.append(model._fitted.state.schedule.refined_at)
    assert {1_000, 1_500} <= set(refined)
    assert model._fitted.state.prior.rank > 32
    assert adjusted_rand_score(z[order], model.predict(x[order])) > 0.995


class Growing(NamedTuple):
    """A stream whose directions grow from 32 at a row, and is restarted after it."""

    n: int
    n_features: int
    rows: slice
    """Of those of four clusters first, and of the others then."""
    grows_at: int
    restart: int


LATE = Growing(3_000, 80, slice(400, 2_550), 1_500, 1_900)


@pytest.mark.parametrize(
    ("of", "settings"),
    [
        (Growing(1_400, 72, slice(200, 1_250), 800, 900), {"warmup_points": 400, "window": 400}),
        longer(LATE, {}),
        longer(LATE, {"window": 800}),
        longer(LATE, {"partitions": 2}),
    ],
)
def test_stream_whose_directions_grow_has_the_same_bits_wherever_it_is_cut_and_after_a_restart(
    of: Growing, settings: dict[str, int]
) -> None:
    """With a short window, part of the past has left it by then, and a refinement follows the restart."""
    x, z = unit_vectors(of.n, of.n_features, 40, 16)
    x = x[np.argsort(z >= 4, kind="stable")[of.rows]]
    model, whole = StreamingDPMixture("subspace", **settings), StreamingDPMixture("subspace", **settings)
    cuts, ranks = [of.grows_at // 2 + 27, of.grows_at - 1, of.grows_at + 1, of.restart - 23], []
    for part in np.split(x[: of.restart], cuts):
        model.partial_fit(part)
        ranks.append(model._fitted.state.prior.rank)
    assert ranks[1] == 32 < ranks[2]
    twin = pickle.loads(pickle.dumps(model))
    whole.partial_fit(x)
    for one in (model, twin):
        one.partial_fit(x[of.restart :])
        assert_array_equal(one.score_samples(x[::10]), whole.score_samples(x[::10]))
