"""The documents as a site: no warning, every link within it leads somewhere, nothing comes from another host.

`test_readme.py` follows the links between the pages without the site, in less time.
"""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = [pytest.mark.system, pytest.mark.slow]

DOCS = Path(__file__).parents[2] / "docs"
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""Elements that a browser loads by itself, and the attribute with the address."""


class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADED.get(tag, "") in given:
            self.loads.append(given[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    out = tmp_path_factory.mktemp("site")
    # Half of the time. Missing are the lists of functions beside a page, and the types in signatures with their links.
    quick = ["-D", "toc_object_entries=0", "-D", "autodoc_typehints=none"]
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", *quick, str(DOCS), str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {path.resolve(): Page(path) for path in out.rglob("*.html")}


def test_every_page_is_in_the_site(site: dict[Path, Page]) -> None:
    """Sphinx warns about a page that no list of pages names, so only the count is left to say."""
    pages = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md") if "examples" not in path.parts}
    root = next(path.parent for path in site if path.name == "genindex.html")
    assert {path.relative_to(root).with_suffix("") for path in site} >= pages
    assert len(pages) > 20


def test_every_link_within_the_site_leads_to_a_page_and_a_place(site: dict[Path, Page]) -> None:
    broken = []
    checked = 0
    for path, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            checked += 1
            if not target.exists():
                broken.append(f"{path.name}: {link}")
            elif parts.fragment and target in site and unquote(parts.fragment) not in site[target].anchors:
                broken.append(f"{path.name}: {link} has no such place")
    assert broken == []
    assert checked > 1000


def test_links_from_outside_the_site_lead_to_a_place_in_its_pages(site: dict[Path, Page]) -> None:
    """Those of the README and of CONTRIBUTING, which the site does not hold."""
    places = {path.stem: page.anchors for path, page in site.items() if path.parent.name != "reference"}
    checked = 0
    for name in ("README.md", "CONTRIBUTING.md"):
        for target, place in re.findall(r"\]\(docs/([a-z-]+)\.md(?:#([\w-]+))?\)", (DOCS.parent / name).read_text()):
            checked += 1
            assert target in places, f"{name}: docs/{target}.md"
            assert not place or place in places[target], f"{name}: docs/{target}.md#{place}"
    assert checked > 20


def test_a_page_loads_nothing_from_another_host(site: dict[Path, Page]) -> None:
    foreign = {load for page in site.values() for load in page.loads if urlsplit(load).netloc}
    assert foreign == set()
    assert any(page.loads for page in site.values())


def test_the_reference_is_that_of_the_programs(site: dict[Path, Page]) -> None:
    text = {path.name: path.read_text(encoding="utf-8") for path in site}
    assert "shoal dead-letters requeue" in text["commands.html"]
    assert "POST /ingest" in text["routes.html"]
    assert "shoal.StreamingDPMixture.partial_fit" in text["library.html"]
