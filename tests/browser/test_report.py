"""The page of `shoal report` in Chromium: no complaint, no request, accessible, and readable in every look."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from browser.conftest import SCREENSHOTS
from browser.test_views import LOOKS
from harness.browser import Tab, Visit, new_context
from shoal_service.cli import app

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(8)
    x = np.array([[0, 0, 0], [12, 0, 3], [0, 12, -9]])[rng.integers(3, size=240)] + rng.normal(size=(240, 3))
    np.save(folder / "x.npy", x)
    said = CliRunner().invoke(app, ["report", str(folder / "x.npy"), "-o", str(folder / "report.html"), "-n", "2"])
    assert said.exit_code == 0, said.output
    return folder / "report.html"


def test_a_report_is_accessible_and_asks_for_nothing(browser: Any, page_file: Path) -> None:
    address = page_file.as_uri()
    tab = Tab(new_context(browser, bypass_csp=True))  # its policy forbids scripts, and axe-core is one
    visit = Visit(tab, address)
    visit.page.goto(address)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for look, (size, scheme) in LOOKS.items():
        visit.page.set_viewport_size(size)
        visit.page.emulate_media(color_scheme=scheme)
        visit.page.screenshot(path=SCREENSHOTS / f"report-{look}.png", full_page=True)
        assert visit.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{look} scrolls"
        assert visit.violations() == [], look
    assert [url for url in visit.requested if not url.startswith("data:")] == [address]
    visit.close()


def test_pictures_take_the_colours_of_the_scheme(browser: Any, page_file: Path) -> None:
    """And the policy of the page as it stands lets them."""
    visit = Visit(Tab(new_context(browser)), page_file.as_uri())
    page = visit.page
    page.goto(page_file.as_uri())
    colour = "() => getComputedStyle(document.querySelector('#map svg text')).fill"
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    assert (light, page.evaluate(colour)) == ("rgb(28, 32, 38)", "rgb(232, 234, 237)")
    visit.close()
