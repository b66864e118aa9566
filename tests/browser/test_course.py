"""Life lines, series, refinements: what happens over a stream, and after a connection was lost."""

import itertools
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from browser.conftest import learn, put
from harness.browser import Visit
from harness.running_service import RunningService
from harness.waiting import eventually
from harness.web import WEB
from shoal.plotting import lives_of

pytestmark = pytest.mark.system


def event(kind: str, at: int, parents: list[int], children: list[int]) -> dict[str, Any]:
    return {"kind": kind, "points_seen": at, "log_offset": at, "parents": parents, "children": children, "id": f"{at}"}


def lives(page: Any, events: list[dict[str, Any]], today: dict[str, Any] | None, now: int) -> dict[str, Any]:
    """What the module of life lines makes of events, as plain data."""
    found = page.evaluate(
        """async ([events, today, now]) => {
            const {livesOf} = await import("/static/dashboard/lives.js");
            const {lives, ...rest} = livesOf(events, today, now);
            return {...rest, lives: [...lives.values()]};
        }""",
        [events, today, now],
    )
    return dict(found)


def test_lives_follow_from_events(visit: Callable[..., Visit]) -> None:
    page = visit(walk=True).anywhere()
    events = [
        event("born", 10, [], [0]), event("born", 20, [], [1]), event("split", 100, [0], [0, 2]),
        event("merged", 200, [0, 1], [0]), event("refined", 300, [0, 2], [3]), event("adopted", 300, [], []),
        event("born", 390, [], [4]), event("returned", 400, [4], [1]), event("pruned", 500, [3], []),
    ]  # fmt: skip
    found = lives(page, events, {"ids": [1, 9], "born_at": [20, 5]}, 1000)
    segments = {life["id"]: [(s["start"], s["end"]) for s in life["segments"]] for life in found["lives"]}
    assert segments == {
        0: [(10, 300)], 1: [(20, 200), (400, None)], 2: [(100, 300)], 3: [(300, 500)], 4: [(390, 400)], 9: [(5, None)],
    }  # fmt: skip
    joins = {(join["at"], join["from"], join["to"]) for join in found["joins"]}
    assert joins == {(100, 0, 2), (200, 1, 0), (300, 0, 3), (300, 2, 3), (400, 4, 1)}
    assert found["marks"] == [{"at": 300, "kind": "adopted"}]
    assert {life["id"]: life["ended"] for life in found["lives"] if life["ended"]} == {
        0: "refined",
        2: "refined",
        3: "pruned",
        4: "returned",
    }
    same = lives_of(events, {1: 20, 9: 5}, 1000)  # the library draws the same lives
    assert {one.id: one.lane for one in same.lives.values()} == {one["id"]: one["lane"] for one in found["lives"]}
    assert {one.id: [(s.start, s.end, s.known) for s in one.segments] for one in same.lives.values()} == {
        one["id"]: [(s["start"], s["end"], s["known"]) for s in one["segments"]] for one in found["lives"]
    }
    assert {(join.at, join.source, join.target) for join in same.joins} == joins
    assert (same.first, same.last, same.lanes) == (found["first"], found["last"], found["lanes"])


def test_no_two_lives_of_one_lane_overlap(visit: Callable[..., Visit]) -> None:
    page = visit(walk=True).anywhere()
    rng = np.random.default_rng(2)
    events, alive, following = [], [0], 1
    events.append(event("born", 0, [], [0]))
    for at in range(10, 4000, 10):
        kind = rng.choice(["born", "split", "merged", "pruned"]) if len(alive) > 1 else "born"
        a, b = (int(k) for k in rng.choice(alive, 2, replace=False)) if len(alive) > 1 else (alive[0], alive[0])
        if kind in ("born", "split"):
            events.append(
                event(kind, at, [] if kind == "born" else [a], [following] if kind == "born" else [a, following])
            )
            alive.append(following)
            following += 1
        else:
            events.append(event(kind, at, [a, b] if kind == "merged" else [b], [a] if kind == "merged" else []))
            alive.remove(b)
    found = lives(page, events, {"ids": alive, "born_at": [0] * len(alive)}, 4000)
    assert {life["id"] for life in found["lives"] if life["segments"][-1]["end"] is None} == set(alive)
    by_lane: dict[int, list[tuple[int, float]]] = {}
    for life in found["lives"]:
        last = life["segments"][-1]["end"]
        by_lane.setdefault(life["lane"], []).append((life["segments"][0]["start"], np.inf if last is None else last))
    for spans in by_lane.values():
        spans.sort()
        assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))
    assert len(by_lane) < len(found["lives"]) / 2


def test_the_events_are_told_in_words_and_open_a_component(visit: Callable[..., Visit]) -> None:
    page = visit(walk=True).open("/s/gauge/life")
    page.locator(".tools .count", has_text="alive").wait_for()
    page.locator("summary", has_text="events as a table").click()
    rows = page.locator(".table-of-map tbody tr")
    rows.last.wait_for()
    assert rows.last.locator("td").nth(1).inner_text() == "component 0 was born"
    rows.last.get_by_role("button", name="component 0").click()
    page.get_by_role("complementary").get_by_text("Born at").wait_for()


def test_events_of_clusters_are_told_as_such(visit: Callable[..., Visit]) -> None:
    page = visit(walk=True).anywhere()
    happened = {
        "cluster 6 appeared": ("cluster-born", [], [6]),
        "cluster 0 disappeared": ("cluster-gone", [0], []),
        "cluster 8 was merged into 7": ("cluster-merged", [7, 8], [7]),
        "cluster 7 split: 9 came of it": ("cluster-split", [7], [7, 9]),
        "clusters 1, 2 became 3, 4": ("cluster-regrouped", [1, 2], [3, 4]),
        "component 2 split: 3 came of it": ("split", [2], [2, 3]),
    }
    events = [{"kind": kind, "parents": parents, "children": made} for kind, parents, made in happened.values()]
    words = page.evaluate(
        """async (events) => {
            const { eventWords } = await import("/static/dashboard/lives.js");
            return events.map(eventWords);
        }""",
        events,
    )
    assert words == list(happened)


def test_a_click_on_a_line_opens_its_component(visit: Callable[..., Visit]) -> None:
    page = visit(walk=True).open("/s/gauge/life")
    page.locator(".tools .count", has_text="alive").wait_for()
    box = page.locator(".life-box")
    box.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("complementary").get_by_role("heading", name="Component").first.wait_for()
    page.keyboard.press("Escape")
    size = box.bounding_box()
    page.mouse.click(size["x"] + size["width"] - 120, size["y"] + 22 + 11)
    page.get_by_role("complementary").get_by_role("heading", name="Component").first.wait_for()


def test_series_are_drawn_from_what_the_stream_holds(visit: Callable[..., Visit], service: RunningService) -> None:
    page = visit(walk=True).open("/s/gauge/time")
    novelty = page.locator(".chart", has=page.locator("h2:text('Novelty')"))
    novelty.locator("canvas").wait_for()
    told = page.evaluate(
        """async () => {
            const {bins, meansIn} = await import("/static/dashboard/recent.js");
            const sample = await (await fetch("/streams/gauge/sample?n=5000")).json();
            const {ends, of} = bins(sample.log_offsets, 60);
            return [ends, meansIn(sample.novelty, of, ends.length), sample.novelty];
        }"""
    )
    ends, means, values = told
    cuts = np.searchsorted(np.arange(1, 2001), ends, side="right")
    expected = [np.mean(part) for part in np.split(np.array(values), cuts[:-1])]
    np.testing.assert_allclose(means, expected, rtol=1e-9, atol=1e-300)


def test_a_refinement_is_started_followed_and_compared(visit: Callable[..., Visit], service: RunningService) -> None:
    put(service, "refined", n_features=2, family="gaussian", warmup_points=100)
    rng = np.random.default_rng(4)
    for _ in range(3):
        learn(service, "refined", {"points": (rng.normal(size=(300, 2)) + rng.integers(3, size=(300, 1)) * 9).tolist()})
    page = visit(walk=True).open("/s/refined/refine")
    page.locator(".empty", has_text="no refinement").wait_for()
    page.get_by_role("button", name="Refine now").click()
    row = page.locator("tbody tr").first
    row.wait_for()
    page.wait_for_function(
        "() => /adopted/.test(document.querySelector('tbody tr td.result')?.textContent)", timeout=300_000
    )
    told = WEB.get(f"{service.url}/streams/refined/refinements").json()["refinements"][0]
    cells = row.locator("td").all_inner_texts()
    assert cells[0] == "asked"
    assert cells[2] == f"{told['window_rows']:,}"
    assert cells[6] == f"{told['components_before']} → {told['components_after']}"


def test_the_page_says_that_the_service_is_away_and_then_goes_on(
    visit: Callable[..., Visit], service: RunningService
) -> None:
    """The service is killed, and starts again on its data. Events are not told twice."""
    opened = visit()
    opened.expected = ("Failed to load resource", "net::ERR")
    page = opened.open("/s/gauge/life")
    page.locator(".state.live").wait_for()
    page.locator("summary", has_text="events as a table").wait_for()
    before = page.locator("summary").inner_text()
    page.evaluate(
        "() => { const notice = document.querySelector('#notice'); window.notices = new Set();"
        " new MutationObserver(() => notice.textContent && notices.add(notice.textContent))"
        ".observe(notice, {childList: true, characterData: true, subtree: true}) }"
    )
    service.kill()
    page.locator("#notice", has_text="The service does not answer").wait_for()
    page.wait_for_timeout(2_000)  # the feed of events has tried again, too
    (notice,) = page.evaluate("[...notices]")
    assert notice.startswith("The service does not answer"), notice
    service.start()
    page.locator(".state.live").wait_for(timeout=60_000)
    page.locator("#notice").wait_for(state="hidden")
    learn(service, "gauge", {"points": np.full((40, 6), 300.0).tolist()})
    eventually(lambda: page.locator("summary").inner_text() != before, pause_s=0.1)
    stored = stored_and_shown(service, "gauge", page)
    assert stored > int(before.split()[0])
    page.locator("summary", has_text=f"{stored} events").click()
    page.wait_for_function("n => document.querySelectorAll('.table-of-map tbody tr').length === n", arg=stored)


def test_an_answer_that_breaks_off_is_a_service_that_is_away(
    visit: Callable[..., Visit], service: RunningService
) -> None:
    page = visit().open("/s/gauge/life")
    page.locator(".state.live").wait_for()
    page.route("**/streams/gauge", lambda route: route.fulfill(body='{"name": "gau', content_type="application/json"))
    page.locator("#notice", has_text="The service does not answer").wait_for()
    page.unroute("**/streams/gauge")
    page.locator("#notice").wait_for(state="hidden")


def test_a_stream_that_is_made_again_is_followed_from_its_beginning(
    visit: Callable[..., Visit], service: RunningService
) -> None:
    opened = visit()
    opened.expected = ("404", "410")
    put(service, "twice", n_features=2, family="gaussian")
    learn(service, "twice", {"points": [[float(i % 3) * 50, 0.0] for i in range(30)]})
    page = opened.open("/s/twice/life")
    page.locator(".tools .count", has_text="alive").wait_for()
    assert WEB.delete(f"{service.url}/streams/twice").status_code == 204
    page.locator("#notice", has_text="twice").wait_for()
    put(service, "twice", n_features=2, family="gaussian")
    learn(service, "twice", {"points": [[0.0, float(i % 4) * 50] for i in range(30)]})
    page.locator(".state.live").wait_for()
    stored_and_shown(service, "twice", page)
    page.locator("#notice").wait_for(state="hidden")


def stored_and_shown(service: RunningService, stream: str, page: Any) -> int:
    """The number of events that are stored, once the page shows as many."""
    return eventually(
        lambda: (n := len(stored_events(service, stream))) == int(page.locator("summary").inner_text().split()[0]) and n
    )


def stored_events(service: RunningService, stream: str) -> list[str]:
    """The lines of data of the feed, from the oldest event until nothing comes for a second."""
    found: list[str] = []
    quiet = httpx.Timeout(60.0, read=1.0)
    try:
        with WEB.stream("GET", f"{service.url}/streams/{stream}/events?after=0", timeout=quiet) as reply:
            found.extend(line for line in reply.iter_lines() if line.startswith("data:"))
    except httpx.ReadTimeout:
        pass
    return found
