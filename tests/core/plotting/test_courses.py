"""Life lines, dendrograms and courses of a fit: what is drawn is what the model tells."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from scipy.cluster.hierarchy import dendrogram

from shoal import DPMixture, NoPointsError, SettingError, StreamingDPMixture
from shoal.mixture import Event
from shoal.plotting import BoundDisplay, HierarchyDisplay, LifelineDisplay, colour_of, lives_of

EVENTS = (
    Event(10, "born", (), (0,)),
    Event(20, "born", (), (1,)),
    Event(60, "split", (0,), (0, 2)),
    Event(100, "merged", (2, 1), (2,)),
    Event(150, "pruned", (0,), ()),
    Event(180, "born", (), (3,)),
    Event(200, "returned", (3,), (0,)),
    Event(210, "rescaled", (2,), (4,)),
)
BORN = {0: 10, 4: 210}


def spans(display: LifelineDisplay) -> dict[int, list[tuple[float, ...]]]:
    return {one: [tuple(line.get_xdata()) for line in lines] for one, lines in display.lines_.items()}


def test_lines_begin_and_end_where_events_say() -> None:
    display = LifelineDisplay.from_events(EVENTS, born_at=BORN, points_seen=300)
    assert spans(display) == {
        0: [(10, 150), (200, 300)],
        1: [(20, 100)],
        2: [(60, 210)],
        3: [(180, 200)],
        4: [(210, 300)],
    }
    wanted = [(60, 0, 2), (100, 1, 2), (200, 3, 0), (210, 2, 4)]
    assert [(join.at, join.source, join.target) for join in display.lives.joins] == wanted
    across = [one for one in wanted if lane(display, one[1]) != lane(display, one[2])]
    assert [line.get_xdata()[0] for line in display.joins_] == [at for at, *_ in across]
    ends = [[lane(display, one) for one in pair] for _, *pair in across]
    assert [list(line.get_ydata()) for line in display.joins_] == ends
    assert [line.get_xdata()[0] for line in display.marks_] == [210]
    symbols = [(line.get_marker(), line.get_xdata()[0], line.get_ydata()[0]) for line in display.ax_.lines]
    at_lane = lane(display, 0)
    assert {one for one in symbols if one[0] in ("o", "x", "^") and one[2] == at_lane} == {
        ("o", 10, at_lane), ("x", 150, at_lane), ("^", 200, at_lane),
    }  # fmt: skip
    assert to_hex(display.lines_[0][0].get_color()) == colour_of(0)
    assert to_hex(display.lines_[1][0].get_color()) == colour_of(None)


def lane(display: LifelineDisplay, component: int) -> int:
    return display.lives.lives[component].lane


def test_events_of_a_feed_are_read_as_those_of_an_estimator() -> None:
    feed = [
        {"points_seen": one.offset, "kind": one.kind, "parents": list(one.parents), "children": list(one.children)}
        for one in EVENTS
    ]
    feed.append({"points_seen": 250, "kind": "cluster-born", "parents": [], "children": [7]})  # of a cluster
    assert lives_of(feed, BORN, 300) == lives_of(EVENTS, BORN, 300)


def test_lives_in_one_lane_never_overlap() -> None:
    rng = np.random.default_rng(2)
    events, living = [], [0]
    for component in range(1, 200):
        at = component * 10
        events.append(Event(at, "split", (living[-1],), (living[-1], component)))
        living.append(component)
        if len(living) > 5:
            gone = living.pop(int(rng.integers(len(living) - 1)))
            events.append(Event(at + 5, "merged", (living[0], gone), (living[0],)))
    found = lives_of(events, dict.fromkeys(living, 0), 2_000)
    assert found.lanes < 20
    for number in range(found.lanes):
        those = [one for one in found.lives.values() if one.lane == number]
        spans = sorted((one.segments[0].start, one.segments[-1].end or 2_000) for one in those)
        assert all(a[1] < b[0] for a, b in pairwise(spans))


def test_life_lines_of_a_stream_end_where_its_components_do(stream: StreamingDPMixture) -> None:
    display = LifelineDisplay.from_estimator(stream)
    snapshot = stream._fitted.snapshot
    for row, component in enumerate(stream.component_ids_.tolist()):
        last = display.lines_[component][-1]
        assert tuple(last.get_xdata()) == (snapshot.born_at[row], snapshot.points_seen)
    dead = {one for one, life in display.lives.lives.items() if not life.alive}
    assert dead.isdisjoint(stream.component_ids_.tolist())
    assert {text.get_text() for text in display.ax_.texts} == {str(one) for one in stream.component_ids_.tolist()}


def test_a_stream_without_events_has_a_life_for_each_component(stream: StreamingDPMixture, tmp_path) -> None:
    stream.save(tmp_path / "state.shoal")
    display = LifelineDisplay.from_estimator(StreamingDPMixture.load(tmp_path / "state.shoal"))
    assert set(display.lines_) == set(stream.component_ids_.tolist())


@pytest.mark.parametrize("n_clusters", [1, 2, 3, None])
def test_joins_have_the_height_and_place_that_scipy_gives_them(
    stream: StreamingDPMixture, n_clusters: int | None
) -> None:
    display = HierarchyDisplay.from_estimator(stream, n_clusters=n_clusters)
    wanted = dendrogram(stream.hierarchy_.linkage, no_plot=True)
    drawn = sorted((tuple(line.get_xdata()), tuple(line.get_ydata())) for line in display.joins_)
    places = [tuple((x - 5.0) / 10.0 for x in one) for one in wanted["icoord"]]
    assert drawn == sorted(zip(places, map(tuple, wanted["dcoord"]), strict=True))
    assert display.leaves_.tolist() == stream.hierarchy_.ids[wanted["leaves"]].tolist()
    heights = stream.hierarchy_.linkage[:, 2]
    if display.cut_height_ is not None:
        assert int((heights > display.cut_height_).sum()) == display.clustering.n_clusters - 1
        assert display.cut_.get_ydata()[0] == display.cut_height_
    else:
        assert display.clustering.n_clusters in (1, len(heights) + 1)


def test_the_tree_of_a_batch_fit_is_coloured_by_its_clusters(batch: DPMixture) -> None:
    display = HierarchyDisplay.from_estimator(batch, labels={0: "the largest"})
    clusters = batch.clusters()
    dots = display.ax_.collections[0].get_facecolors()
    assert [to_hex(one) for one in dots] == [colour_of(one) for one in clusters.of_components(display.leaves_)]
    assert "the largest" in [text.get_text() for text in display.ax_.get_xticklabels()]


def test_one_component_is_a_tree_without_joins() -> None:
    model = DPMixture(random_state=0).fit(np.random.default_rng(0).normal(size=(60, 2)))
    assert HierarchyDisplay.from_estimator(model, n_clusters=1).joins_[len(model.weights_) - 1 :] == []


def test_a_batch_fit_has_its_bound_after_each_round(batch: DPMixture) -> None:
    display = BoundDisplay.from_estimator(batch)
    assert display.line_.get_ydata().tolist() == batch.elbo_history_.tolist()
    rises = display.rises_.get_xdata().astype(int)
    steps = np.diff(batch.elbo_history_)
    assert (steps[rises - 1] > 1e-5 * 600).all()
    assert steps.sum() - steps[rises - 1].sum() <= 1e-5 * 600 * len(steps)


def test_a_sampler_has_its_log_joint(points: np.ndarray) -> None:
    model = DPMixture(method="gibbs", n_samples=4, burn_in=2, random_state=0).fit(points[:60])
    display = BoundDisplay.from_estimator(model)
    assert display.ax_.get_ylabel().startswith("log joint")
    assert display.rises_ is None


def test_the_running_score_is_that_of_points_before_they_are_learnt(points: np.ndarray) -> None:
    model = StreamingDPMixture(warmup_points=100)
    display = BoundDisplay.from_stream(model, points[:700], chunk=100)
    other, wanted = StreamingDPMixture(warmup_points=100), []
    for start in range(0, 700, 100):
        if start:
            wanted.append(other.score_samples(points[start : start + 100]).mean())
        other.partial_fit(points[start : start + 100])
    assert display.line_.get_xdata().tolist() == [200, 300, 400, 500, 600, 700]
    assert display.line_.get_ydata() == pytest.approx(wanted)
    assert {line.get_xdata()[0] for line in display.marks_} == {
        one.offset for one in other.events_ if one.kind in ("refined", "split")
    }
    assert not hasattr(model, "_fitted")  # a copy has learnt


def test_what_has_no_course_is_refused(stream: StreamingDPMixture, batch: DPMixture, points: np.ndarray) -> None:
    with pytest.raises(SettingError, match="from_stream"):
        BoundDisplay.from_estimator(stream)
    with pytest.raises(SettingError, match="no stream"):
        BoundDisplay.from_stream(batch, points)
    with pytest.raises(NoPointsError, match="19 points give no running score"):
        BoundDisplay.from_stream(stream, points[:19])


def test_a_course_of_one_value_can_be_seen() -> None:
    shown = BoundDisplay(np.array([20]), np.array([-3.0])).plot()
    shown.figure_.canvas.draw()
    drawn = np.asarray(shown.figure_.canvas.buffer_rgba())  # type: ignore[attr-defined]
    colour = np.round(255 * np.array(to_rgb(colour_of(0)))).astype(int)
    assert (np.abs(drawn[..., :3].astype(int) - colour).max(axis=-1) <= 2).sum() > 10
