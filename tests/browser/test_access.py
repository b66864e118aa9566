"""Keys, and content that is hostile: what a page may hold, send and run."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.conftest import dashboard, learn, put
from harness.browser import Visit
from harness.running_service import RunningService
from harness.web import WEB

pytestmark = pytest.mark.system

ADMIN = "the-admin-key-of-these-tests"
BEARER = {"Authorization": f"Bearer {ADMIN}"}


@pytest.fixture(scope="module")
def service(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with the stream `gauge`, which is empty."""
    with dashboard(tmp_path_factory) as running:
        put(running, "gauge", n_features=6)
        yield running


@pytest.fixture(scope="module")
def locked(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service that needs keys, with one stream."""
    running = RunningService(tmp_path_factory.mktemp("locked") / "data", {"admin_key": ADMIN})
    running.start()
    try:
        WEB.put(f"{running.url}/streams/secret", json={"n_features": 2}, headers=BEARER).raise_for_status()
        body = {"points": [[float(i % 5), float(i % 3)] for i in range(50)]}
        WEB.post(f"{running.url}/streams/secret/ingest", json=body, headers=BEARER).raise_for_status()
        yield running
    finally:
        running.kill()


def test_a_key_is_asked_for_sent_with_everything_and_kept_for_the_tab_alone(
    visit: Callable[..., Visit], locked: RunningService
) -> None:
    opened = visit(own=True, at=locked.url)
    opened.expected = ("401",)
    sent: list[tuple[str, str | None]] = []
    opened.page.on("request", lambda one: sent.append((one.url, one.headers.get("authorization"))))
    page = opened.open("/")
    dialog = page.get_by_role("dialog", name="Access key")
    dialog.wait_for()
    assert opened.violations() == []
    dialog.get_by_label("Access key").fill(ADMIN)
    dialog.get_by_role("button", name="Use the key").click()
    page.locator("a:text-is('secret')").click()
    page.locator(".state.live").wait_for()
    page.locator(".tools .count", has_text="50 points").wait_for()
    asked = [key for url, key in sent if "/streams/secret" in url]
    assert any("/events" in url for url, _ in sent)
    assert asked
    assert set(asked) == {f"Bearer {ADMIN}"}
    kept = page.evaluate(
        "[JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie, location.href]"
    )
    assert ADMIN in kept[0]
    assert not any(ADMIN in place for place in kept[1:])
    assert not any(ADMIN in url for url in opened.requested)
    page.get_by_role("button", name="Key").click()
    page.get_by_role("button", name="Forget the key").click()
    page.locator("#notice", has_text="needs an access key").wait_for()
    assert page.evaluate("sessionStorage.length") == 0


def test_the_question_for_a_key_can_be_closed(visit: Callable[..., Visit], locked: RunningService) -> None:
    """The list asks the service again and again. The dialog came back each time, and held the keyboard."""
    opened = visit(at=locked.url)
    opened.expected = ("401",)
    page = opened.open("/")
    dialog = page.get_by_role("dialog", name="Access key")
    dialog.wait_for()
    page.keyboard.press("Escape")
    for _ in range(3):
        page.wait_for_event("requestfinished", lambda one: "/streams?" in one.url, timeout=60_000)
    assert dialog.count() == 0
    page.get_by_role("button", name="Key").click()
    dialog.wait_for()


def test_a_key_that_may_only_read_is_told_what_it_may_not_do(
    visit: Callable[..., Visit], locked: RunningService
) -> None:
    body = {"name": "eyes", "scope": "read"}
    key = WEB.post(f"{locked.url}/keys", json=body, headers=BEARER).json()["key"]
    opened = visit(own=True, at=locked.url)
    opened.expected = ("403",)
    opened.page.add_init_script(f"sessionStorage.setItem('shoal.key', '{key}')")
    page = opened.open("/s/secret/refine")
    page.get_by_role("button", name="Refine now").click()
    page.locator(".error", has_text="The key may not do this").wait_for()
    page.goto(f"{locked.url}/#/s/secret/try")
    page.locator("#points").fill("1, 2")
    page.get_by_role("button", name="Learn").click()
    page.locator(".error", has_text="The key may not do this").wait_for()
    page.get_by_role("button", name="Score").click()
    page.locator(".scores tbody tr").wait_for()


def test_keys_payloads_and_names_are_text_and_never_markup(
    visit: Callable[..., Visit], service: RunningService
) -> None:
    attack = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>'
    put(service, "hostile", n_features=2)
    points = [[0.1 * i, 0.0] for i in range(5)]
    learn(
        service,
        "hostile",
        {"points": points, "keys": [f"{attack}{i}" for i in range(5)], "payloads": [{attack: attack}] * 5},
    )
    page = visit(walk=True).open("/s/hostile/map")
    page.locator(".tools .count", has_text="5 points").wait_for()
    page.locator("summary", has_text="as a table").click()
    page.locator(".table-of-map tbody button").first.click()
    page.locator(".records .key").first.wait_for()
    assert attack in page.locator(".records .key").first.inner_text()
    assert page.evaluate("[window.hit ?? null, document.querySelectorAll('main img, main script').length]") == [None, 0]


def test_a_stream_that_is_not_there_is_told(visit: Callable[..., Visit]) -> None:
    opened = visit()
    opened.expected = ("404",)
    page = opened.open("/s/nowhere/map")
    page.locator("#notice", has_text="nowhere").wait_for()
    page.locator("#state", has_text="not available").wait_for(timeout=30_000)  # the connection is all right


def test_an_address_that_is_no_name_is_told(visit: Callable[..., Visit]) -> None:
    opened = visit()
    opened.expected = ("400",)
    page = opened.open("/s/gauge/map")
    page.locator(".crumb-name", has_text="gauge").wait_for()
    opened.open("/s/%E0%A4/map")  # half of a character
    page.locator("#notice", has_text="%E0%A4").wait_for(timeout=30_000)
    assert page.locator(".crumb-name").inner_text() == "%E0%A4"


def test_a_name_written_from_right_to_left_turns_nothing_else(
    visit: Callable[..., Visit], service: RunningService
) -> None:
    put(service, "turned", n_features=2, feature_names=["a \u202eb", "c"])
    learn(service, "turned", {"points": [[0.1 * i, 0.0] for i in range(5)]})
    page = visit(walk=True).open("/s/turned/map")
    page.locator(".tools .count", has_text="5 points").wait_for()
    caption = page.locator(".map-box + .caption")
    first, last = caption.evaluate(
        """(element) => {
            const text = element.firstChild;
            const at = text.data.indexOf("Ellipses");
            return [at, at + 7].map((place) => {
                const range = document.createRange();
                range.setStart(text, place);
                range.setEnd(text, place + 1);
                return range.getBoundingClientRect().left;
            });
        }"""
    )
    assert first < last


def test_a_long_name_has_the_room_that_a_drawing_has_for_it(visit: Callable[..., Visit]) -> None:
    page = visit(walk=True).anywhere()
    found = page.evaluate(
        """async (names) => {
            const { fittingText } = await import("/static/dashboard/canvas.js");
            const context = document.createElement("canvas").getContext("2d");
            return names.map((name) => fittingText(context, name, 62))
                .map((text) => [text, context.measureText(text).width]);
        }""",
        ["7", "wide " * 40, "\U0001f600" * 100],
    )
    assert found[0][0] == "7"
    assert all(width <= 62 for _, width in found)
    assert found[1][0].startswith("wide wide")
    assert set(found[2][0]) == {"\U0001f600", "…"}


def test_the_browser_runs_nothing_that_the_page_does_not_hold(visit: Callable[..., Visit]) -> None:
    opened = visit()
    opened.expected = ("Content Security Policy",)
    page = opened.open("/")
    page.locator("h1").wait_for()
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hit = 1";
            document.body.append(script);
            const style = document.createElement("style");
            style.textContent = "body { background: rgb(1, 2, 3) !important }";
            document.body.append(style);
        }"""
    )
    seen = page.evaluate("[window.hit ?? null, getComputedStyle(document.body).backgroundColor]")
    assert seen[0] is None
    assert seen[1] != "rgb(1, 2, 3)"


def test_the_page_needs_no_javascript_to_say_what_to_do(
    visit: Callable[..., Visit], service: RunningService, tmp_path: Path
) -> None:
    opened = visit(java_script_enabled=False)
    page = opened.open("/")
    assert f"'{service.url}/ingest?wait=applied'" in page.locator("pre").inner_text()
    assert page.get_by_role("link", name="API", exact=True).get_attribute("href") == "/docs"
