"""Events tell the whole story of identity: replayed, they give the live components, and ids are never used twice."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.short_form import short_form

WAYS: dict[str, dict[str, Any]] = {
    "default": {"birth_threshold": 0.05, "concentration": 5.0},
    "drifting": {"half_life": 150.0, "birth_threshold": 0.1},
    "paper": {"method": "sva-pm", "check_schedule": "paper", "birth_threshold": 0.02},
    "explicit prior": {"prior": "explicit", "half_life": 400.0},
    "no room": {"max_components": 6, "half_life": 300.0},
}


FAMILIES = ("gaussian", "diagonal", "known_covariance")
CASES = [(way, family, seed, 4_300) for way in WAYS for family in FAMILIES for seed in range(3)]
SHORT = [
    ("default", "diagonal", 0, 1_500),
    ("drifting", "gaussian", 0, 1_500),
    ("paper", "gaussian", 0, 1_500),
    ("explicit prior", "known_covariance", 0, 1_500),
    ("no room", "diagonal", 0, 1_500),
]


@pytest.mark.parametrize(("way", "family", "seed", "n"), short_form([*SHORT, *CASES], SHORT))
def test_replayed_events_give_the_live_components(
    stream: SimpleNamespace, way: str, family: str, seed: int, n: int
) -> None:
    x, _ = stream.nine(n, seed=seed, spacing=3.0)
    x[n // 2 :] += 2.0  # something to be born and something to die
    chosen = {"warmup_points": n // 5, **WAYS[way]}
    chosen["refinement"] = None if n == SHORT[0][3] else "auto"
    if "prior" in chosen:
        chosen["prior"] = stream.prior(family, 2, 1.0, 20.0)
    run = stream.feed(stream.settings(n_features=2, family=family, **chosen), x, 613)
    live: set[int] = set()
    ever: set[int] = set()
    for event in run.events:
        assert set(event.parents) <= live, event
        live -= set(event.parents)
        fresh = set(event.children) - set(event.parents)
        assert not fresh & ever, event
        live |= set(event.children)
        ever |= fresh
        shapes = {"born": (0, 1), "merged": (2, 1), "pruned": (1, 0), "capacity": (0, 0)}
        assert event.kind == "refined" or (len(event.parents), len(event.children)) == shapes[event.kind]
    assert live == set(run.state.live_ids.tolist())
    assert [event.offset for event in run.events] == sorted(event.offset for event in run.events)
    assert ever <= set(range(run.state.next_id))


def test_births_are_told_at_their_point(stream: SimpleNamespace) -> None:
    x, z = stream.far(500, 2, 6)
    settings = stream.settings(n_features=2, prior=stream.prior("diagonal", 2, 1.0, 1e4), family="diagonal")
    run = stream.feed(settings, x, 37)
    first = sorted(int(np.argmax(z == k)) + 1 for k in range(6))
    assert [event.offset for event in run.events if event.kind == "born"] == first
    assert run.state.born_at[:6].tolist() == first


def test_counts_of_a_call_are_those_of_its_events(stream: SimpleNamespace) -> None:
    x, _ = stream.nine(2_600, seed=1, spacing=2.0)
    given = {"birth_threshold": 0.05, "half_life": 200.0, "concentration": 5.0, "warmup_points": 400}
    some = stream.settings(n_features=2, refinement=None, **given)
    run = stream.feed(some, x, 500)
    assert {"born", "merged", "pruned"} <= {event.kind for event in run.events}
    for info in run.infos:
        kinds = [event.kind for event in info.events]
        counts = (info.n_births, info.n_merges, info.n_prunes)
        assert counts == (kinds.count("born"), kinds.count("merged"), kinds.count("pruned"))


def test_labels_are_live_at_the_end_of_their_call(stream: SimpleNamespace) -> None:
    x, _ = stream.nine(2_800, seed=2, spacing=2.0)
    x[1_400:] += 30.0
    state: Any = stream.settings(
        n_features=2, birth_threshold=0.05, half_life=200.0, concentration=5.0, warmup_points=400, refinement=None
    )
    for start in range(0, 2_800, 700):
        run = stream.feed(state, x[start : start + 700])
        state = run.state
        assert np.isin(run.labels, state.live_ids).all()


def test_a_label_follows_its_component_through_a_merge(stream: SimpleNamespace) -> None:
    """One cluster, two components forced on it at first; after the check both halves answer to the survivor."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1_100, 1))
    x[:200] = np.where(np.arange(200)[:, None] % 2, 3.0, -3.0) + 0.1 * x[:200]
    settings = stream.settings(n_features=1, family="diagonal", prior=stream.prior("diagonal", 1, 0.2, 30.0))
    run = stream.feed(settings, x)
    assert any(event.kind == "merged" for event in run.events)
    assert np.isin(run.labels, run.state.live_ids).all()
