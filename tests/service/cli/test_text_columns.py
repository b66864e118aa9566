"""Texts of categories in files, against the real service and in the library."""

import csv
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_shoal import Deliver
from typer.testing import Result

from harness.short_form import longer
from shoal import StreamingDPMixture

Shoal = Callable[..., Result]
NAMES = ["cpu", "errors", "region"]
REGIONS = ["eu-west", "us-east", "10"]
FAMILY = '{"cpu":"gaussian","errors":"poisson","region":"categorical"}'
STREAMS = itertools.count()
SETTINGS = f"feature_names={json.dumps(NAMES)}", f"family={FAMILY}", "warmup_points=40"


def rows(n: int = 60) -> list[list[Any]]:
    rng = np.random.default_rng(3)
    return [
        [20.0 * (i % 2) + float(rng.normal()), int(rng.poisson(2 + 30 * (i % 2))), REGIONS[i % 2 + (i % 4 == 3)]]
        for i in range(n)
    ]


def numbers() -> list[list[float]]:
    return [[cpu, errors, REGIONS.index(region)] for cpu, errors, region in rows()]


def written(path: Path, table: list[list[Any]], *, order: tuple[int, ...] = (0, 1, 2)) -> Path:
    """A table in a file; its suffix says how."""
    names, table = [NAMES[i] for i in order], [[row[i] for i in order] for row in table]
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([names, *table])
    elif path.suffix == ".ndjson":
        lists = path.stem.startswith("lists")
        lines = table if lists else [dict(zip(names, row, strict=True)) for row in table]
        path.write_text("\n".join(map(json.dumps, lines)))
    else:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        columns = {name: pa.array(list(values)) for name, values in zip(names, zip(*table, strict=True), strict=True)}
        if path.stem.startswith("coded"):
            columns = {name: v.dictionary_encode() if name == "region" else v for name, v in columns.items()}
        found = pa.table(columns)
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(found, path)
        else:
            with pa.ipc.new_file(str(path), found.schema) as out:
                out.write_table(found)
    return path


@pytest.fixture
def asked(shoal: Shoal, serve_on_loopback: Callable[[Deliver], str], real_shoal: Deliver) -> Shoal:
    url = serve_on_loopback(real_shoal)
    return lambda *arguments, **more: shoal(*arguments, "--url", url, **more)


@pytest.mark.parametrize(
    "name", ["points.csv", longer("points.ndjson"), "lists.ndjson", longer("points.parquet"), "coded.parquet"]
)
def test_missing_texts_and_numbers_are_holes_where_the_stream_accepts_them(
    asked: Shoal, tmp_path: Path, name: str
) -> None:
    """Whatever the file, also in its first row, and with the names of the features from the family alone."""
    table = rows()
    for i in range(0, len(table), 7):
        table[i][i // 7 % 3] = None if i else table[i][0]
    table[0][2] = None
    path, stream = written(tmp_path / name, table), f"texts-{next(STREAMS)}"
    options = ["--stream", stream, "--create", "--set", f"family={FAMILY}", "--set", "warmup_points=40", "--wait"]
    refused = asked("ingest", str(path), *options)
    assert refused.exit_code != 0
    assert "row" in refused.output or "line" in refused.output
    done = asked("ingest", str(path), *options, "--set", "missing=marginal")
    assert done.exit_code == 0, done.output
    assert settings_of(asked, stream)["feature_names"] == NAMES  # known from the family where the file has lists
    assert set(settings_of(asked, stream)["level_names"]["2"]) == set(REGIONS)
    assert sum(mass for mass, *_ in components(asked, stream)) == pytest.approx(60)


def created(asked: Shoal) -> str:
    stream = f"texts-{next(STREAMS)}"
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    made = asked("streams", "create", stream, "--features", "3", *settings)
    assert made.exit_code == 0, made.output
    return stream


def settings_of(asked: Shoal, stream: str) -> Any:
    return json.loads(asked("streams", "show", stream, "--json").stdout)["settings"]


def components(asked: Shoal, stream: str) -> list[Any]:
    found = json.loads(asked("components", "--stream", stream, "--json").stdout)["components"]
    return [[one["mass"], one["mean"], one["variance"]] for one in found]


@pytest.mark.parametrize(
    ("name", "order"),
    [
        longer("h.csv", (0, 1, 2)),
        ("other.csv", (2, 0, 1)),
        longer("h.ndjson", (2, 1, 0)),
        ("lists.ndjson", (0, 1, 2)),
        longer("h.parquet", (0, 1, 2)),
        ("coded.parquet", (1, 2, 0)),
        longer("h.arrow", (0, 1, 2)),
    ],
)
def test_a_file_of_texts_gives_the_stream_of_their_level_numbers(
    asked: Shoal, tmp_path: Path, name: str, order: tuple[int, ...]
) -> None:
    texts, coded = created(asked), created(asked)
    for stream, table in ((texts, rows()), (coded, numbers())):
        path = written(tmp_path / name, table, order=order)
        sent = asked("ingest", path, "--stream", stream, "--batch-size", "25", "--wait")
        assert sent.exit_code == 0, sent.output
    assert components(asked, texts) == components(asked, coded)
    assert settings_of(asked, texts)["level_names"] == {"2": REGIONS}
    few = written(tmp_path / name, [[0.5, 2, "us-east"], [0.5, 2, "moon"]], order=order)
    codes = written(tmp_path / "codes.csv", [[0.5, 2, 1], [0.5, 2, 1000]])
    answers = [asked("predict", file, "--stream", stream) for file, stream in ((few, texts), (codes, coded))]
    assert answers[0].stdout == answers[1].stdout != ""
    assert [answer.exit_code for answer in answers] == [0, 0]
    assert settings_of(asked, texts)["level_names"] == {"2": REGIONS}, "a prediction names no level"


def test_a_stream_is_created_from_a_csv_and_its_families_by_column(asked: Shoal, tmp_path: Path) -> None:
    path = written(tmp_path / "h.csv", rows())
    sent = asked("ingest", path, "--stream", "made", "--create", "--set", f"family={FAMILY}", "--wait")
    assert sent.exit_code == 0, sent.output
    shown = settings_of(asked, "made")
    assert (shown["feature_names"], shown["level_names"]) == (NAMES, {"2": REGIONS})


def test_a_csv_without_names_of_columns_holds_texts_from_its_first_line_on(asked: Shoal, tmp_path: Path) -> None:
    bare = created(asked)
    path = tmp_path / "bare.csv"
    path.write_text("0.5,2,eu\n20.5,31,7\n")
    sent = asked("ingest", path, "--stream", bare, "--json")
    assert json.loads(sent.stdout)["accepted"] == 2, sent.output
    later = tmp_path / "later.csv"
    later.write_text("0.5,2,7\n0.5,2,eu\n")  # a number first, in a column whose levels have names
    assert json.loads(asked("ingest", later, "--stream", bare, "--json").stdout)["accepted"] == 2
    assert settings_of(asked, bare)["level_names"] == {"2": ["eu", "7"]}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("x.csv", "cpu,errors,region\n1,2,eu\n1,x,eu\n", "x.csv, line 3, column 'errors': 'x' is not a number"),
        ("x.csv", "cpu,errors,region\n1,2,eu\n1,2, \n", "x.csv, line 3, column 'region': empty"),
        ("x.csv", "cpu,errors,region\n1,2,3\n1,2,eu\n", "line 3, column 'region': 'eu' is not a number"),
        ("x.csv", f"cpu,errors,region\n1,2,{'e' * 201}\n", "line 2, column 'region': a text of 201 characters"),
        ("x.csv", "cpu,errors,region\n1,2,eu\ninf,2,eu\n", "line 3: inf among the numbers (column 'cpu')"),
        ("x.ndjson", '{"cpu":1,"errors":2,"region":"eu"}\n{"cpu":1,"errors":2,"region":3}', "line 2, field 'region'"),
        ("x.ndjson", '[1,2,"eu"]\n[1,"x","eu"]', "line 2: column 1 is 'x'"),
        ("x.ndjson", '[1,2,3]\n[1,2,"eu"]', "line 2, column 2 is 'eu', and the lines before hold numbers"),
    ],
)
def test_a_bad_cell_is_named_by_its_row_and_column(
    asked: Shoal, tmp_path: Path, name: str, text: str, words: str
) -> None:
    strict = created(asked)
    path = tmp_path / name
    path.write_text(text)
    refused = asked("ingest", path, "--stream", strict)
    assert refused.exit_code != 0
    assert words in " ".join(refused.output.split())
    skipped = json.loads(asked("ingest", path, "--stream", strict, "--on-bad", "skip", "--json").stdout)
    assert skipped["bad_rows"] == 1


def test_a_stream_that_does_not_exist_is_named_before_the_texts_of_its_file(asked: Shoal, tmp_path: Path) -> None:
    path = written(tmp_path / "h.csv", rows())
    for command in (["ingest", path], ["ingest", path, "--on-bad", "skip"], ["predict", path]):
        refused = asked(*command, "--stream", "typo")
        assert (refused.exit_code, "there is no stream 'typo'" in refused.output) == (4, True), refused.output


def test_a_misspelt_column_of_texts_is_named_with_the_columns_of_the_stream(asked: Shoal, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("cpu,errors,regoin\n1,2,eu\n")
    refused = asked("predict", tmp_path / "x.csv", "--stream", created(asked))
    words = "the stream has no such column; did you mean 'region'? it has cpu, errors, region"
    assert words in " ".join(refused.output.split())


def test_na_in_a_column_of_numbers_is_a_missing_value(asked: Shoal, tmp_path: Path) -> None:
    """R writes it so. A row of nothing else has no value to learn from."""
    stream, path = "na", tmp_path / "x.csv"
    options = "--stream", stream, "--create", "--set", f"family={FAMILY}"
    path.write_text("cpu,errors,region\n0.5,1,eu\nNA,2,NA\n")
    refused = asked("ingest", path, *options)
    assert "line 3, column 'cpu': 'NA' is no value" in " ".join(refused.output.split())
    sent = asked("ingest", path, *options, "--set", "missing=marginal", "--json")
    assert json.loads(sent.stdout)["accepted"] == 2, sent.output
    assert settings_of(asked, stream)["level_names"] == {"2": ["eu", "NA"]}, "a text is kept as it is"
    path.write_text("cpu,errors,region\n1,2,eu\nNA,,\n")
    refused = asked("ingest", path, "--stream", stream)
    assert "line 3: all its values are missing" in " ".join(refused.output.split())


def test_a_bad_text_of_a_parquet_is_named_by_its_row_and_column(asked: Shoal, tmp_path: Path) -> None:
    strict = created(asked)
    for texts, words in ((["eu", None], "row 1 (from 0), column 'region': empty"), (["eu", " "], "row 1 (from 0)")):
        path = written(tmp_path / "x.parquet", [[1.0, 2, texts[0]], [1.0, 2, texts[1]]])
        refused = asked("ingest", path, "--stream", strict)
        assert words in " ".join(refused.output.split())


def test_a_stretch_of_a_parquet_with_nothing_but_bad_texts_is_skipped(
    asked: Shoal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_service.cli.readers.columnar.CHUNK_ROWS", 10)
    stream, table = created(asked), rows()
    for row in table[:20]:
        row[2] = " "
    path = written(tmp_path / "x.parquet", table)
    sent = asked("ingest", path, "--stream", stream, "--on-bad", "skip", "--batch-size", "10", "--json")
    assert sent.exit_code == 0, sent.output
    told = json.loads(sent.stdout)
    assert (told["accepted"], told["bad_rows"]) == (len(table) - 20, 20)


def test_texts_where_no_column_is_of_categories_are_refused_with_what_to_do(asked: Shoal, tmp_path: Path) -> None:
    for settings in ((), ("--set", "family=auto")):
        stream = f"plain{len(settings)}"
        asked("streams", "create", stream, "--features", "3", *settings)
        for name in ("h.csv", "h.parquet", "h.ndjson"):
            refused = asked("ingest", written(tmp_path / name, rows()), "--stream", stream)
            assert refused.exit_code != 0
            assert "'region'" in refused.output
            assert "categor" in refused.output or "--columns cpu,errors" in refused.output


@pytest.mark.parametrize("kind", ["h.csv", longer("h.ndjson"), longer("h.parquet")])
def test_fit_learns_texts_as_the_library_does(shoal: Shoal, tmp_path: Path, kind: str) -> None:
    answers = []
    for table in (rows(), numbers()):
        path = written(tmp_path / kind, table)
        for more in (("--no-refine",), ("--method", "vdp")):
            fitted = shoal("fit", path, "--family", FAMILY, *more, "--json", "--out", tmp_path / "labels.npy")
            assert fitted.exit_code == 0, fitted.output
            answers.append((json.loads(fitted.stdout)["components"], np.load(tmp_path / "labels.npy").tolist()))
    assert answers[:2] == answers[2:]


@pytest.mark.parametrize("kind", [longer("h.csv"), longer("h.ndjson"), "h.parquet"])
def test_fit_and_report_accept_missing_values_as_the_library_does(shoal: Shoal, tmp_path: Path, kind: str) -> None:
    table = rows()
    for i in range(0, len(table), 5):
        table[i][i // 5 % 3] = None
    path = written(tmp_path / kind, table)
    options = ["--family", FAMILY, "--no-refine"]
    refused = shoal("fit", path, *options)
    assert refused.exit_code != 0
    assert "missing=marginal" in refused.output
    options += ["--missing", "marginal"]
    fitted = shoal("fit", path, *options, "--json", "--out", tmp_path / "labels.npy")
    assert fitted.exit_code == 0, fitted.output
    model = StreamingDPMixture({0: "gaussian", 1: "poisson", 2: "categorical"}, missing="marginal", refinement=None)
    assert np.load(tmp_path / "labels.npy").tolist() == model.fit(table).predict(table).tolist()
    made = shoal("report", path, *options, "--output", tmp_path / "r.html")
    assert made.exit_code == 0, made.output
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "eu-west" in page
    assert "missing=&#x27;marginal&#x27;" in page, "the code that makes the same model"


@pytest.mark.parametrize("more", [("--no-refine",), ("--method", "vdp", "--no-stability")])
def test_a_report_names_the_texts(shoal: Shoal, tmp_path: Path, more: tuple[str, ...]) -> None:
    made = shoal(
        "report", written(tmp_path / "h.csv", rows()), "--family", FAMILY, *more, "--output", tmp_path / "r.html"
    )
    assert made.exit_code == 0, made.output
    assert "eu-west" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_file_that_grows_keeps_its_column_of_texts(asked: Shoal, tmp_path: Path) -> None:
    grown = created(asked)
    path = tmp_path / "grown.csv"
    path.write_text("cpu,errors,region\n0.5,2,eu\n0.5,2,7\n0.5,2,us\n")
    for _ in range(2):
        sent = asked("ingest", path, "--stream", grown, "--source", "file", "--batch-size", "1")
        assert sent.exit_code == 0, sent.output
    assert settings_of(asked, grown)["level_names"] == {"2": ["eu", "7", "us"]}


@pytest.mark.parametrize("named", [True, False])
def test_people_see_the_most_frequent_level_in_place_of_a_mean_of_level_numbers(
    asked: Shoal, tmp_path: Path, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = [[20.0 * (i % 2), 2 + 30 * (i % 2), REGIONS[i % 2]] for i in range(60)]
    path = written(tmp_path / ("h.ndjson" if named else "lists.ndjson"), table)
    stream = f"levels-{next(STREAMS)}"
    family = FAMILY if named else '{"0":"gaussian","1":"poisson","2":"categorical"}'
    sent = asked("ingest", path, "--stream", stream, "--create", "--set", f"family={family}", "--wait")
    assert sent.exit_code == 0, sent.output
    monkeypatch.setattr("shoal_service.cli.components.for_people", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    shown = asked("components", "--stream", stream).output
    lines = {level: [line for line in shown.splitlines() if level in line] for level in REGIONS[:2]}
    assert all(len(found) == 1 for found in lines.values()), shown
    assert re.search(r"\b2\.?\d*  eu-west", lines["eu-west"][0])
    assert re.search(r"\b3[12]\.?\d*  us-east", lines["us-east"][0])
