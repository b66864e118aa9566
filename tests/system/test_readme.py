"""The README's tour, as written: its commands are run, and what they print is what the README shows.

`SHOAL_REWRITE_README=1` puts what was printed into the README instead.
"""

import functools
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.preforked import forked_command
from harness.running_service import RunningService
from harness.terminal import in_a_terminal, same, steps
from harness.waiting import eventually
from shoal_service.client import Client

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the tour uses curl; on Debian, as root: apt-get install curl")
def test_the_tour_prints_what_the_readme_says(start_service: Callable[..., RunningService], tmp_path: Path) -> None:
    service = start_service()
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    environment = os.environ | {
        "PATH": f"{forked_command().parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SHOAL_PORT": str(service.port),
        "SHOAL_URL": service.url,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    text = README.read_text()
    wrong = []
    for kind, block in BLOCK.findall(text):
        if kind == "python":
            program = block.replace("http://127.0.0.1:8000", service.url)
            assert in_a_terminal(f"{sys.executable} -W error - <<'END'\n{program}END", tmp_path, environment)
            continue
        fresh = ""
        for command, said in steps(block):
            shown = in_a_terminal(command.replace("http://127.0.0.1:8000", service.url), tmp_path, environment)
            fresh += f"$ {command}\n{shown}"
            eventually(lambda: not refinements_at_work(service.url))  # a person types more slowly than a test
            if not same(shown, said):
                wrong.append(f"$ {command}\n{shown}\n... the README says:\n{said}")
        text = text.replace(block, fresh)
    if os.environ.get("SHOAL_REWRITE_README") == "1":
        README.write_text(text)
        return
    assert not wrong, "\n".join(wrong)


def refinements_at_work(url: str) -> list[str]:
    """States of the refinements that may still change what the next command of the tour prints."""
    with Client(url) as client:
        names = [one.stream for one in client.streams()]
    states = []
    for name in names:
        with Client(url, stream=name) as client:
            states += [one.state for one in client.refinements() if one.state in ("queued", "running")]
    return states


def test_no_document_has_a_blank_left_to_fill_in() -> None:
    for page in [README, *(ROOT / "docs").glob("*.md")]:
        blanks = [line for line in page.read_text().splitlines() if re.fullmatch(r"[A-Z]{3,}", line.strip())]
        assert not blanks, f"{page.name}: {blanks}"


def test_every_link_between_documents_leads_to_a_page_and_a_place() -> None:
    """Places are headings, named as the site names them."""
    checked = 0
    for page in [README, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target, place in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]+))?\)", page.read_text()):
            to = page.parent / target if target else page
            assert to.exists(), f"{page.name} links to {target}"
            checked += 1
            assert not place or to.suffix != ".md" or place in places(to), f"{page.name}: {target}#{place}"
    assert checked > 200


@functools.cache
def places(page: Path) -> set[str]:
    """Names of the headings of a page."""
    from mdit_py_plugins.anchors.index import slugify

    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {slugify(heading.replace("`", "")) for heading in re.findall(r"^#{1,3} (.+)$", text, flags=re.MULTILINE)}
