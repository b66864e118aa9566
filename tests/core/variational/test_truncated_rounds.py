"""What a round is, that it never lowers a bound, what the orders are worth, and what comes out."""

from typing import Any

import numpy as np
import pytest
from scipy.special import psi

from shoal.errors import NoPointsError, SettingError, ShapeError
from shoal.families import KnownCovariance, NormalInverseGamma
from shoal.mixture import Past, Progress, log_density
from shoal.variational import fit_ctsb
from shoal.variational.truncated import default_truncation, fit_fsd, fit_o_tsb, fit_tsb, seeded_resp

from .truncated_cases import ALL, ALPHAS, BOUNDS, FAMILIES, X, log_labels, rng, some_resp

POINTS = np.random.default_rng(6).normal(size=(60, 2)) + 4.0 * np.random.default_rng(7).integers(3, size=(60, 1))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("method", BOUNDS)
@pytest.mark.short_form("*-gaussian-1.0", "*-diagonal-0.3")
def test_no_round_lowers_a_bound(method: str, name: str, alpha: float) -> None:
    x = POINTS[:30]
    fit = BOUNDS[method](
        FAMILIES[name], x, concentration=alpha, resp_init=some_resp(len(x), 6), max_iter=12, tol=0.0, rng=rng()
    )
    assert len(fit.elbo_history) == 13
    assert np.diff(fit.elbo_history).min() >= -1e-9


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_round_is_all_q_z_then_all_parameters(alpha: float) -> None:
    """TSB and FSD written out again, in the papers' updates."""
    family = FAMILIES["diagonal"]
    for method, fit in (("tsb", fit_tsb), ("fsd", fit_fsd)):
        got = fit(family, X, concentration=alpha, resp_init=some_resp(len(X), 3), max_iter=4, tol=0.0, rng=rng())
        r = some_resp(len(X), 3)
        for _ in range(4):
            score = family.expected_log_likelihood(family.posterior(family.suffstats(X, r)), X)
            mass = r.sum(axis=0)
            for i in range(3):
                if method == "fsd":
                    score[:, i] += psi(alpha / 3 + mass[i]) - psi(alpha + mass.sum())
                    continue
                for j in range(min(i + 1, 2)):
                    own, after = 1 + mass[j], alpha + mass[j + 1 :].sum()
                    score[:, i] += (psi(own) if j == i else psi(after)) - psi(own + after)
            r = np.exp(score - score.max(axis=1, keepdims=True))
            r /= r.sum(axis=1, keepdims=True)
        order = np.argsort(-r.sum(axis=0), kind="stable")
        np.testing.assert_allclose(got.resp, r[:, order], atol=1e-10)
        np.testing.assert_array_equal(got.extra["stick_place"], order)


@pytest.mark.parametrize("method", ALL)
def test_history_entry_s_is_the_bound_after_s_rounds(method: str) -> None:
    start: dict[str, Any] = {"concentration": 2.0, "resp_init": some_resp(len(POINTS), 4), "tol": 0.0, "rng": rng()}
    long = ALL[method](FAMILIES["spherical"], POINTS, max_iter=5, **start)
    for s in range(5):
        short = ALL[method](FAMILIES["spherical"], POINTS, max_iter=s, **start)
        assert short.elbo == long.elbo_history[s]
        assert short.n_rounds == s
        np.testing.assert_array_equal(short.elbo_history, long.elbo_history[: s + 1])


def test_resp_init_is_not_changed_and_not_reordered_before_the_first_round() -> None:
    resp = some_resp(len(X), 3)[:, ::-1]
    before = resp.copy()
    start: dict[str, Any] = {"concentration": 0.3, "resp_init": resp, "rng": rng()}
    plain, ordered = (fit(FAMILIES["gaussian"], X, max_iter=0, **start).elbo for fit in (fit_tsb, fit_o_tsb))
    assert plain == ordered
    fit_ctsb(FAMILIES["gaussian"], X, max_iter=3, **start)
    np.testing.assert_array_equal(resp, before)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("pair", [("tsb", "o-tsb"), ("ctsb exact", "o-ctsb exact")])
@pytest.mark.parametrize("name", FAMILIES)
def test_ordering_is_never_worse_after_the_same_division(name: str, pair: tuple[str, str], alpha: float) -> None:
    """From the same start the first q(z) is the same, so that the bounds after one round differ by the order alone."""
    for seed in range(4):
        start = {"concentration": alpha, "resp_init": some_resp(len(X), 4, seed, 4.0), "max_iter": 1, "rng": rng()}
        plain, ordered = (BOUNDS[method](FAMILIES[name], X, **start).elbo for method in pair)
        assert ordered >= plain - 1e-12


def test_o_tsb_stands_in_the_best_order_of_all() -> None:
    """Concentration above one: the last stick may be the longest (ERRATA 2.11)."""
    blobs = np.repeat([[0.0], [50.0], [100.0]], [5, 3, 1], axis=0)
    z = np.repeat(np.eye(3), [5, 3, 1], axis=0)
    fit = fit_o_tsb(KnownCovariance([0.0], 1e4, 1.0), blobs, concentration=3.0, resp_init=z, max_iter=1, rng=rng())
    np.testing.assert_allclose(fit.stats[0], [5.0, 3.0, 1.0])
    np.testing.assert_array_equal(fit.extra["stick_place"], [2.0, 0.0, 1.0])
    assert np.diff(fit.elbo_history)[0] == pytest.approx(
        log_labels("tsb", [3, 1, 5], 3.0) - log_labels("tsb", [5, 3, 1], 3.0)
    )


@pytest.mark.parametrize("method", ALL)
def test_predictive_density_integrates_to_one(method: str) -> None:
    x = np.array([[0.0], [0.2], [5.0], [5.5], [-3.0]])
    fit = ALL[method](NormalInverseGamma([0.0], 0.5, 4.0, 4.0), x, concentration=2.0, truncation=4, rng=rng())
    u = np.linspace(-8.0, 8.0, 4_001)  # x = sinh(u) reaches the tails
    density = np.exp(log_density(NormalInverseGamma([0.0], 0.5, 4.0, 4.0), fit, np.sinh(u)[:, None]))
    mass = (density * np.cosh(u)).sum() * (u[1] - u[0])
    assert mass == pytest.approx(1.0, abs=1e-9)
    assert np.exp(fit.log_weight).sum() == pytest.approx(1.0, abs=1e-13)
    assert fit.log_new_weight == -np.inf


@pytest.mark.parametrize("method", ALL)
def test_far_clusters_are_found_whatever_the_method(method: str) -> None:
    x = np.random.default_rng(3).normal(size=(90, 2)) + 40.0 * np.repeat(np.arange(3), 30)[:, None]
    family = NormalInverseGamma([40.0, 40.0], 0.01, 3.0, 3.0)
    said: list[Progress] = []
    fit = ALL[method](family, x, concentration=1.0, truncation=8, rng=rng(), progress=said.append)
    np.testing.assert_allclose(np.diff(fit.stats[0]) <= 0.0, True)
    np.testing.assert_allclose(fit.resp.sum(axis=1), 1.0, atol=1e-12)
    groups = fit.resp.argmax(axis=1).reshape(3, 30)
    assert all(set(a).isdisjoint(b) for i, a in enumerate(groups) for b in groups[:i])
    assert [p.round for p in said] == list(range(1, fit.n_rounds + 1))
    assert said[-1].elbo == fit.elbo == fit.elbo_history[-1]


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("method", BOUNDS)
def test_the_past_follows_its_component_into_another_order(method: str, alpha: float) -> None:
    """The result, read as a fit in its final order whose past is so many certain points, has the same bound."""
    family, z = FAMILIES["diagonal"], np.array([0, 1, 1, 2, 2, 2, 2])
    gone = POINTS[20:27]
    past = Past(family.suffstats(gone, np.eye(3)[z]), None)
    start: dict[str, Any] = {"concentration": alpha, "tol": 0.0, "rng": rng()}
    fit = BOUNDS[method](family, X, resp_init=some_resp(len(X), 4), past=past, max_iter=3, **start)
    assert np.diff(fit.elbo_history).min() >= -1e-10
    assert fit.resp is not None
    place = fit.extra["stick_place"].astype(int)
    given = BOUNDS[method](family, X, resp_init=some_resp(len(X), 4), past=past, max_iter=0, **start)
    certain = fit.stats[0] - fit.resp.sum(axis=0)  # how much past each component of the result holds
    owner = [int(np.flatnonzero(np.isclose(certain, m))[0]) for m in (1.0, 2.0, 4.0)]
    whole = np.vstack([np.eye(4)[np.array(owner)[z]], fit.resp])
    again = BOUNDS[method](family, np.vstack([gone, X]), resp_init=whole[:, np.argsort(place)], max_iter=0, **start)
    assert again.elbo == pytest.approx(fit.elbo, abs=1e-9)
    assert fit.elbo > given.elbo


def test_a_past_alone_is_a_start() -> None:
    family = FAMILIES["spherical"]
    far = np.array([[0.0, 0.0], [9.0, 9.0], [0.1, 0.0], [9.0, 8.8]])
    past = Past(family.suffstats(far, np.eye(2)[[0, 1, 0, 1]]), None)
    fit = fit_tsb(family, far, concentration=1.0, truncation=3, past=past, rng=rng())
    np.testing.assert_allclose(fit.stats[0], [4.0, 4.0, 0.0], atol=1e-3)
    assert fit.resp is not None
    labels = fit.resp.argmax(axis=1)
    assert labels[0] == labels[2] != labels[1] == labels[3]


@pytest.mark.parametrize("n_points", [1, 3, 400])
def test_starts_are_probabilities_and_seeded(n_points: int) -> None:
    x = np.random.default_rng(0).normal(size=(n_points, 3))
    resp = seeded_resp(x, 5, np.random.default_rng(1))
    assert resp.shape == (n_points, 5)
    np.testing.assert_allclose(resp.sum(axis=1), 1.0)
    np.testing.assert_array_equal(resp, seeded_resp(x, 5, np.random.default_rng(1)))
    np.testing.assert_allclose(seeded_resp(np.ones((4, 2)), 3, rng()).sum(axis=1), 1.0)


def test_default_truncation_grows_with_the_concentration() -> None:
    assert default_truncation(1, 1.0) == 2
    assert default_truncation(10_000, 1.0) == 17
    assert default_truncation(10_000, 10.0) > 100
    assert default_truncation(50, 100.0) == 50


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"concentration": 0.0}, SettingError),
        ({"truncation": 0}, SettingError),
        ({"max_iter": -1}, SettingError),
        ({"tol": float("nan")}, SettingError),
        ({"resp_init": np.ones((3, 2)) / 2}, ShapeError),
        ({"resp_init": np.ones((6, 2))}, SettingError),
        ({"resp_init": np.ones((6, 1)), "truncation": 2}, ShapeError),
        ({"expectations": "none"}, SettingError),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        fit_ctsb(FAMILIES["gaussian"], X, **{"concentration": 1.0, "rng": rng(), **options})


def test_no_points_are_refused() -> None:
    with pytest.raises(NoPointsError):
        fit_tsb(FAMILIES["gaussian"], X[:0], concentration=1.0, rng=rng())
