"""Citations of errata: each names an entry of docs/errata.md, and each entry names files that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/errata.md").read_text()
SOURCES = [path for room in ("core", "service", "tests", "docs") for path in (ROOT / room).rglob("*.*")]
NUMBER = r"\d\.\d+"
CITATION = re.compile(rf"ERRATA\s+({NUMBER}(?:-{NUMBER})?(?:(?:,\s*|\s+and\s+){NUMBER}(?:-{NUMBER})?)*)")


def numbers(cited: str) -> set[str]:
    """Entries of a citation such as "2.1, 2.8 and 3.1-3.4"."""
    found = set()
    for first, last in re.findall(rf"({NUMBER})(?:-({NUMBER}))?", cited):
        paper, start = first.split(".")
        found |= {f"{paper}.{entry}" for entry in range(int(start), int((last or first).split(".")[1]) + 1)}
    return found


def test_each_cited_entry_is_on_the_page() -> None:
    entries = {n for row in re.findall(r"^\| ([\d., ]+) \|", PAGE, re.MULTILINE) for n in numbers(row)}
    cited: dict[str, set[str]] = {}
    for path in SOURCES:
        if path.suffix in (".py", ".md"):
            for match in CITATION.finditer(re.sub(r"\s+", " ", path.read_text())):
                for number in numbers(match.group(1)):
                    cited.setdefault(number, set()).add(str(path.relative_to(ROOT)))
    assert len(cited) > 40
    assert {number: files for number, files in cited.items() if number not in entries} == {}


def test_the_files_that_the_page_names_are_there() -> None:
    named = re.findall(r"`((?:tests/)?[a-z_/]+\.py)`", PAGE)
    names = {str(path.relative_to(ROOT)) for path in SOURCES}
    assert len(named) > 60
    assert [name for name in named if not any(full.endswith(f"/{name}") or full == name for full in names)] == []
