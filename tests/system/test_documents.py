"""Every code block of the documents is run, or says why not. What a block prints is what the page shows after it.

The README, the tutorial and the programs of docs/examples have tests of their own. Here the other pages are run: the
commands of a page in one shell against one service, its Python in this process. `SHOAL_REWRITE_DOCS=1` puts what
`console` blocks printed into the pages instead.
"""

import contextlib
import functools
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from harness.preforked import forked_command
from harness.running_service import RunningService
from harness.terminal import in_a_terminal, same, steps
from harness.web import WEB
from shoal_service.client import Client
from shoal_service.problems import KINDS

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^( *)```([a-z]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
RUN = ("python", "sh", "bash", "console")
ELSEWHERE = {"README.md": "test_readme.py", "tutorial.md": "test_tutorial.py"}
"""Pages that have a test of their own."""
NEEDS_DOCKER = "needs a Docker engine: docker/try_compose.py runs it there"
NOT_RUN = {
    ("CONTRIBUTING.md", "make test"): "this is that command",
    ("index.md", "make serve"): "the README has the same two commands; CI runs make test",
    ("deployment.md", "shoal serve --store redis"): "four servers that do not end: test_redis_roles.py starts them",
    (
        "deployment.md",
        "redis-server --bind",
    ): "a server that does not end: harness/redis_server.py has the same settings",
    ("deployment.md", "docker compose up"): NEEDS_DOCKER,
    ("deployment.md", "docker build"): NEEDS_DOCKER,
    ("past-one-machine.md", "shoal serve --store redis"): "servers that do not end: test_redis_roles.py starts them",
    ("grafana.md", "docker compose --profile watch"): "needs a Docker engine: test_watching.py tries what it starts",
    (
        "grafana.md",
        "promtool check config",
    ): "needs the key where the file says it is: test_watching.py runs Prometheus",
    ("grafana.md", "shoal keys create"): "needs the admin key: test_watching.py runs the same command, with one",
    ("grafana.md", "pip install"): "installs packages",
    ("sql.md", "shoal export events"): "test_python_of_a_page runs them, since the Python reads what they write",
    ("past-one-machine.md", "from shoal import DPMixture"): "files and worker processes: tests/core/offline has them",
    ("past-one-machine.md", "shoal fit 'readings"): "the same on the command line: test_fit_dataset.py does it",
    ("sources.md", "pip install"): "installs packages, and needs a Kafka broker: test_connect_kafka.py has one",
    ("libraries.md", "from bertopic import BERTopic"): "needs BERTopic: test_bertopic.py makes its calls",
    ("libraries.md", "import arviz"): "needs the extra arviz: test_arviz.py has the same calls",
    ("operating.md", "shoal keys create"): "a server that does not end: test_access_keys.py has the same commands",
}
"""Blocks that are not run, by page and first words, with the reason."""


ENDLESS = re.compile(r"--follow\b|\btail -F\b|\bshoal connect redis-stream\b")
"""Commands that wait for more. test_connect_files.py, test_connect_redis.py and test_kill_connect.py start them."""


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    kind: str
    text: str
    printed: str | None
    """The block of `text` that follows a block of Python."""


def blocks(page: Path) -> list[Block]:
    found = list(FENCE.finditer(page.read_text()))
    made = []
    for i, match in enumerate(found):
        indent, kind, text = match.groups()
        after = found[i + 1] if i + 1 < len(found) else None
        shows = after is not None and after[2] == "text" and not page.read_text()[match.end() : after.start()].strip()
        text = "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))
        made.append(Block(page.name, kind, text, after[3] if after is not None and shows else None))
    return made


PAGES = {page.name: blocks(page) for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]}


def reason(block: Block) -> str | None:
    """Why a block is not run here. None where it is."""
    if block.page in ELSEWHERE:
        return ELSEWHERE[block.page]
    found = [why for (page, words), why in NOT_RUN.items() if page == block.page and block.text.startswith(words)]
    if block.kind == "console" and all(re.match(r"python docs/examples/\w+\.py$", one) for one, _ in steps(block.text)):
        return "test_examples.py"  # what these print is compared there
    if block.kind in ("sh", "bash") and ENDLESS.search(block.text):
        return "it does not end"
    return found[0] if found else None


def run_here(*kinds: str) -> dict[str, list[Block]]:
    """The blocks of these kinds that are run here, by page."""
    chosen = {
        page: [one for one in found if one.kind in kinds and reason(one) is None] for page, found in PAGES.items()
    }
    return {page: found for page, found in chosen.items() if found}


def points(n: int = 600, features: int = 2, clusters: int = 5) -> np.ndarray:
    """Points of clusters in a row."""
    rng = np.random.default_rng(0)
    return np.asarray(12.0 * (np.arange(n) % clusters)[:, None] * np.eye(1, features) + rng.normal(size=(n, features)))


# -- what is run, and what is not


def test_every_reason_belongs_to_a_block_and_every_kind_of_block_is_known() -> None:
    for page, words in NOT_RUN:
        assert [one for one in PAGES[page] if one.kind in RUN and one.text.startswith(words)], (page, words)
    kinds = {one.kind for found in PAGES.values() for one in found}
    assert kinds <= {*RUN, "json", "yaml", "text", ""}  # test_watching.py checks the block of YAML
    assert sum(map(len, run_here(*RUN).values())) > 20


def test_examples_that_are_only_shown_are_run_by_their_own_test() -> None:
    tested = (ROOT / "tests" / "system" / "test_examples.py").read_text()
    for found in PAGES.values():
        for block in (one for one in found if one.kind == "console" and reason(one) == "test_examples.py"):
            for command, _ in steps(block.text):
                assert f'"{command.rsplit("/", 1)[1]}"' in tested, command


@pytest.mark.parametrize("page", [page for page, found in PAGES.items() if any(one.kind == "json" for one in found)])
def test_blocks_of_json_are_json(page: str) -> None:
    for block in PAGES[page]:
        if block.kind == "json":
            assert isinstance(json.loads(block.text), dict)


def test_problems_that_the_troubleshooting_names_exist_with_their_status() -> None:
    named = re.findall(r"\b([45]\d\d) `([a-z-]+)`", (DOCS / "troubleshooting.md").read_text())
    assert len(named) > 8
    assert {(int(status), slug) for status, slug in named} <= {(kind.status, kind.slug) for kind in KINDS.values()}


# -- Python

EXTRAS = {
    "export.md": ("onnx", "onnx"),
    "libraries.md": ("river", "river"),
    "plots.md": ("matplotlib", "plot"),
    "sql.md": ("duckdb", "dev"),
}
"""Package that a page needs, and the extra that brings it."""
GIVEN: dict[str, Any] = {
    "x": points(1_500),
    "points": points(),
    "new": points(20),
    "held_out": points(50),
    "N": 1_500,
    "rows": [{"cpu": 0.1 * (i % 7), "mem": 1.0 * (i % 3)} for i in range(40)],
}
"""Names that pages use without defining them."""


@pytest.mark.parametrize("page", run_here("python"))
def test_python_of_a_page(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: RunningService) -> None:
    monkeypatch.chdir(tmp_path)
    given = dict(GIVEN)
    if page == "embeddings.md":
        given["x"] = np.asarray(points(1_500, 64) / np.linalg.norm(points(1_500, 64), axis=1, keepdims=True))
    if page == "clusters.md":
        given["x"] = points(1_500, clusters=12)
    if page in ("clusters.md", "embeddings.md"):
        from shoal import StreamingDPMixture

        given["StreamingDPMixture"] = StreamingDPMixture
    if page == "records.md":
        given["Client"] = functools.partial(Client, service.url)
        given["event"] = prepared_event(service)
    with contextlib.ExitStack() as stack:
        skip_without_its_extra(page)
        if page == "plots.md":
            stack.enter_context(without_windows())
        if page == "sql.md":  # its Python reads what its commands wrote
            program = "".join(one.text for one in PAGES[page] if one.kind == "sh")
            run_program(program, service, tmp_path, environment(service))
        for block in run_here("python")[page]:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                text = at(service, block.text)
                exec(compile(text, f"{page}: {block.text.splitlines()[0]}", "exec"), given)
            if block.printed is not None:
                assert same(printed.getvalue(), block.printed), printed.getvalue()
    if page == "sql.md":
        check_records_by_sql(given, service)


def check_records_by_sql(given: dict[str, Any], service: RunningService) -> None:
    """The numbers of records that SQL has found are those of the service."""
    with Client(service.url, stream="web") as client:
        found = {row[0]: row[-1] for row in given["sizes"].fetchall()}
        assert sum(found.values()) >= 600
        assert found == {one.id: len(client.component_records(one.id, limit=None)) for one in client.components()}


def skip_without_its_extra(page: str) -> None:
    if page in EXTRAS and importlib.util.find_spec(EXTRAS[page][0]) is None:
        pytest.skip(f"needs the extra {EXTRAS[page][1]}: pip install 'shoal[{EXTRAS[page][1]}]'")


@contextlib.contextmanager
def without_windows() -> Iterator[None]:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    try:
        yield
    finally:
        plt.close("all")


def prepared_event(service: RunningService) -> Any:
    """An event of the stream `logs`, which has four components and the records that the page names."""
    with Client(service.url, stream="logs") as client:
        keys = ["host-7/12:00", "host-8/12:00", *(f"k{i}" for i in range(598))]
        client.ingest(points(), keys=keys, create=True)
        client.components(min_offset=600)
        return next(iter(client.events(after="0")))


# -- commands


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """One service, with the streams that the pages speak of."""
    made = RunningService(tmp_path_factory.mktemp("documents") / "data", {"webhook_allow_private": "true"})
    made.start()
    try:
        with Client(made.url) as client:
            keys = [f"host-{i}/11:00" for i in range(600)]
            client.ingest(points(), keys=keys, create=True)
            for stream in ("web", "s", "sensors"):
                with Client(made.url, stream=stream) as other:
                    other.ingest(points(), keys=keys if stream == "web" else None, create=True)
            client.components(min_offset=600)
        yield made
    finally:
        made.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder in which commands run: a copy of the examples, and the files that the pages name."""
    shutil.copytree(DOCS / "examples", tmp_path / "docs" / "examples")
    rows = "\n".join(f"h{i},2026-01-31T12:00:{i:02d}Z,warn,eu,1,{i % 7},{i % 5}.5" for i in range(40))
    (tmp_path / "hosts.csv").write_text(f"host,at,level,zone,n,cpu,mem\n{rows}\n")
    sensors = "\n".join(f"host-{i},{x:.3f},{y:.3f}" for i, (x, y) in enumerate(points()))
    (tmp_path / "sensors.csv").write_text(f"host,cpu,mem\n{sensors}\n")
    return tmp_path


def environment(service: RunningService) -> dict[str, str]:
    made = os.environ | {
        "PATH": f"{forked_command().parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SHOAL_PORT": str(service.port),
        "ADMIN_KEY": "none",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    for name in ("SHOAL_URL", "SHOAL_API_KEY", "SHOAL_STREAM"):
        made.pop(name, None)
    return made


def at(service: RunningService, text: str) -> str:
    """A text of a page, with the address of this service in the place of the usual one."""
    return re.sub(r"(localhost|127\.0\.0\.1):8000", f"127.0.0.1:{service.port}", text)


needs_curl = pytest.mark.skipif(
    shutil.which("curl") is None, reason="the pages use curl; on Debian, as root: apt-get install curl"
)


def run_program(program: str, service: RunningService, folder: Path, settings: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", at(service, program)],
        cwd=folder,
        env=settings,
        timeout=600,  # commands that end; a loaded machine may give them a tenth of a processor
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_curl
@pytest.mark.parametrize("page", run_here("sh", "bash"))
def test_commands_of_a_page(page: str, service: RunningService, folder: Path) -> None:
    skip_without_its_extra(page)
    streams = {"formats.md": "machines"}
    program = "".join(one.text for one in run_here("sh", "bash")[page]).replace("curl ", "curl -sS --fail-with-body ")
    settings = environment(service)
    if page == "sources.md":  # the page speaks of the second batch of a partition
        path = "/streams/s/ingest?source=orders&partition=3&position=120"
        WEB.post(service.url + path, json={"points": [[1.0, 2.0]]}).raise_for_status()
    if page == "records.md":  # its file has a time and two features
        lines = [f"2026-01-31T12:00:{i:02d}Z,{i % 7},{i % 5}.5" for i in range(40)]
        (folder / "hosts.csv").write_text("\n".join(["at,cpu,mem", *lines, ""]))
    if page in streams:
        WEB.put(f"{service.url}/streams/{streams[page]}", json={"n_features": 2}).raise_for_status()
        settings["SHOAL_STREAM"] = streams[page]
    run_program(program, service, folder, settings)


@needs_curl
@pytest.mark.parametrize("page", run_here("console"))
def test_console_of_a_page_prints_what_it_shows(page: str, service: RunningService, folder: Path) -> None:
    text = (DOCS / page).read_text()
    wrong = []
    for block in run_here("console")[page]:
        fresh = ""
        for command, said in steps(block.text):
            shown = in_a_terminal(at(service, command), folder, environment(service))
            fresh += f"$ {command}\n{shown}"
            if not same(shown, said):
                wrong.append(f"$ {command}\n{shown}\n... the page says:\n{said}")
        text = text.replace(block.text, fresh)
    if os.environ.get("SHOAL_REWRITE_DOCS") == "1":
        (DOCS / page).write_text(text)
        return
    assert not wrong, "\n".join(wrong)
