"""Changes of scale in streams without refinement: hostile orders, ordinary ones, what follows and what stays."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from harness.short_form import longer, short_form
from shoal.families.capabilities import is_restandardised, restandardised
from shoal.mixture import MixtureState, ScaleWatch, from_bytes, snapshot_of, successors_of, to_bytes
from shoal.points.arrays import Array, IntArray
from shoal.points.weighted_rows import WeightedRows
from shoal.sequential import apply_settings_inplace, rescale

FAMILIES = pytest.mark.parametrize("family", ["gaussian", "diagonal"])
EACH_CHANGE = pytest.mark.parametrize(
    ("family", "order"),
    short_form(
        [
            (family, order)
            for family in ("gaussian", "diagonal")
            for order in ("a hundred times wider", "a hundred times narrower")
        ],
        [("gaussian", "a hundred times wider"), ("diagonal", "a hundred times narrower")],
    ),
)
N = 12_000


def hostile(order: str, seed: int) -> tuple[Array, Array, IntArray]:
    """A stream of nine unit Gaussians on a grid of spacing 8, fresh points as at its end, and their labels."""
    rng = np.random.default_rng([seed, 29])
    z, fresh = rng.integers(9, size=N), rng.integers(9, size=3_000)
    if order == "one cluster first":
        z[:2_000] = 0
    elif order == "sorted":
        z = np.sort(z)
    places = 8.0 * np.stack(np.divmod(np.arange(9), 3), axis=1)
    x, test = (places[labels] + rng.normal(size=(labels.size, 2)) for labels in (z, fresh))
    if order == "a hundred times wider":
        x[:1_200] /= 100.0
    elif order == "a hundred times narrower":
        x[1_200:], test = x[1_200:] / 100.0, test / 100.0
    return x, test, fresh


def agreement(state: MixtureState, x: Array, z: IntArray) -> float:
    return float(adjusted_rand_score(z, snapshot_of(state).predict(x, with_resp=False).component))


def settings(stream: SimpleNamespace, family: str = "gaussian", **others: Any) -> Any:
    return stream.settings(n_features=2, family=family, **{"refinement": None, **others})


@EACH_CHANGE
def test_a_change_of_scale_is_found_and_corrected(
    stream: SimpleNamespace, family: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agreement was .98 or more; without the looks it was .00."""
    for seed in range(2):
        x, test, z = hostile(order, seed)
        x = x[:5_000]
        run = stream.feed(settings(stream, family), x, 700)
        assert agreement(run.state, test, z) > 0.95
        told = [event for event in run.events if event.kind == "rescaled"]
        assert 1 <= len(told) <= 2
        assert told[0].offset <= 4_096
        assert set(run.labels[-700:].tolist()) <= set(run.state.live_ids.tolist())
        assert stream.mass_error(run.state) < 1e-9
    monkeypatch.setattr(rescale, "is_watched", lambda state: False)
    assert agreement(stream.feed(settings(stream, family), x).state, test, z) < 0.5


@pytest.mark.parametrize(
    ("family", "order"),
    [
        ("gaussian", "a hundred times wider"),
        *(longer(family, "a hundred times narrower") for family in ("gaussian", "diagonal")),
        longer("diagonal", "a hundred times wider"),
    ],
)
def test_a_change_of_scale_is_found_in_the_rows_without_missing_values(
    stream: SimpleNamespace, family: str, order: str
) -> None:
    """The look raised an error, and so did each later batch."""
    x, test, z = hostile(order, 0)
    holes = np.flatnonzero(np.random.default_rng(1).random(N) < 0.05)
    x[holes, holes % 2] = np.nan
    x = x[:5_000]  # a fifth of a second for each thousand rows with missing values
    run = stream.feed(settings(stream, family, missing="marginal"), x, 700)
    assert agreement(run.state, test, z) > 0.95
    assert any(event.kind == "rescaled" for event in run.events)
    assert stream.mass_error(run.state) < 1e-9


def test_a_state_is_read_whose_recent_rows_have_missing_values(stream: SimpleNamespace) -> None:
    """It was refused as damaged, so that no checkpoint of such a stream could be restored."""
    x = hostile("ordinary", 0)[0][:1_300]  # rows from 1,024 on are kept for the first look
    x[::40, 0] = np.nan
    some = settings(stream, missing="marginal", warmup_points=200)
    whole = stream.feed(some, x)
    assert to_bytes(stream.feed(some, x, 600, through_bytes=True).state) == to_bytes(whole.state)
    assert np.isnan(whole.state.watch.rows).any()


@pytest.mark.parametrize(
    ("family", "step"), [("diagonal", 128), *(longer(family, 1_024) for family in ("gaussian", "diagonal"))]
)
def test_a_stream_of_rows_that_all_have_missing_values_goes_on(
    stream: SimpleNamespace, family: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two looks after the change of scale. Rows with missing values are learnt a millisecond each."""
    monkeypatch.setattr(rescale, "STEP", step)
    monkeypatch.setattr(rescale, "MOST_ROWS", step)
    warmup = step - 24
    x = hostile("a hundred times wider", 0)[0][1_200 - warmup - 50 :][: 3 * step + 28]
    x[np.arange(len(x)), np.arange(len(x)) % 2] = np.nan
    looks, look = [], rescale._look_inplace

    def noted(state: MixtureState, watch: ScaleWatch) -> Any:
        looks.append(state.points_seen)
        return look(state, watch)

    monkeypatch.setattr(rescale, "_look_inplace", noted)
    run = stream.feed(settings(stream, family, missing="marginal", warmup_points=warmup), x, 700)
    assert run.state.points_seen == len(x)
    assert looks[-2:] == [2 * step, 3 * step]
    assert run.state.watch.next_look > len(x)


@FAMILIES
@pytest.mark.parametrize("order", ["one cluster first", "sorted"])
def test_a_hostile_order_does_not_break_one_pass(stream: SimpleNamespace, family: str, order: str) -> None:
    for seed in range(2):
        x, test, z = hostile(order, seed)
        assert agreement(stream.feed(settings(stream, family), x).state, test, z) > 0.95


@FAMILIES
def test_an_ordinary_stream_is_left_as_it_is_to_the_bit(
    stream: SimpleNamespace, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, _ = stream.nine(20_000, seed=3)
    watched = stream.feed(settings(stream, family), x)
    assert all(event.kind != "rescaled" for event in watched.events)
    monkeypatch.setattr(rescale, "is_watched", lambda state: False)
    plain = stream.feed(settings(stream, family), x).state
    assert watched.state.watch is not None
    assert to_bytes(watched.state._replace(watch=None)) == to_bytes(plain)


@pytest.mark.parametrize("shape", ["unequal widths", "heavy tails", "drift"])
def test_no_false_alarm(stream: SimpleNamespace, shape: str) -> None:
    rng = np.random.default_rng(5)
    z = rng.integers(4, size=20_000)
    noise = rng.standard_t(3, size=(z.size, 2)) if shape == "heavy tails" else rng.normal(size=(z.size, 2))
    x = 12.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[z] + noise
    if shape == "unequal widths":
        x[z == 3] += 3.0 * rng.normal(size=(int((z == 3).sum()), 2))
    elif shape == "drift":
        x[:, 0] += np.linspace(0.0, 6.0, z.size)
    assert all(event.kind != "rescaled" for event in stream.feed(settings(stream), x).events)


def test_any_cut_and_any_save_gives_the_same_bits(stream: SimpleNamespace) -> None:
    x = hostile("a hundred times wider", 0)[0][:3_200]
    whole = stream.feed(settings(stream), x)
    assert any(event.kind == "rescaled" for event in whole.events)
    for step in (613, 1_024):
        run = stream.feed(settings(stream), x, step, through_bytes=True)
        assert to_bytes(run.state) == to_bytes(whole.state)
        assert run.events == whole.events


@FAMILIES
def test_what_remains_of_a_component_are_its_older_points(stream: SimpleNamespace, family: str) -> None:
    """Three far clusters; two give their last points up. Against the statistics of the older points alone."""
    x, z = stream.far(900, 2, 3, seed=6)
    prior = stream.prior(family, 2, 1.0, 1e4)
    state = stream.feed(settings(stream, family, prior=prior), x).state
    first_seen = sorted(range(3), key=lambda k: int(np.flatnonzero(z == k)[0]))  # by it components are born, in order
    rows = np.array([first_seen.index(int(k)) for k in z[600:]])
    changing = np.array([True, False, True])
    recent = rescale._RecentFit(None, rows, np.zeros(300), np.full(2, 1.0))  # type: ignore[arg-type]
    watch = ScaleWatch(x[600:], np.ones(300), np.ones(2), 1_024, 0)
    rest, keep = rescale._remainders(state, watch, recent, changing)
    assert keep.all()
    for row in range(3):
        older = np.flatnonzero(z[: 600 if changing[row] else 900] == first_seen[row])
        due = prior.suffstats(x[older], np.ones((older.size, 1)))
        for field, expected in zip(rest, due, strict=True):
            np.testing.assert_allclose(field[row], expected[0], rtol=1e-9, atol=1e-7)
    narrow = recent._replace(within=np.full(2, 0.01))
    assert rescale._remainders(state, watch, narrow, changing)[1].tolist() == [False, True, False]


def test_events_name_old_and_new_components(stream: SimpleNamespace) -> None:
    x, _, _ = hostile("a hundred times wider", 1)
    before = stream.feed(settings(stream), x[:2_047]).state.live_ids.copy()
    run = stream.feed(settings(stream), x[:2_048])
    (event,) = [event for event in run.events if event.kind == "rescaled"]
    assert set(event.parents) <= set(before.tolist())
    assert set(event.children) <= set(run.state.live_ids.tolist())
    gone = set(event.parents) - set(run.state.live_ids.tolist())
    for component in gone:
        assert set(successors_of(run.state.lineage, component)) <= set(event.children)


@FAMILIES
def test_statistics_in_other_units_are_those_of_the_points_in_them(stream: SimpleNamespace, family: str) -> None:
    rng = np.random.default_rng(8)
    x, resp = rng.normal(size=(50, 3)), rng.random((50, 2))
    shift, factor = np.array([1.0, -200.0, 0.0]), np.array([0.01, 3.0, 100.0])
    prior = stream.prior(family, 3)
    moved = restandardised(prior, prior.suffstats(x, resp), shift, factor)
    for field, due in zip(moved, prior.suffstats(x * factor + shift, resp), strict=True):
        np.testing.assert_allclose(field, due, rtol=1e-10, atol=1e-10)


def test_only_streams_that_nothing_else_mends_are_watched(stream: SimpleNamespace) -> None:
    x, _ = stream.nine(300)
    short = {"warmup_points": 100}
    assert stream.feed(settings(stream, **short), x).state.watch is not None
    assert stream.feed(settings(stream, refinement="auto", window=0, **short), x).state.watch is not None
    for other in (
        {"refinement": "auto"},
        {"prior": stream.prior("gaussian", 2)},
        {"method": "sva"},
        {"family": "known_covariance"},
    ):
        assert stream.feed(settings(stream, **short, **other), x).state.watch is None
    assert not is_restandardised(stream.prior("known_covariance", 2))
    state = stream.feed(settings(stream, **short), x).state
    state, _ = apply_settings_inplace(state, state.settings.with_changes(refinement="auto"))
    assert stream.feed(state, x).state.watch is None


def test_looks_are_rarer_later_and_after_refusals() -> None:
    looks = [1_000]
    while looks[-1] < 40_000:
        looks.append(rescale.next_look(looks[-1]))
    assert looks[1:] == [*range(1_024, 8_193, 1_024), 32_768, 65_536]
    assert [rescale.next_look(2_048, refusals) for refusals in (1, 2, 3)] == [4_096, 6_144, 10_240]
    assert rescale.next_look(65_536, 50) - 65_536 == 64 * 32_768


def test_rows_are_kept_for_the_stretch_before_a_look_alone(stream: SimpleNamespace) -> None:
    x, _ = stream.nine(33_000, seed=2)
    state = stream.feed(settings(stream), x[:20_000]).state
    assert state.watch.next_look == 32_768
    assert state.watch.n_kept(state.points_seen) == 0
    state = stream.feed(from_bytes(to_bytes(state))[0], x[20_000:32_000]).state
    assert state.watch.n_kept(state.points_seen) == 32_000 - (32_768 - 1_024)
    np.testing.assert_array_equal(state.watch.rows[: 32_000 - 31_744], x[31_744:32_000])
    np.testing.assert_array_equal(from_bytes(to_bytes(state))[0].watch.rows, state.watch.rows)


def test_points_with_weights_are_learnt_again_with_them(stream: SimpleNamespace) -> None:
    x, test, z = hostile("a hundred times wider", 0)
    x = x[:7_000]
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(x))
    runs = [stream.feed(settings(stream), WeightedRows(x, weights), step) for step in (5_000, 613)]
    assert any(event.kind == "rescaled" for event in runs[0].events)
    assert to_bytes(runs[0].state) == to_bytes(runs[1].state)
    assert agreement(runs[0].state, test, z) > 0.95
    assert stream.mass_error(runs[0].state) < 1e-9
    assert runs[0].state.decayed_count == pytest.approx(weights.sum(), rel=1e-9)


@FAMILIES
def test_statistics_in_new_units_are_those_of_the_points_in_them(stream: SimpleNamespace, family: str) -> None:
    x, _ = stream.nine(400)
    old = stream.feed(settings(stream, family, warmup_points=200), x[:200]).state
    new = stream.feed(settings(stream, family, warmup_points=200), 5.0 * x[200:] + [40.0, -7.0]).state
    given = old.prior.suffstats((x - old.location) / old.scale, np.ones((400, 1)))
    due = new.prior.suffstats((x - new.location) / new.scale, np.ones((400, 1)))
    for found, expected in zip(rescale._in_units_of(new, old, given), due, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
