"""A stream's state is a function of its points: not of how they were cut into calls, nor of where it was saved."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.short_form import longer, short_form
from shoal.mixture import to_bytes

SEARCHED = pytest.mark.parametrize("refinement", [None, longer("auto")])
N = 2_100
STOPS = sorted({*range(1, 70), *range(990, 1_030), *range(2_040, 2_054), *range(1, N, 17)})
"""Singly at the start, about the end of the warm-up and about the checks, and by seventeens between."""

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "half-life": {"half_life": 400.0},
    "half-life that no step divides": {"half_life": 333.3, "warmup_points": 150},
    "every point decays": {"half_life": 40.0, "warmup_points": 16},
    "short warm-up": {"warmup_points": 97},
    "warm-up as long as the stream": {"warmup_points": 300},
    "many components": {"birth_threshold": 0.1, "concentration": 10.0, "warmup_points": 300},
    "paper": {"method": "sva-pm", "check_schedule": "paper"},
    "paper, regular checks": {"method": "sva-pm", "half_life": 700.0, "prune_threshold": 0.01},
    "algorithm 1 alone": {"method": "sva"},
    "no room": {"max_components": 5, "warmup_points": 300},
    "marks that move": {"window": 450},
    "marks that move within the warm-up, and decay": {"window": 310, "half_life": 150.0, "warmup_points": 700},
    "no window": {"window": 0},
}


FEWER = {"warm-up as long as the stream": 300, "many components": 1_300, "every point decays": 1_200}
"""Points of streams that cost more for each."""
SHORT = [
    ("plain", None),
    ("every point decays", None),
    ("warm-up as long as the stream", "auto"),
    ("paper", None),
    ("no room", None),
    ("marks that move within the warm-up, and decay", None),
]
"""One whose fits are searched at the end of the warm-up, which takes several times as long."""
LONG_PIECES = ("plain", "paper", "many components", "marks that move")
"""Ways that are cut into long pieces, too. The one call of the whole is the longest piece of every way."""


@pytest.mark.parametrize(
    ("way", "refinement"), short_form([(way, search) for way in WAYS for search in (None, "auto")], SHORT)
)
def test_the_same_bytes_however_the_stream_is_cut(stream: SimpleNamespace, way: str, refinement: str | None) -> None:
    settings = stream.settings(n_features=2, family="diagonal", refinement=refinement, **WAYS[way])
    x, _ = stream.nine(FEWER.get(way, N), seed=3, spacing=3.0)
    whole = stream.feed(settings, x)
    for cut in ([stop for stop in STOPS if stop < len(x)], *([1_000] if way in LONG_PIECES else [])):
        run = stream.feed(settings, x, cut)
        assert to_bytes(run.state) == to_bytes(whole.state), cut
        assert run.events == whole.events


@SEARCHED
def test_every_family_and_every_kind_of_prior(stream: SimpleNamespace, family: str, refinement: str | None) -> None:
    x, _ = stream.nine(N, seed=4, spacing=3.0)
    for prior in ("auto", stream.prior(family, 2, 1.0, 20.0)):
        settings = stream.settings(
            n_features=2, family=family, prior=prior, half_life=900.0, warmup_points=200, refinement=refinement
        )
        whole = to_bytes(stream.feed(settings, x).state)
        for cut in (17, 1000):
            assert to_bytes(stream.feed(settings, x, cut).state) == whole


@SEARCHED
def test_a_product_of_families_whose_pieces_between_decays_are_short(
    stream: SimpleNamespace, refinement: str | None
) -> None:
    """Its blocks read copies of the masses, which a decay makes old."""
    x, _ = stream.nine(900, seed=4, spacing=3.0)
    family = {0: "diagonal", 1: "gaussian"}
    settings = stream.settings(n_features=2, family=family, half_life=300.0, warmup_points=200, refinement=refinement)
    whole = to_bytes(stream.feed(settings, x).state)
    assert to_bytes(stream.feed(settings, x, 7).state) == whole


def test_full_known_covariance(stream: SimpleNamespace) -> None:
    from shoal.families import KnownCovariance

    prior = KnownCovariance([1.0, 0.0], [[20.0, 3.0], [3.0, 9.0]], [[1.0, 0.2], [0.2, 0.8]])
    settings = stream.settings(n_features=2, family="known_covariance", prior=prior, half_life=500.0)
    x, _ = stream.nine(N, seed=5)
    whole = to_bytes(stream.feed(settings, x).state)
    assert to_bytes(stream.feed(settings, x, 7).state) == whole


FAMILIES = ("gaussian", "diagonal", "known_covariance")


@pytest.mark.parametrize(
    ("family", "seed", "refinement"),
    short_form(
        [(family, seed, search) for seed in range(4) for family in FAMILIES for search in (None, "auto")],
        [("gaussian", 0, None), ("gaussian", 1, None), ("known_covariance", 2, "auto"), ("diagonal", 3, None)],
    ),
)
def test_saved_and_loaded_at_any_point(stream: SimpleNamespace, family: str, seed: int, refinement: str | None) -> None:
    """Twenty random cuts (offsets of refits, checks and decays among them), with the state through bytes at each."""
    rng = np.random.default_rng(seed)
    x, _ = stream.nine(N, seed=6 + seed, spacing=3.5)
    way = [
        {},
        {"half_life": 300.0},
        {"warmup_points": 128},
        {"birth_threshold": 0.1, "concentration": 10.0, "warmup_points": 256},
    ][seed]
    settings = stream.settings(n_features=2, family=family, refinement=refinement, **way)
    stops = np.unique(np.concatenate([rng.integers(1, N, 20), [1, 2, 128, 1000, 1024, 2048]]))
    plain = stream.feed(settings, x)
    saved = stream.feed(settings, x, stops.tolist(), through_bytes=True)
    assert to_bytes(saved.state) == to_bytes(plain.state)
    assert saved.events == plain.events


@pytest.mark.parametrize("long", [False, longer(True)])
def test_growth_through_many_capacities(stream: SimpleNamespace, long: bool) -> None:
    settings = stream.settings(
        n_features=1, family="known_covariance", prior=stream.prior("known_covariance", 1, 1.0, 1e6)
    )
    n, k = (600, 150) if not long else (1_500, 300)
    x, _ = stream.far(n, 1, k)
    whole = stream.feed(settings, x)
    assert whole.state.n_components == k
    assert to_bytes(stream.feed(settings, x, 7, through_bytes=True).state) == to_bytes(whole.state)


def test_no_points_change_nothing(stream: SimpleNamespace) -> None:
    settings = stream.settings(n_features=2, refinement=None)
    x, _ = stream.nine(300)
    state = stream.feed(settings, x).state
    before = to_bytes(state)
    run = stream.feed(state, x[:0])
    assert to_bytes(run.state) == before
    assert run.events == ()
    assert run.labels.shape == (0,)
