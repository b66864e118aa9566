"""The view of sources: what it tells of each, what a person can do there, and words where it is not allowed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.conftest import SCREENSHOTS, dashboard, put
from browser.test_views import LOOKS
from harness.browser import Visit
from harness.running_service import RunningService
from harness.waiting import eventually
from harness.web import WEB

pytestmark = pytest.mark.system

ATTACK = '<img src=x onerror="window.hit=1">.ndjson'
ADMIN = "the-admin-key-of-these-tests"
BEARER = {"Authorization": f"Bearer {ADMIN}"}


@pytest.fixture(scope="module")
def service(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with the stream `gauge`, that reads no files."""
    with dashboard(tmp_path_factory) as running:
        put(running, "gauge", n_features=6)
        yield running


@pytest.fixture(scope="module")
def reading(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service that may read files and connect anywhere, with the streams `one` and `two`."""
    folder = tmp_path_factory.mktemp("reading")
    files = folder / "files"
    files.mkdir()
    (files / "rows.ndjson").write_text("[0, 1]\n[2, 3]\n[4, 5]\n")
    (files / ATTACK).write_text('["no"]\n')
    running = RunningService(folder / "data", {"source_files": files, "source_allow_private": True})
    running.start()
    try:
        for name in ("one", "two"):
            WEB.put(f"{running.url}/streams/{name}", json={"n_features": 2}).raise_for_status()
        yield running
    finally:
        running.kill()


@pytest.fixture
def look(visit: Callable[..., Visit], reading: RunningService) -> Callable[[str], Visit]:
    def start(stream: str) -> Visit:
        made = visit(at=reading.url)
        made.open(f"/s/{stream}/sources")
        made.page.get_by_role("button", name="Add a source").wait_for()
        return made

    return start


def shown(service: RunningService, stream: str, headers: Any = None) -> dict[str, Any]:
    told = WEB.get(f"{service.url}/streams/{stream}/sources", headers=headers).raise_for_status().json()
    return {one["name"]: one for one in told["configured"]}


def form(page: Any, kind: str, name: str) -> Any:
    """The open form for a source of a kind."""
    page.get_by_role("button", name="Add a source").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill(name)
    dialog.get_by_label("Kind").select_option(kind)
    return dialog


def test_a_source_is_added_paused_by_keyboard_resumed_and_deleted(
    look: Callable[[str], Visit], reading: RunningService
) -> None:
    visit = look("one")
    page = visit.page
    page.locator(".empty:text('reads no source')").wait_for()
    dialog = form(page, "file", "rows")
    assert visit.violations() == []
    page.screenshot(path=SCREENSHOTS / "source-form-light.png")
    dialog.get_by_label("path", exact=True).fill("rows.ndjson")
    page.keyboard.press("Enter")
    row = page.locator("tbody tr", has=page.locator("th:text-is('rows')"))
    row.locator("td:text-is('3')").wait_for()
    row.locator(".state-running").wait_for()
    told = shown(reading, "one")["rows"]
    cells = row.locator("td").all_inner_texts()
    assert cells[0].split("\n") == ["file: rows.ndjson", f"rows.ndjson at {told['positions'][0]['position']}"]
    WEB.put(f"{reading.url}/streams/one/sources/hostile", json={"kind": "file", "path": ATTACK}).raise_for_status()
    failed = page.locator("tr", has_text=ATTACK)
    failed.locator(".state-failed").wait_for()
    assert "It is tried again" in failed.locator(".error").inner_text()
    assert page.evaluate("[window.hit ?? null, document.querySelectorAll('main img').length]") == [None, 0]
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for name, (size, scheme) in LOOKS.items():
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=SCREENSHOTS / f"sources-{name}.png")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{name} scrolls sideways"
        assert visit.violations() == [], name

    row.get_by_role("button", name="Pause rows").focus()
    page.keyboard.press("Enter")
    row.get_by_role("button", name="Resume rows").wait_for()
    row.locator(".state-stopped", has_text="paused").wait_for()
    assert shown(reading, "one")["rows"]["enabled"] is False
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Resume rows"
    page.keyboard.press("Enter")
    row.locator(".state-running").wait_for()
    row.get_by_role("button", name="Delete rows").click()
    page.get_by_role("button", name="Cancel").click()
    row.get_by_role("button", name="Delete rows").click()
    question = page.get_by_role("dialog", name="Delete rows?")
    assert question.get_by_role("button", name="Delete the source").is_disabled()
    assert visit.violations() == []
    question.get_by_label("Type rows to go on").fill("rows")
    page.keyboard.press("Enter")
    row.wait_for(state="detached")
    assert set(shown(reading, "one")) == {"hostile"}
    told = WEB.get(f"{reading.url}/streams/one/sources").json()
    assert [one for one in told["sources"] if one["source"] == "rows"] == []


def test_the_form_of_each_kind_sends_what_was_entered(look: Callable[[str], Visit], reading: RunningService) -> None:
    visit = look("two")
    visit.expected = ("400",)
    page = visit.page
    dialog = form(page, "redis-stream", "entries")
    dialog.get_by_label("redis_url", exact=True).fill("SHOAL_SOURCE_SECRET_ENTRIES")
    dialog.get_by_label("keys", exact=True).fill("a, b ,c")
    dialog.get_by_label("format", exact=True).select_option("float32")
    dialog.locator("summary").click()
    dialog.get_by_label("batch_size", exact=True).fill("50")
    dialog.get_by_label("entry_time", exact=True).select_option("true")
    dialog.get_by_label("enabled", exact=True).select_option("false")
    dialog.get_by_role("button", name="Add the source").click()
    page.locator("td", has_text="Redis streams: a, b, c").wait_for()
    made = shown(reading, "two")["entries"]
    told = {"redis_url": {"env": "SHOAL_SOURCE_SECRET_ENTRIES"}, "keys": ["a", "b", "c"], "format": "float32"}
    told |= {"batch_size": 50, "entry_time": True, "from": "0-0", "on_bad": "stop", "key_field": None}
    assert {name: made["settings"][name] for name in told} == told
    assert (made["kind"], made["enabled"]) == ("redis-stream", False)

    dialog = form(page, "kafka", "topic")
    dialog.get_by_label("brokers", exact=True).fill("127.0.0.1:9")
    dialog.get_by_label("topics", exact=True).fill("readings")
    dialog.locator("summary").click()
    dialog.get_by_label("set", exact=True).fill(
        "security.protocol = sasl_ssl\nsasl.password=SHOAL_SOURCE_SECRET_K\nsasl.username=a=b"
    )
    dialog.get_by_label("enabled", exact=True).select_option("false")
    dialog.get_by_role("button", name="Add the source").click()
    page.locator("td", has_text="Kafka: readings").wait_for()
    made = shown(reading, "two")["topic"]["settings"]
    assert (made["brokers"], made["topics"], made["message_key"]) == ("127.0.0.1:9", ["readings"], False)
    secret = {"env": "SHOAL_SOURCE_SECRET_K"}
    assert made["set"] == {"security.protocol": "sasl_ssl", "sasl.password": secret, "sasl.username": "a=b"}

    dialog = form(page, "parquet", "topic")
    dialog.get_by_label("folder", exact=True).fill("exports")
    dialog.get_by_role("button", name="Add the source").click()
    dialog.locator(".error", has_text="There is a source topic already").wait_for()
    dialog.get_by_label("Name", exact=True).fill("exports")
    dialog.get_by_label("folder", exact=True).fill("../exports")
    dialog.get_by_role("button", name="Add the source").click()
    dialog.locator(".error", has_text="send a path relative to the folder").wait_for()
    page.keyboard.press("Escape")
    assert set(shown(reading, "two")) == {"entries", "topic"}


def test_the_positions_of_other_connectors_are_told(look: Callable[[str], Visit], reading: RunningService) -> None:
    step = {"source": "by-itself", "partition": "p-7", "position": "41"}
    WEB.post(f"{reading.url}/streams/two/ingest", params=step, json={"points": [[0, 0]]}).raise_for_status()
    visit = look("two")
    table = visit.page.get_by_role("region", name="Connectors that run by themselves")
    table.wait_for()
    cells = table.locator("tbody tr").locator("th, td").all_inner_texts()
    assert cells == ["by-itself", "p-7", "41", "1"]
    assert visit.violations() == []


def test_a_service_that_reads_no_files_says_so_in_the_form(
    visit: Callable[..., Visit], service: RunningService
) -> None:
    opened = visit()
    opened.expected = ("400",)
    page = opened.open("/s/gauge/sources")
    page.locator(".empty:text('reads no source')").wait_for()
    dialog = form(page, "file", "rows")
    dialog.get_by_label("path", exact=True).fill("rows.ndjson")
    dialog.get_by_role("button", name="Add the source").click()
    dialog.locator(".error", has_text="This server reads no files for sources").wait_for()
    dialog.get_by_label("Kind").select_option("redis-stream")
    dialog.get_by_label("redis_url", exact=True).fill("redis://127.0.0.1")
    dialog.get_by_label("keys", exact=True).fill("k")
    assert dialog.locator(".error").is_hidden()
    dialog.get_by_role("button", name="Add the source").click()
    dialog.locator(".error", has_text="a private address").wait_for()
    assert opened.violations() == []
    assert shown(service, "gauge") == {}


@pytest.fixture
def guarded(browser: Any, tmp_path: Path) -> Iterator[RunningService]:
    """A service that needs keys."""
    running = RunningService(tmp_path / "data", {"admin_key": ADMIN})
    running.start()
    try:
        yield running
    finally:
        running.kill()


def test_a_key_that_may_only_read_sees_sources_and_is_told_what_it_may_not_do(
    guarded: RunningService, visit: Callable[..., Visit]
) -> None:
    WEB.put(f"{guarded.url}/streams/s", json={"n_features": 2}, headers=BEARER).raise_for_status()
    body = {"kind": "redis-stream", "redis_url": "redis://:hush@example.invalid", "keys": ["k"], "enabled": False}
    WEB.put(f"{guarded.url}/streams/s/sources/readings", json=body, headers=BEARER).raise_for_status()
    key = WEB.post(f"{guarded.url}/keys", json={"name": "eyes", "scope": "read"}, headers=BEARER).json()["key"]
    opened = visit(own=True, at=guarded.url)
    opened.expected = ("403",)
    opened.page.add_init_script(f"sessionStorage.setItem('shoal.key', '{key}')")
    page = opened.open("/s/s/sources")
    page.get_by_role("button", name="Resume readings").click()
    page.locator(".stack > .error", has_text="The key may not do this").wait_for()
    assert "hush" not in page.content()
    assert opened.violations() == []
    page.get_by_role("button", name="Delete readings").click()
    page.get_by_label("Type readings to go on").fill("readings")
    page.keyboard.press("Enter")
    page.locator(".stack > .error", has_text="The key may not do this").wait_for()
    dialog = form(page, "redis-stream", "more")
    dialog.get_by_label("redis_url", exact=True).fill("redis://example.org")
    dialog.get_by_label("keys", exact=True).fill("k")
    dialog.get_by_role("button", name="Add the source").click()
    dialog.locator(".error", has_text="The key may not do this").wait_for()
    eventually(lambda: shown(guarded, "s", BEARER)["readings"]["enabled"] is False)
