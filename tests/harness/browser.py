"""Headless Chromium for tests of web pages, and what it noticed while a page was open."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
VENDOR = Path(__file__).parents[1] / "vendor"
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 800}

ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-software-rasterizer"]
"""Without its sandbox, which needs rights that a container often lacks: only our own pages are opened. Without an
imitation of a graphics card, which costs a quarter of the processor time of a page: no page uses WebGL."""


def chromium_path() -> str:
    """The browser on the path. Skips the test where there is none, or nothing to drive it."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.skip("needs Chromium on the path (Debian, as root: apt-get install chromium)")
    pytest.importorskip("playwright", reason="needs the package playwright, which make test installs")
    return found


@contextmanager
def running_browser() -> Iterator[Any]:
    """A browser with one process for everything that it shows."""
    path = chromium_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def new_context(browser: Any, **settings: Any) -> Any:
    """What pages share: settings, cookies, and a cache of the files that they have read and compiled."""
    return browser.new_context(**{"viewport": DESK, "reduced_motion": "reduce", **settings})


class Tab:
    """A page that visits use one after another."""

    def __init__(self, context: Any) -> None:
        self.visit: Visit | None = None
        """Who uses it now."""
        self.context = context
        self.page = context.new_page()
        self.page.set_default_timeout(120_000)
        self.page.on("console", lambda message: self._heard(message.type, message.text))
        self.page.on("pageerror", lambda error: self._heard("error", str(error)))
        self.page.on("request", lambda request: self.visit and self.visit.requested.append(request.url))

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and self.visit is not None:
            self.visit.complaints.append(text)

    def share(self) -> None:
        """Refuse from now on what would stay in the page after a visit."""

        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("what a visit adds to a page for good needs a page of its own: visit(own=True)")

        for lasting in ("add_init_script", "expose_function", "expose_binding", "on"):
            setattr(self.page, lasting, refuse)

    def leave(self) -> None:
        """Forget what the visit has kept, but keep the document: the next visit can go on from there."""
        if self.page.url.startswith("http"):
            self.page.evaluate("localStorage.clear(), sessionStorage.clear()")
        self.visit = None
        self.page.unroute_all(behavior="ignoreErrors")
        self.context.clear_cookies()
        self.page.set_viewport_size(DESK)
        self.page.emulate_media(color_scheme="light", reduced_motion="reduce")

    def empty(self) -> None:
        """End what visits have begun."""
        if self.page.url != "about:blank":
            self.page.goto("about:blank")


class Visit:
    """One page of a service, with what a reader of its console and of its requests would see."""

    def __init__(self, tab: Tab, url: str) -> None:
        self.url = url
        self.complaints: list[str] = []
        self.requested: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Parts of complaints that belong to the test."""
        self._tab = tab
        tab.visit = self
        self.page = tab.page

    def open(self, where: str) -> Any:
        """Open a place of the dashboard, given by what follows `#`."""
        self.page.goto(f"{self.url}/#{where}")
        return self.page

    def anywhere(self) -> Any:
        """The page at whatever place of the dashboard it is: for tests of single modules."""
        return self.page if self.page.url.startswith(self.url) else self.open("/")

    def close(self) -> None:
        """End the visit. Fails if the page complained, or asked another host for anything."""
        self._tab.leave()
        bad = [text for text in self.complaints if not any(part in text for part in self.expected)]
        assert not bad, bad
        elsewhere = [url for url in self.requested if not url.startswith((self.url, "data:", "blob:"))]
        assert not elsewhere, elsewhere

    def violations(self) -> list[str]:
        """What axe-core finds wrong with the page for people who use assistive technology."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate((VENDOR / "axe-core" / "axe.min.js").read_text())
        found = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {one['help']} at {[node['html'][:120] for node in one['nodes'][:3]]}"
            for one in found["violations"]
        ]
