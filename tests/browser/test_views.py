"""Every view of the dashboard in a real browser, on real streams: what it shows, and that nobody is left out."""

import fnmatch
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from browser.conftest import SCREENSHOTS, learn, put
from harness.browser import DESK, PHONE, Visit
from harness.running_service import RunningService
from harness.waiting import eventually
from harness.web import WEB
from shoal.plotting import colour_of

pytestmark = pytest.mark.system

VIEWS = {
    "streams": "/",
    "map": "/s/gauge/map",
    "terms": "/s/words/map",
    "nothing": "/s/empty/map",
    "life": "/s/gauge/life",
    "time": "/s/gauge/time",
    "try": "/s/gauge/try",
    "refine": "/s/gauge/refine",
    "no-sources": "/s/gauge/sources",
}
READY = {
    "streams": "a[href='#/s/gauge/map']",
    "map": ".tools .count:text('2,000 points')",
    "terms": ".card",
    "nothing": ".empty:text('The stream is empty')",
    "life": ".tools .count:text('alive')",
    "time": ".chart .uplot",
    "try": ".drop textarea",
    "refine": ".empty:text('no refinement')",
    "no-sources": ".empty:text('reads no source')",
}


LOOKS = {"light": (DESK, "light"), "dark": (DESK, "dark"), "phone": (PHONE, "light")}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_accessible_and_fits_in_every_look(visit: Callable[..., Visit], name: str) -> None:
    opened = visit(walk=True)
    page = opened.open(VIEWS[name])
    page.locator(READY[name]).first.wait_for()
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for look, (size, scheme) in LOOKS.items():
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(100)  # a frame or two, for the canvas
        page.screenshot(path=SCREENSHOTS / f"{name}-{look}.png")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{look} scrolls sideways"
        assert opened.violations() == [], look


def test_the_list_tells_what_the_service_tells(visit: Callable[..., Visit], service: RunningService) -> None:
    page = visit(walk=True).open("/")
    row = page.locator("tr", has=page.locator("a:text-is('gauge')"))
    row.wait_for()
    told = WEB.get(f"{service.url}/streams/gauge").json()
    clusters = WEB.get(f"{service.url}/streams/gauge/clusters").json()["clusters"]
    page.wait_for_function(
        "n => document.querySelectorAll('tbody tr')[1].cells[6].textContent === n", arg=str(len(clusters))
    )
    cells = row.locator("th, td").all_inner_texts()
    assert cells[2] == f"{told['points_seen']:,}"
    assert cells[5] == str(told["n_components"])
    assert re.fullmatch(r"now|\d+ (s|min) ago", cells[7])  # the snapshot that readers see
    assert (cells[1], cells[4], cells[8]) == ("gaussian, 6 features, half-life 20,000", "0", "live")


def test_a_stream_is_made_changed_and_deleted_after_a_question(
    visit: Callable[..., Visit], service: RunningService
) -> None:
    page = visit(walk=True).open("/")
    page.get_by_role("button", name="New stream").click()
    page.get_by_label("Name", exact=True).fill("tried")
    page.get_by_label("n_features").fill("2")
    page.get_by_role("button", name="Make the stream").click()
    page.wait_for_url("**/#/s/tried/*")
    page.goto(f"{service.url}/#/")
    page.get_by_role("button", name="Settings of tried").click()
    page.get_by_label("half_life").fill("500")
    assert page.get_by_label("n_features").is_disabled()
    page.get_by_role("button", name="Save").click()
    page.locator("td", has_text="half-life 500").wait_for()
    assert WEB.get(f"{service.url}/streams/tried").json()["settings"]["half_life"] == 500.0
    page.get_by_role("button", name="Delete of tried").click()
    button = page.get_by_role("button", name="Delete the stream")
    assert button.is_disabled()
    page.get_by_label("Type tried to go on").fill("tried")
    button.click()
    page.locator("a:text-is('tried')").wait_for(state="detached")
    assert WEB.get(f"{service.url}/streams/tried").status_code == 404


def test_components_that_cannot_be_read_now_are_told_and_read_again(visit: Callable[..., Visit]) -> None:
    opened = visit(own=True)
    opened.expected = ("503",)
    problem = {"type": "/problems/loading", "detail": "the stream is being loaded", "retryable": True}
    answers = iter([problem])

    def answer(route: Any) -> None:
        body = next(answers, None)
        route.continue_() if body is None else route.fulfill(status=503, json=body)

    opened.page.route("**/components?limit=24", answer)
    notes: list[str] = []
    opened.page.expose_function("noted", lambda text: notes.append(text))
    opened.page.add_init_script(
        "new MutationObserver(() => window.noted(document.querySelector('.terms .caption')?.textContent ?? ''))"
        ".observe(document, { subtree: true, childList: true, characterData: true })"
    )
    page = opened.open("/s/words/map")
    page.locator(".terms .card").first.wait_for(timeout=30_000)
    assert "The stream is being loaded." in notes


def test_text_grows_with_the_size_that_a_person_has_chosen(visit: Callable[..., Visit]) -> None:
    page = visit().open("/")
    page.locator("tbody a", has_text="gauge").wait_for()
    size = "getComputedStyle(document.querySelector('tbody td')).fontSize"
    before = float(page.evaluate(size).removesuffix("px"))
    page.locator("html").evaluate("(element) => { element.style.fontSize = '200%'; }")
    assert float(page.evaluate(size).removesuffix("px")) == pytest.approx(2 * before)


def test_of_many_streams_some_are_listed_and_any_is_found(visit: Callable[..., Visit], service: RunningService) -> None:
    told = WEB.get(f"{service.url}/streams/gauge").json()
    many = [{**told, "stream": f"s{i:05d}"} for i in range(10_000)]
    page = visit().page

    def answer(route: Any) -> None:
        asked = {name: value for name, (value,) in parse_qs(urlsplit(route.request.url).query).items()}
        found = [one for one in many if fnmatch.fnmatchcase(one["stream"], asked.get("name", "*"))]
        page = found[: int(asked["limit"])]
        route.fulfill(json={"streams": page, "next": page[-1]["stream"] if len(page) < len(found) else None})

    page.route("**/streams?*", answer)
    page.route("**/streams/s*/clusters", lambda route: route.fulfill(json={"clusters": [], "log_offset": 0}))
    page.goto(f"{service.url}/#/")
    rows = page.locator("tbody tr")
    page.locator(".count", has_text="the first 100 streams").wait_for(timeout=30_000)
    assert rows.count() == 100
    page.get_by_role("button", name="Show more").click()
    page.locator(".count", has_text="the first 200 streams").wait_for()
    assert rows.count() == 200
    page.get_by_label("Find").fill("S0999")
    page.locator(".count", has_text=re.compile("^10 streams$")).wait_for()
    assert [row.locator("a").inner_text() for row in rows.all()] == [f"s0999{i}" for i in range(10)]


@pytest.mark.parametrize(
    ("family", "names", "made"),
    [
        ("diagonal", "width, height", {"family": "diagonal", "feature_names": ["width", "height"]}),
        (
            "width = gaussian\nhits = poisson",
            "width, hits",
            {"family": {"width": "gaussian", "hits": "poisson"}, "feature_names": ["width", "hits"]},
        ),
        (
            '{"0": "gaussian", "1": "categorical"}',
            '["size, in mm", "kind"]',
            {"feature_names": ["size, in mm", "kind"], "level_names": {"1": ["round", "flat"]}},
        ),
    ],
    ids=["one family", "lines", "JSON"],
)
def test_families_and_names_are_sent_as_entered_and_stay_when_other_settings_change(
    visit: Callable[..., Visit], service: RunningService, family: str, names: str, made: dict[str, Any]
) -> None:
    page = visit(walk=True).open("/")
    page.get_by_role("button", name="New stream").click()
    page.get_by_label("Name", exact=True).fill("kinds")
    assert "SHOAL_SOURCE" not in page.locator("dialog").inner_text()  # which are for sources alone
    page.get_by_label("family", exact=True).fill(family)
    page.locator("dialog summary").click()
    page.get_by_label("feature_names", exact=True).fill(names)
    if "level_names" in made:
        page.get_by_label("level_names", exact=True).fill("kind = round, flat")
    page.get_by_role("button", name="Make the stream").click()
    page.wait_for_url("**/#/s/kinds/*")
    found = WEB.get(f"{service.url}/streams/kinds").json()["settings"]
    assert {name: found[name] for name in made} == made

    page.goto(f"{service.url}/#/")
    page.get_by_role("button", name="Settings of kinds").click()
    page.get_by_label("half_life").fill("500")
    page.get_by_role("button", name="Save").click()
    page.locator("td", has_text="half-life 500").wait_for()
    assert WEB.get(f"{service.url}/streams/kinds").json()["settings"] == {**found, "half_life": 500.0}
    assert WEB.delete(f"{service.url}/streams/kinds").status_code == 204


def test_a_refused_setting_is_told_in_the_form(visit: Callable[..., Visit]) -> None:
    opened = visit()
    opened.expected = ("400", "422")
    page = opened.open("/")
    page.get_by_role("button", name="New stream").click()
    page.get_by_label("Name", exact=True).fill("bad")
    page.get_by_label("n_features").fill("-2")
    page.get_by_role("button", name="Make the stream").click()
    page.locator("dialog .error", has_text="n_features").wait_for()


def test_the_form_asks_for_no_setting_that_is_only_shown(visit: Callable[..., Visit]) -> None:
    page = visit(walk=True).open("/")
    page.get_by_role("button", name="New stream").click()
    page.locator("dialog summary").click()
    assert page.get_by_label("window", exact=True).count() == 1
    assert page.get_by_label("family_requested").count() == page.get_by_label("family_reason").count() == 0
    page.keyboard.press("Escape")


def test_a_component_can_be_opened_from_the_table_by_keyboard_alone(
    visit: Callable[..., Visit], service: RunningService
) -> None:
    page = visit(walk=True).open("/s/gauge/map")
    page.locator(".tools .count", has_text="2,000 points").wait_for()
    page.locator("summary", has_text="as a table").focus()
    page.keyboard.press("Enter")
    largest = WEB.get(f"{service.url}/streams/gauge/components").json()["components"][0]
    page.locator(".table-of-map tbody tr").first.wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="Component")
    panel.get_by_role("heading", name=f"Component {largest['id']}").wait_for()
    panel.get_by_text("Exemplars").wait_for()
    best = WEB.get(f"{service.url}/streams/gauge/components/{largest['id']}/records?order=typical").json()["records"]
    assert panel.locator(".records .key").first.inner_text() == best[0]["key"]
    telling = WEB.get(f"{service.url}/streams/gauge/components/{largest['id']}").json()["telling"]
    assert panel.locator(".compared .term").all_inner_texts() == [f"feature {one['feature']}" for one in telling]
    page.keyboard.press("Escape")
    panel.wait_for(state="hidden")


def test_the_map_follows_the_stream(visit: Callable[..., Visit], service: RunningService) -> None:
    page = visit(walk=True).open("/s/empty/map")
    page.locator(".empty", has_text="The stream is empty").wait_for()
    body = {"points": [[float(i % 7), float(i % 3), 0.5 * i] for i in range(60)]}
    assert WEB.post(f"{service.url}/streams/empty/ingest", json=body).status_code == 202
    page.locator(".tools .count", has_text="60 points").wait_for()
    page.get_by_label("Axes").select_option("features")
    page.get_by_label("Vertical feature").select_option("2")
    page.locator(".caption", has_text="feature 0 and feature 2").wait_for()


def test_a_component_gets_a_name_that_is_shown_from_then_on(
    visit: Callable[..., Visit], service: RunningService
) -> None:
    opened = visit(walk=True)
    page = opened.open("/s/gauge/map")
    page.locator(".tools .count", has_text="2,000 points").wait_for()
    page.locator("summary", has_text="as a table").click()
    button = page.locator(".table-of-map tbody button").nth(1)
    component = int(button.inner_text())
    button.click()
    panel = page.get_by_role("complementary", name="Component")
    panel.locator("summary", has_text="Give it a name").click()
    panel.get_by_label("Name").fill("the odd hosts")
    assert opened.violations() == []
    panel.get_by_role("button", name="Save the name").click()
    panel.get_by_role("heading", name="the odd hosts").wait_for()
    told = WEB.get(f"{service.url}/streams/gauge/components/{component}").json()
    assert told["label"] == "the odd hosts"
    page.keyboard.press("Escape")
    page.locator(".table-of-map button", has_text="the odd hosts").wait_for()
    page.reload()
    page.locator("summary", has_text="as a table").click()
    page.locator(".table-of-map button", has_text="the odd hosts").wait_for()


def test_the_plane_stays_until_a_person_asks_for_another(visit: Callable[..., Visit], service: RunningService) -> None:
    """By the bodies of the page's own questions."""
    put(service, "moving", n_features=3)
    rng = np.random.default_rng(6)
    learn(service, "moving", {"points": (rng.normal(size=(60, 3)) + 8 * rng.integers(3, size=(60, 1))).tolist()})
    page = visit(own=True).page
    asked: list[dict[str, Any]] = []
    page.on("request", lambda one: one.url.endswith("/projection") and asked.append(one.post_data_json))
    page.goto(f"{service.url}/#/s/moving/map")
    page.locator(".tools .count", has_text="60 points").wait_for()
    for total in (90, 120):
        learn(service, "moving", {"points": (rng.normal(size=(30, 3)) + total).tolist()})
        page.locator(".tools .count", has_text=f"{total} points").wait_for()
    drawn = [body for body in asked if body["n"]]
    planes = {str((body["origin"], body["axes"])) for body in drawn[1:]}
    assert "axes" not in drawn[0]
    assert len(drawn) > 2
    assert len(planes) == 1
    assert [body["after"] for body in drawn if body["after"]] != []
    before = len(asked)
    page.get_by_role("button", name="Update axes").click()
    page.locator(".tools .count", has_text="120 points").wait_for()
    deadline = time.monotonic() + 120
    while not any("axes" not in body for body in asked[before:]) and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    assert any("axes" not in body for body in asked[before:])


def test_what_is_under_the_pointer_is_told_and_a_click_opens_it(visit: Callable[..., Visit]) -> None:
    page = visit(walk=True).open("/s/gauge/map")
    page.locator(".tools .count", has_text="2,000 points").wait_for()
    box = page.locator(".map-box").bounding_box()
    tip = page.locator(".tip")
    for place in range(400):
        x, y = box["x"] + box["width"] * (0.1 + 0.8 * (place % 20) / 20), box["y"] + box["height"] * (place // 20) / 20
        page.mouse.move(x, y)
        if tip.is_visible():
            break
    name = re.match(r"(component \d+|[\w ]+) · cluster", tip.locator(".tip-head").inner_text())
    assert name is not None
    page.mouse.click(x, y)
    heading = page.get_by_role("complementary", name="Component").get_by_role("heading", level=2)
    heading.wait_for()
    assert heading.inner_text().lower() == name[1].lower()
    page.locator(".map-box").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("0")


def test_a_colour_follows_from_the_id_alone(visit: Callable[..., Visit]) -> None:
    ask = """async () => {
        const {colourOf} = await import("/static/dashboard/colours.js");
        return [...Array(48).keys(), -1].map(id => colourOf(id < 0 ? undefined : id));
    }"""
    page = visit().open("/")
    first = page.evaluate(ask)
    page.reload()
    again = page.evaluate(ask)
    page.emulate_media(color_scheme="dark")
    page.reload()
    dark = page.evaluate(ask)
    for colours in (first, dark):
        assert len({*colours[:24]}) == 24
        assert colours[:24] == colours[24:48]
        assert colours[48] not in colours[:48]
        assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
    assert first == again
    assert first != dark
    for colours, is_dark in ((first, False), (dark, True)):  # plots of the library have the same
        assert colours == [colour_of(id_, dark=is_dark) for id_ in [*range(48), -1]]


def test_long_names_on_the_map_neither_hide_one_another_nor_are_cut_at_its_edge(visit: Callable[..., Visit]) -> None:
    placed = visit(walk=True).anywhere().evaluate(
        """async (means) => {
            const [{placedNames}, {Viewport}] = await Promise.all(
                ["map_draw", "viewport"].map(name => import(`/static/dashboard/${name}.js`)));
            const view = new Viewport(false);
            view.resize(600, 400);
            view.fit({left: 0, right: 600, bottom: 0, top: 400});
            const context = document.createElement("canvas").getContext("2d");
            const ids = [...means.keys()];
            const label = ids.map(id => `machine ${id}, idle between two shifts, warm`);
            const [x, y] = [0, 1].map(axis => means.map(mean => mean[axis]));
            return placedNames(context, {ids, label, x, y}, view, 59);
        }""",
        np.random.default_rng(0).uniform([10, 10], [590, 390], size=(60, 2)).tolist(),
    )  # fmt: skip
    assert placed[0]["name"].startswith("machine 59")  # the chosen one first
    assert len(placed) > 15
    for k, one in enumerate(placed):
        assert one["width"] / 2 < one["x"] < 600 - one["width"] / 2
        for other in placed[:k]:
            beside = abs(one["x"] - other["x"]) >= (one["width"] + other["width"]) / 2
            assert beside or abs(one["y"] - other["y"]) >= 12, (one, other)


def test_points_of_one_feature_are_shown_by_when_they_came(
    visit: Callable[..., Visit], service: RunningService
) -> None:
    put(service, "line", n_features=1)
    learn(service, "line", {"points": [[float(i % 3) * 9 + 0.01 * i] for i in range(90)]})
    opened = visit(walk=True)
    page = opened.open("/s/line/map")
    page.locator(".caption", has_text="when a point came").wait_for()
    assert page.get_by_label("Vertical feature").is_hidden()
    page.locator("summary", has_text="as a table").click()
    heights = page.locator(".table-of-map tbody td:nth-child(6)").all_inner_texts()
    assert set(heights) == {"45.5"}
    page.screenshot(path=SCREENSHOTS / "line-light.png")


def test_points_far_from_the_middle_are_in_the_picture(visit: Callable[..., Visit], service: RunningService) -> None:
    """The axes of two features are chosen after the first answer, and the map is laid out meanwhile."""
    put(service, "far", n_features=2)
    spot = np.random.default_rng(8).normal(size=(300, 2)) + 1000
    learn(service, "far", {"points": spot.tolist()})
    page = visit(walk=True).page
    page.route("**/far/projection", lambda route: (time.sleep(0.3), route.continue_()))
    page.goto(f"{service.url}/#/s/far/map")
    page.locator(".caption", has_text="feature 0 and feature 1").wait_for()
    page.locator(".tools .count", has_text="300 points").wait_for()
    box = page.locator(".map-box").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def pointed_at() -> bool:
        page.mouse.move(middle[0] + 1, middle[1])
        page.mouse.move(*middle)
        return bool(page.locator(".tip").is_visible())

    eventually(pointed_at, "something is in the middle of the map")


ANSWERS = """async ([order]) => {
    const {Scene} = await import("/static/dashboard/scene.js");
    const asked = [];
    const held = window.fetch;
    window.fetch = (path, ...more) => path.startsWith("/streams/x/") ? new Promise(done => asked.push(done))
        : held(path, ...more);
    const live = {path: "/streams/x", clusters: {}, info: null, takeLabels() {}};
    const answer = x => new Response(JSON.stringify({incarnation: "i", log_offset: x.length, origin: [0, 0],
        axes: [[1, 0], [0, 1]], components: null, points: {x, y: x, components: x, novelty: x, log_density: x,
        log_offsets: x, keys: x}}));
    const scene = new Scene(live), {signal} = new AbortController();
    const updates = [scene.update(signal), scene.update(signal)];
    scene.choose([0, 1]);
    updates.push(scene.update(signal));
    while (asked.length < 2) await new Promise(requestAnimationFrame);
    const answers = [answer([1, 2, 3]), answer([4, 5])];
    for (const i of order) {
        asked[i](answers[i]);
        await updates[2 * i];
    }
    window.fetch = held;
    return [asked.length, scene.points.x, await Promise.all(updates)];
}"""


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_only_the_answer_for_the_chosen_plane_is_shown(visit: Callable[..., Visit], order: list[int]) -> None:
    """Two questions are asked: the second of three comes while the first has no answer."""
    assert visit(walk=True).anywhere().evaluate(ANSWERS, [order]) == [2, [4, 5], [False, False, True]]


NEW_COMPONENTS = """async () => {
    const {Scene} = await import("/static/dashboard/scene.js");
    const sent = window.fetch;
    const components = {ids: [3, 5], x: [0, 1], y: [0, 1], xx: [1, 1], xy: [0, 0], yy: [1, 1]};
    let projections = 0;
    window.fetch = async (path, ...more) => path !== "/streams/x/projection" ? sent(path, ...more)
        : (projections += 1, new Response(JSON.stringify({incarnation: "i", log_offset: 9, origin: [0, 0],
            axes: [[1, 0], [0, 1]], components, points: null})));
    const live = {path: "/streams/x", clusters: {}, clusterOf: new Map([[3, 3]]), info: null, takeLabels() {},
        async readClusters() { this.clusters = {}; this.clusterOf = new Map([[3, 3], [5, 3]]); }};
    const scene = new Scene(live), {signal} = new AbortController();
    const updates = [await scene.update(signal), await scene.update(signal)];
    window.fetch = sent;
    return [updates, [...live.clusterOf.keys()], projections];
}"""


def test_components_that_are_newer_than_the_clusters_have_a_cluster_when_they_are_drawn(
    visit: Callable[..., Visit],
) -> None:
    """So they have its colour at once, and nothing is asked twice. For seconds after a refinement all were grey."""
    assert visit(walk=True).anywhere().evaluate(NEW_COMPONENTS) == [[True, False], [3, 5], 1]


def test_columns_of_several_kinds_are_named_and_compared_each_by_itself(
    visit: Callable[..., Visit], service: RunningService
) -> None:
    families = {"cpu": "gaussian", "errors": "poisson", "region": "categorical"}
    put(service, "mixed", family=families, feature_names=list(families))
    rng = np.random.default_rng(9)
    kind = rng.integers(2, size=600)
    cpu = np.array([20.0, 8000.0])[kind] + rng.normal(size=600)
    learn(service, "mixed", {"points": np.column_stack([cpu, rng.poisson(np.array([1, 30])[kind]), kind]).tolist()})
    page = visit(walk=True).open("/")
    page.locator("td", has_text="gaussian + poisson + categorical, 3 features").wait_for()
    page.goto(f"{service.url}/#/s/mixed/map")
    page.locator(".caption", has_text="Each bar has a scale of its own").wait_for()
    bars = page.locator(".card .bar")
    tracks = eventually(  # bars that are drawn again have no width for a moment
        lambda: all(found := bars.evaluate_all("bars => bars.map(bar => bar.parentElement.offsetWidth)")) and found
    )
    widths = bars.evaluate_all("bars => bars.map(bar => bar.offsetWidth / bar.parentElement.offsetWidth)")
    names = page.locator(".card .bars .term").all_inner_texts()
    numbers = page.locator(".card .bars .number").evaluate_all("all => all.map(one => one.firstChild.textContent)")
    for name, number, width in zip(names, numbers, widths, strict=True):
        if name.startswith("region"):  # the probability of a level
            assert number.endswith("%")
            assert abs(width - float(number.strip("<% ")) / 100) < 0.03
        elif number.startswith(("8,", "30", "29")):  # where it is high
            assert width > 0.95
    assert sum(width > 0.95 for width in widths) >= 2
    assert max(tracks) - min(tracks) <= 1  # equal lengths mean equal values


SQUARES = """async ([density, scheme]) => {
    const [{PointLayer}, {Viewport}, {colourOf}] = await Promise.all(
        ["point_layer", "viewport", "colours"].map(name => import(`/static/dashboard/${name}.js`)));
    const canvas = Object.assign(document.createElement("canvas"), {width: 200 * density, height: 100 * density});
    const context = canvas.getContext("2d", {willReadFrequently: true});
    const view = new Viewport(), layer = new PointLayer();
    context.setTransform(density, 0, 0, density, 0, 0);
    view.resize(200, 100);
    view.fit({left: 0, right: 200, bottom: 0, top: 100});
    const points = {x: [30, 90, 90, 150, -50, NaN], y: [20, 60, 60, 80, 50, 50], components: [7, 7, 8, 9, 7, 7]};
    const seen = () => {
        context.clearRect(0, 0, 200, 100);
        layer.draw(context, points, view, new Map([[7, 0], [8, 1]]));
        const data = context.getImageData(0, 0, canvas.width, canvas.height).data, found = {};
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 0) {
            const at = [i / 4 % canvas.width, Math.floor(i / 4 / canvas.width)];
            found[at] = [...data.slice(i, i + 4)];
        }
        return found;
    };
    return [seen(), (points.y = points.y.map(y => y - 10), seen()), [0, 1, undefined].map(colourOf)];
}"""


def test_components_without_a_map_get_their_colours_as_soon_as_the_clusters_are_known(
    visit: Callable[..., Visit],
) -> None:
    opened = visit(own=True)
    page = opened.page
    page.add_init_script("const real = setInterval; setInterval = (run, ms) => (ms === 1000 ? 0 : real(run, ms));")
    held: list[Any] = []
    page.route("**/streams/words/clusters*", lambda route: held.append(route))
    opened.open("/s/words/map")
    swatch = page.locator(".card .swatch").first
    swatch.wait_for()
    grey = swatch.evaluate("one => one.style.background")
    eventually(lambda: held or page.wait_for_timeout(20))
    held[0].continue_()  # no look of each second follows
    page.wait_for_function("grey => document.querySelector('.card .swatch').style.background !== grey", arg=grey)


@pytest.mark.short_form("light-1", "dark-2")
@pytest.mark.parametrize("density", [1, 2])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_points_are_squares_in_the_colours_of_their_clusters(
    visit: Callable[..., Visit], density: int, scheme: str
) -> None:
    opened = visit()
    opened.page.emulate_media(color_scheme=scheme)
    first, lower, colours = opened.open("/").evaluate(SQUARES, [density, scheme])
    assert colours[0] == colour_of(0, dark=scheme == "dark")
    rgb = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours])

    def at(pixels: dict[str, list[int]], x: int, y: int) -> list[np.ndarray]:
        """The pixels of the square of a point, of three pixels of a page."""
        across = range((x - 1) * density, (x + 2) * density)
        down = range((100 - y - 1) * density, (100 - y + 2) * density)
        return [np.array(pixels[f"{i},{j}"]) for i in across for j in down]

    for pixels, fall in ((first, 0), (lower, 10)):
        assert len(pixels) == 3 * (3 * density) ** 2  # two points share a place; two are not seen
        for place, colour, opacity in (
            ((30, 20), rgb[0], 0.7),
            ((150, 80), rgb[2], 0.7),
            ((90, 60), rgb[:2].mean(0), 0.91),
        ):
            for pixel in at(pixels, place[0], place[1] - fall):
                np.testing.assert_allclose(pixel[:3], colour, atol=2.5)
                np.testing.assert_allclose(pixel[3] / 255, opacity, atol=0.02)


def test_the_point_under_the_pointer_is_the_nearest(visit: Callable[..., Visit]) -> None:
    rng = np.random.default_rng(4)
    points, places = rng.uniform(0, 100, size=(300, 2)), rng.uniform(0, 400, size=(200, 2))
    found = visit(walk=True).anywhere().evaluate(
        """async ([points, places]) => {
            const [{under}, {Viewport}] = await Promise.all(
                ["hover", "viewport"].map(name => import(`/static/dashboard/${name}.js`)));
            const view = new Viewport(false);
            view.resize(400, 400);
            view.fit({left: 0, right: 100, bottom: 0, top: 50});
            const [x, y] = [0, 1].map(axis => points.map(point => point[axis]));
            const scene = {points: {x, y, components: [...x.keys()]}, components: null};
            return places.map(([x, y]) => under(scene, view, x, y).point);
        }""",
        [points.tolist(), places.tolist()],
    )  # fmt: skip
    pixels = np.column_stack([4 * points[:, 0], 400 - 8 * points[:, 1]])
    far = np.linalg.norm(places[:, None] - pixels[None], axis=2)
    assert found == [int(row.argmin()) if row.min() <= 10 else None for row in far]
    assert 20 < sum(one is not None for one in found) < 200


def test_no_table_scrolls_sideways_on_a_phone(visit: Callable[..., Visit]) -> None:
    opened = visit(walk=True)
    opened.page.set_viewport_size(PHONE)
    for place in ("/s/gauge/map", "/s/gauge/life"):
        page = opened.open(place)
        page.locator("details.table-of-map summary", has_text=re.compile(r"^\d")).click()
        page.locator("details.table-of-map tbody tr").first.wait_for()
        wide = page.locator(".table-of-map .scroll").evaluate("(one) => [one.scrollWidth, one.clientWidth]")
        assert wide[0] <= wide[1], place
        assert opened.violations() == [], place


def test_long_names_in_other_scripts_fit_a_phone_and_are_cut_at_their_own_end(
    visit: Callable[..., Visit], service: RunningService
) -> None:
    arabic = "درجة حرارة الهواء الخارجي في الخادم الرئيسي"
    put(service, "scripts", n_features=2, feature_names=[arabic, "a name that is wider than half of a phone"])
    learn(service, "scripts", {"points": np.random.default_rng(0).normal(size=(300, 2)).tolist()})
    (component,) = WEB.get(f"{service.url}/streams/scripts/components").json()["components"]
    WEB.patch(f"{service.url}/streams/scripts/components/{component['id']}", json={"label": arabic}).raise_for_status()
    opened = visit(own=True)
    opened.page.set_viewport_size(PHONE)
    opened.page.add_init_script(
        "const fill = CanvasRenderingContext2D.prototype.fillText; window.written = [];"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {"
        " window.written.push(text); return fill.call(this, text, ...rest); };"
    )
    page = opened.open("/s/scripts/map")
    page.wait_for_function("() => window.written.some((text) => text.includes('درجة'))")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    (name,) = page.evaluate("[...new Set(window.written.filter((text) => text.includes('درجة')))]")
    assert name[0] == "\u2068"  # alone in its direction, so that the dots stand where it was cut
    assert name.endswith("…\u2069")
    page = opened.open("/s/scripts/time")
    legend = page.locator(".legend-name", has_text="درجة").first
    assert legend.evaluate("(one) => getComputedStyle(one).direction") == "rtl"
    assert WEB.delete(f"{service.url}/streams/scripts").status_code == 204


def test_charts_without_a_series_are_low_and_stand_last(visit: Callable[..., Visit]) -> None:
    page = visit(walk=True).open("/s/gauge/time")
    page.locator(".chart .uplot").first.wait_for()
    waiting = page.locator(".chart", has_text="Mass of clusters").bounding_box()
    drawn = page.locator(".chart", has_text="Clusters among recent points").bounding_box()
    assert waiting["height"] < drawn["height"] / 2
    assert waiting["y"] > drawn["y"] + drawn["height"]


def test_a_stream_that_has_stopped_says_so(visit: Callable[..., Visit], service: RunningService) -> None:
    told = {**WEB.get(f"{service.url}/streams/gauge").json(), "status": "failed"}
    page = visit().page
    page.route("**/streams/gauge", lambda route: route.fulfill(json=told))
    page.goto(f"{service.url}/#/s/gauge/map")
    page.locator("#notice", has_text="learner_halted").wait_for()
    page.locator("#state", has_text="stopped").wait_for()
