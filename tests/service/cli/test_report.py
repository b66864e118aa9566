"""`shoal report`: one page that loads nothing, says what the library finds, and can be made again to the byte."""

import csv
import html
import json
import re
import shlex
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from shoal import DPMixture, StreamingDPMixture
from shoal_service.cli import app
from shoal_service.cli.exits import ExitCode

Shoal = Callable[..., Result]
NAMES = ["size $", "<b>heat</b>", "$load$"]
VOID = {"meta", "link", "br", "path", "use", "rect"}
ADDRESSES = ("src", "href", "xlink:href", "srcset", "data", "action", "poster")


class Page(HTMLParser):
    """Texts by section, tables, ids and addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.rows: dict[str, list[list[str]]] = {}
        self.texts: dict[str, str] = {}
        self.code: list[str] = []
        self.pictures: dict[str, str | None] = {}
        self._section = ""
        self._cell: list[str] | None = None
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [given["id"]] if given.get("id") else []
        self.addresses += [value for name, value in attrs if name in ADDRESSES and value]
        self.addresses += re.findall(r"url\(([^)]*)\)", " ".join(value or "" for _, value in attrs))
        if tag == "section":
            self._section = given["id"] or ""
        if tag == "svg":
            self.pictures[self._section] = given.get("aria-label")
        if tag == "tr":
            self.rows.setdefault(self._section, []).append([])
        if tag in ("td", "th"):
            self._cell = []
        if tag == "code":
            self.code.append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self.rows[self._section][-1].append(" ".join("".join(self._cell).split()))
            self._cell = None
        if tag not in VOID:
            assert self._open.pop() == tag  # well-formed

    def handle_data(self, data: str) -> None:
        self.texts[self._section] = self.texts.get(self._section, "") + data
        if self._cell is not None:
            self._cell.append(data)
        if self._open and self._open[-1] == "code":
            self.code[-1] += data


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    """(500, 3) of three groups, the last but one far away from all."""
    rng = np.random.default_rng(6)
    x = np.array([[0, 0, 0], [12, 0, 3], [0, 12, -9]])[rng.integers(3, size=500)] + rng.normal(size=(500, 3))
    x[498] = [60.0, 60.0, 60.0]
    return x.round(6)


@pytest.fixture(scope="module")
def file(points: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "hosts <&> more.csv"
    with path.open("w", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(["host", *NAMES])
        writer.writerows([f"h{i}", *row] for i, row in enumerate(points.tolist()))
    return path


@pytest.fixture(scope="module")
def plain(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page without the stability, for tests that look at it."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    said = CliRunner().invoke(app, ["report", str(file), "-o", str(path), "--key-column", "host", "--no-stability"])
    assert said.exit_code == 0, said.output
    return path


def made(shoal: Shoal, file: Path, folder: Path, *options: object) -> Page:
    said = shoal("report", file, "--output", folder / "page.html", *options)
    assert said.exit_code == 0, said.output
    assert said.stdout.strip() == str(folder / "page.html")
    return Page((folder / "page.html").read_text())


def test_the_page_says_what_the_library_finds(shoal: Shoal, file: Path, points: np.ndarray, tmp_path: Path) -> None:
    page = made(shoal, file, tmp_path, "--key-column", "host", "--anomalies", 5)
    model = StreamingDPMixture().fit(points)
    clusters = model.clusters()
    labels = model.predict(points)
    header, *rows = page.rows["clusters"]
    assert header == ["cluster", "share", "points", "components", "telling features"]
    assert [int(row[0]) for row in rows] == [one.id for one in clusters.clusters]
    assert [int(row[2]) for row in rows] == [int(np.isin(labels, one.components).sum()) for one in clusters.clusters]
    assert [row[3] for row in rows] == [", ".join(map(str, one.components)) for one in clusters.clusters]
    _, *rows = page.rows["components"]
    assert {int(row[0]): int(row[2]) for row in rows} == {
        one: int((labels == one).sum()) for one in model.component_ids_.tolist()
    }
    density = model.score_samples(points)
    header, *rows = page.rows["anomalies"]
    lowest = np.argsort(density, kind="stable")[:5]
    assert [(row[0], row[1], row[2]) for row in rows] == [
        (f"h{i}", f"line {i + 2}", f"{density[i]:.2f}") for i in lowest  # the first line of the file holds the names
    ]  # fmt: skip
    assert rows[0][0] == "h498"
    assert f"{density.mean():.3f} nats" in page.texts["fit"]
    found = model.stability()
    assert f"agree by {found.agreement:.3f}" in page.texts["stability"]
    assert f"their components by {found.component_agreement:.3f}" in page.texts["stability"]


def test_the_page_loads_nothing_and_is_well_formed(plain: Path) -> None:
    text = plain.read_text()
    page = Page(text)
    assert {one for one in page.addresses if not one.startswith(("#", "data:"))} == set()
    assert len(page.ids) == len(set(page.ids))
    assert {one[1:] for one in page.addresses if one.startswith("#")} <= set(page.ids)
    assert not {"script", "img", "iframe", "object", "embed", "b"} & set(page.tags)
    assert re.search(r"https?:|//\w", text.replace("&#x27;", "'")) is None
    assert "default-src &#x27;none&#x27;" in text
    assert set(page.pictures) == {"map", "tree", "course", "lives"}
    assert all(page.pictures.values())  # each is described for readers who do not see it


def test_names_of_columns_and_files_are_shown_as_they_are(plain: Path) -> None:
    page = Page(plain.read_text())
    assert "size $, <b>heat</b>, $load$" in page.texts["fit"]
    assert "<b>heat</b>" in page.texts["map"]  # a name of an axis
    assert "hosts <&> more.csv" in page.texts["fit"]
    assert "It was not measured, as the option --no-stability asks." in page.texts["stability"]


def test_the_command_on_the_page_makes_the_same_page_again(shoal: Shoal, file: Path, tmp_path: Path) -> None:
    page = made(shoal, file, tmp_path, "--key-column", "host", "--clusters", 2, "--no-stability", "--half-life", 400)
    program, *words = shlex.split(page.code[0])
    assert program == "shoal"
    before = (tmp_path / "page.html").read_bytes()
    (tmp_path / "page.html").unlink()
    assert shoal(*words).exit_code == 0
    assert (tmp_path / "page.html").read_bytes() == before
    assert len(page.rows["clusters"]) == 1 + 2
    model = eval(
        page.code[1].split("model = ")[1].removesuffix(".fit(points)"), {"StreamingDPMixture": StreamingDPMixture}
    )
    assert (model.half_life, model.method) == (400, "default")


def test_a_batch_fit_has_its_bound(shoal: Shoal, file: Path, points: np.ndarray, tmp_path: Path) -> None:
    page = made(shoal, file, tmp_path, "--key-column", "host", "--method", "vdp")
    model = DPMixture(random_state=0).fit(points)
    assert f"{model.elbo_:,.2f} nats, exact" in page.texts["fit"]
    assert "agree by " in page.texts["stability"]
    assert set(page.pictures) == {"map", "tree", "course"}
    assert len(page.rows["components"]) == 1 + model.labels_.max() + 1


def test_counts_are_shown_by_their_features_and_auto_says_why(shoal: Shoal, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    topics = rng.dirichlet(np.full(12, 0.1), size=3)
    x = np.array([rng.multinomial(30, topics[rng.integers(3)]) for _ in range(1_010)])
    np.save(tmp_path / "x.npy", x)
    command = ["report", tmp_path / "x.npy", "-o", tmp_path / "x.html", "--no-stability"]
    said = shoal(*command, "--family", "multinomial", "--json")
    assert said.exit_code == 0, said.output
    page, told = Page((tmp_path / "x.html").read_text()), json.loads(said.stdout)
    assert told["family"] == "multinomial"
    assert told["points"] == 1_010
    assert [one["id"] for one in told["clusters"]] == [int(row[0]) for row in page.rows["clusters"][1:]]
    assert page.pictures["map"] == "the telling features of each component"
    assert {row[-1] for row in page.rows["anomalies"][1:]} == {"–"}
    said = shoal(*command, "--family", "auto")
    assert said.exit_code == 0, said.output
    assert "All values are whole numbers" in Page((tmp_path / "x.html").read_text()).texts["fit"]


def test_columns_of_several_kinds_are_named_and_the_code_runs(shoal: Shoal, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    kind = rng.integers(2, size=300)
    x = np.column_stack([9.0 * kind + rng.normal(size=300), rng.poisson(np.array([1, 30])[kind])])
    np.savetxt(tmp_path / "x.csv", x, delimiter=",", header="cpu,errors", comments="")
    families = '{"cpu": "gaussian", "errors": "poisson"}'
    said = shoal("report", tmp_path / "x.csv", "-o", tmp_path / "x.html", "--no-stability", "--family", families)
    assert said.exit_code == 0, said.output
    page = Page((tmp_path / "x.html").read_text())
    assert "gaussian for cpu; poisson for errors" in page.texts["fit"]
    code = re.search(r"model = .*\.fit\(points\)", html.unescape((tmp_path / "x.html").read_text()))
    assert code is not None
    found: dict[str, Any] = {"points": x, "StreamingDPMixture": StreamingDPMixture}
    exec(code[0], found)
    assert found["model"].n_features_in_ == 2
    assert len(found["model"].weights_) == len(page.rows["components"]) - 1


def test_one_component_and_one_feature_make_a_page(shoal: Shoal, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(30, 1)))
    page = made(shoal, tmp_path / "x.npy", tmp_path, "--clusters", 1, "--anomalies", 0, "--method", "sva")
    assert "None were asked for" in page.texts["anomalies"]
    assert len(page.rows["clusters"]) == 1 + 1


def test_help_does_not_promise_stdin(shoal: Shoal) -> None:
    assert "reads stdin" not in " ".join(shoal("report", "--help").stdout.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-"], "reads its file twice"),
        (["x.npy", "--output", "/no/such/folder/r.html"], "does not exist"),
        (["x.npy", "--output", "x.npy"], "is the file that is read"),
        (["x.npy", "--clusters", "2", "--resolution", "1"], "give one of them"),
        (["x.npy", "--refine", "--method", "vdp"], "--refine is for one-pass methods"),
        (["missing.npy"], "cannot read missing.npy"),
    ],
)
def test_what_cannot_be_reported_is_refused_in_one_line(
    shoal: Shoal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((30, 2)))
    said = shoal("report", *options)
    assert said.exit_code == ExitCode.USAGE
    assert message in said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert not Path("report.html").exists()


def test_without_matplotlib_the_extra_is_named_before_the_fit(
    shoal: Shoal, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = shoal("report", file)
    assert said.exit_code == ExitCode.USAGE
    assert "pip install 'shoal[plot]'" in said.stderr
