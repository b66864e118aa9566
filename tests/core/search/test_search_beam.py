"""The kernel against the plain search, and what a beam, an order and a limit do."""

from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.metrics import adjusted_rand_score

from shoal import DPMixture, SettingError
from shoal.families import KnownCovariance, NormalInverseGamma
from shoal.search import fit_search
from shoal.search.beam import BeamSearch
from shoal.search.caps import log_caps_alone
from shoal.search.objective import suffix_sums
from shoal.search.plain import Score, search

FAR = np.array([[0, 0], [9, 0], [0, 9], [9, 9]])


def quiet(*told: Any) -> None:
    """Nobody is told."""


def suffix_of(family: Any, x: Any, score: str) -> np.ndarray:
    if score == "trivial":
        return suffix_sums(log_caps_alone(family, x))
    return suffix_sums(family.log_predictive(family.posterior(family.empty_stats(1)), x)[:, 0])


@pytest.mark.parametrize("score", ["inadmissible", "trivial"])
@pytest.mark.parametrize("beam", [1, 3, 10])
@pytest.mark.short_form("*-3-trivial", "gaussian-*", "bernoulli-*")
def test_kernel_and_plain_search_are_one(prior_name: str, score: str, beam: int, searches: SimpleNamespace) -> None:
    """The same partition after as many hypotheses: arrays grow on the way, rows are shared and given back."""
    family = searches.priors[prior_name]
    x = searches.draw(prior_name, 40 if score == "inadmissible" else 12, 3)
    suffix = suffix_of(family, x, score)
    for alpha in (0.5, 8.0):
        limit = inf if score == "inadmissible" else 400
        ours = BeamSearch(family, x, np.log(alpha), suffix, beam).run(limit, quiet)
        plain = search(family, x, np.log(alpha), Score(suffix), beam, limit, quiet)
        assert_array_equal(ours.labels, plain.labels)
        assert (ours.n_expanded, ours.exhausted) == (plain.n_expanded, plain.exhausted)


def test_every_limit_ends_in_a_whole_partition(searches: SimpleNamespace) -> None:
    """Cut off at any point, kernel and plain search go on greedily from the same hypothesis."""
    family, x = searches.priors["spherical"], searches.draw("spherical", 15, 1)
    suffix = suffix_of(family, x, "trivial")
    for limit in (0, 1, 2, 7, 30, 60):
        ours = BeamSearch(family, x, 0.0, suffix, 8).run(limit, quiet)
        plain = search(family, x, 0.0, Score(suffix), 8, max(limit, 1), quiet)
        assert ours.exhausted
        assert ours.labels.min() >= 0
        if limit:
            assert_array_equal(ours.labels, plain.labels)
        fit = fit_search(family, x, search_score="trivial", beam=8, max_iter=limit, rng=np.random.default_rng(0))
        assert not fit.converged
        assert len(fit.extra["labels"]) == 15


def test_rows_are_given_back() -> None:
    """The pool holds little more than one hypothesis: it does not grow with the points."""
    rng = np.random.default_rng(0)
    x = FAR[rng.integers(4, size=3000)] + rng.normal(size=(3000, 2))
    family = KnownCovariance([4.5, 4.5], 25.0, 1.0)
    under_way = BeamSearch(family, x, 0.0, suffix_of(family, x, "inadmissible"), 10)
    found = under_way.run(inf, quiet)
    assert len(under_way.frontier.row_uses) <= 256
    assert under_way.frontier.rows.shape[1] <= 64
    assert found.labels.max() >= 3


@pytest.mark.parametrize("order", ["descending", "ascending", "given", "random"])
def test_orders_find_groups_that_are_there(order: Any) -> None:
    rng = np.random.default_rng(1)
    z = rng.integers(4, size=400)
    x = FAR[z] + rng.normal(size=(400, 2))
    fitted = DPMixture(KnownCovariance([4.5, 4.5], 40.0, 1.0), "search", search_order=order, random_state=0).fit(x)
    assert adjusted_rand_score(z, fitted.labels_) > 0.95
    assert fitted.log_joint_ == fitted.elbo_
    assert fitted.converged_


def test_order_is_by_density_under_the_prior() -> None:
    """A beam of one places points in that order, so that the first of them decide: labels follow by hand."""
    x = np.array([[5.0], [0.1], [5.2], [0.0]])
    family = KnownCovariance([0.0], 1.0, 0.01)
    given = fit_search(family, x, beam=1, search_order="given", rng=np.random.default_rng(0))
    assert given.extra["labels"].tolist() == [0, 1, 0, 1]
    assert fit_search(family, x, beam=1, search_order="ascending", rng=np.random.default_rng(0)).elbo == given.elbo


def test_wider_beams_tend_to_do_better(searches: SimpleNamespace) -> None:
    """In the mean over 20 sets; of one set that is not promised."""
    family = searches.priors["diagonal"]
    means = []
    for beam in (1, 10, 100):
        fits = [
            fit_search(family, searches.draw("diagonal", 30, s), beam=beam, rng=np.random.default_rng(0))
            for s in range(20)
        ]
        means.append(np.mean([fit.elbo for fit in fits]))
    assert means[0] <= means[1] + 1e-9 <= means[2] + 2e-9


def test_progress_is_told() -> None:
    rng = np.random.default_rng(2)
    x = FAR[rng.integers(4, size=5000)] + rng.normal(size=(5000, 2))
    seen: list[Any] = []
    fit = fit_search(NormalInverseGamma([4.5, 4.5], 0.05, 2.0, 1.0), x, rng=rng, progress=seen.append)
    assert len(seen) > 2
    fractions = [p.fraction for p in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert (seen[-1].elbo, seen[-1].round, seen[-1].n_components) == (fit.elbo, fit.n_rounds, len(fit.log_weight))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"beam": 0}, "beam is 0"),
        ({"beam": 2.5}, "beam is 2.5"),
        ({"beam": float("nan")}, "beam is nan"),
        ({"search_score": "best"}, "'inadmissible' or 'admissible' or 'trivial'"),
        ({"search_order": "sorted"}, "'ascending' or 'descending' or 'given' or 'random'"),
        ({"n_samples": 5}, "it is for gibbs"),
        ({"truncation": 5}, "it is for tsb"),
        ({"resp_init": True}, ""),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, Any], words: str) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    if "resp_init" in settings:
        with pytest.raises(SettingError, match="resp_init is set, but method 'search'"):
            DPMixture(method="search").fit(x, resp_init=np.ones((20, 1)))
        return
    with pytest.raises(SettingError, match=words):
        DPMixture(method="search", **settings).fit(x)
    engine = {"beam", "search_score", "search_order"} & set(settings)
    if engine - {"beam"}:
        with pytest.raises(SettingError, match="choose"):
            fit_search(KnownCovariance([0.0, 0.0], 1.0, 1.0), x, **settings, rng=np.random.default_rng(0))
