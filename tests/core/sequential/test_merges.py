"""Merges in a real stream, judged by the exact bound of the responsibilities with which its points were taken in."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from harness.short_form import short_form
from shoal import StreamingDPMixture
from shoal.families import DirichletMultinomial
from shoal.mixture import MixtureState, bound_of_responsibilities, from_bytes, to_bytes
from shoal.points.rows import SparseRows

Shares = dict[int, list[float]]


@pytest.mark.parametrize("half_life", [None, 1_000])
def test_short_documents_of_many_words_are_not_joined_into_one(half_life: int | None) -> None:
    """Small shares in rare words make the mean-field bound of one pass so low that it rises by joining everything."""
    n_topics, n_terms, rng = 60, 2_000, np.random.default_rng(0)
    topics = rng.dirichlet(np.full(n_terms, 16.0 / n_terms), size=n_topics)
    truth = rng.integers(n_topics, size=2_500)
    rows = SparseRows.of(np.array([rng.multinomial(6, topics[k]) for k in truth], dtype=np.float64))
    prior = DirichletMultinomial(np.full(n_terms, 16.0 / n_terms))
    model = StreamingDPMixture("multinomial", prior=prior, refinement=None, half_life=half_life, random_state=0).fit(
        rows
    )
    assert len(model.component_ids_) >= 20
    assert normalized_mutual_info_score(truth, model.predict(rows)) > 0.8


@pytest.mark.parametrize("half_life", [None, 500])
def test_twins_of_documents_are_joined_into_one(half_life: int | None) -> None:
    """Decayed counts are no whole numbers; no topic stays in parts all the same."""
    rng = np.random.default_rng(1)
    topics = rng.dirichlet(np.full(50, 0.3), size=3)
    rows = np.array([rng.multinomial(20, topics[k]) for k in rng.integers(3, size=2_000)], dtype=np.float64)
    prior = DirichletMultinomial(np.full(50, 0.5))
    settings = {"prior": prior, "birth_threshold": 0.01, "concentration": 20.0, "refinement": None}
    model = StreamingDPMixture("multinomial", half_life=half_life, random_state=0, **settings).fit(rows)
    kinds = [event.kind for event in model.events_]
    assert kinds.count("born") >= 5
    assert half_life is not None or kinds.count("merged") >= 2
    assert len(model.component_ids_) == 3


def _masses(state: MixtureState) -> dict[int, float]:
    n = state.n_components
    return dict(zip(state.ids[:n].tolist(), state.stats[0][:n].tolist(), strict=True))


def _record(stream: SimpleNamespace, state: Any, point: np.ndarray, shares: Shares, n: int) -> Any:
    """Take in one point, and note what it added to each mass before any move that is due at its offset.

    Where a check is due, a copy takes the point in without it.
    """
    before = _masses(state)
    due = state.points_seen + 1 >= state.next_check
    unmoved = from_bytes(to_bytes(state._replace(next_check=1 << 40)))[0] if due else state
    run = stream.feed(unmoved, point)
    gained = {id_: mass - before.get(id_, 0.0) for id_, mass in _masses(run.state).items()}
    total = sum(gained.values())
    for id_, amount in gained.items():
        shares.setdefault(id_, [0.0] * n).append(amount / total)
    return stream.feed(state, point) if due else run


def _table(shares: Shares) -> np.ndarray:
    return np.array(list(shares.values())).T


@pytest.mark.parametrize(
    ("family", "seed"),
    short_form(
        [(family, seed) for family in ("gaussian", "diagonal", "known_covariance") for seed in range(3)],
        [("gaussian", 0)],
    ),
)
def test_an_accepted_merge_never_lowers_the_exact_bound(stream: SimpleNamespace, family: str, seed: int) -> None:
    """Two checks: at the second some pair sums are the upper values that joins at the first left behind."""
    x, _ = stream.nine(2_048, seed=seed, spacing=2.0)
    prior = stream.prior(family, 2, 0.25, 10.0)
    settings = stream.settings(n_features=2, family=family, prior=prior, birth_threshold=0.1, concentration=4.0)
    state = stream.feed(settings, x[:1]).state
    shares: Shares = {0: [1.0]}
    merges = soft = 0
    for n in range(1, len(x)):
        run = _record(stream, state, x[n : n + 1], shares, n)
        state = run.state
        merged = [event for event in run.events if event.kind == "merged"]
        if not merged:
            continue
        bound = bound_of_responsibilities(prior, x[: n + 1], _table(shares), settings.concentration)
        for event in merged:
            survivor, absorbed = event.parents
            a, b = np.array(shares[survivor]), np.array(shares.pop(absorbed))
            soft += int(np.sum(np.minimum(a, b)) > 0.5)
            shares[survivor] = (a + b).tolist()
            after = bound_of_responsibilities(prior, x[: n + 1], _table(shares), settings.concentration)
            assert after > bound - 1e-8
            bound = after
        merges += len(merged)
        assert set(shares) == set(_masses(state))
    assert merges >= 3
    assert soft >= 1


def test_merged_statistics_are_those_of_all_points_of_both(stream: SimpleNamespace, family: str) -> None:
    """Mass, mean and scatter of the whole stream are what they are without merges."""
    x, _ = stream.nine(2_100, seed=3, spacing=2.0)
    prior = stream.prior(family, 2, 0.25, 10.0)
    run = stream.feed(stream.settings(n_features=2, family=family, prior=prior, birth_threshold=0.1), x)
    assert any(event.kind == "merged" for event in run.events)
    n = run.state.n_components
    stats = type(run.state.stats)(*(field[:n] for field in run.state.stats))
    while len(stats[0]) > 1:
        first, second = (type(stats)(*(field[a : a + 1] for field in stats)) for a in (0, 1))
        rest = type(stats)(*(field[2:] for field in stats))
        both = prior.add(first, second)
        stats = type(stats)(*(np.concatenate(pair) for pair in zip(both, rest, strict=True)))
    for field, due in zip(stats, prior.suffstats(x, np.ones((len(x), 1))), strict=True):
        np.testing.assert_allclose(field, due, rtol=1e-9, atol=1e-7)
