"""`shoal ingest` of files with keys, times and payloads, and of files with bad rows."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest
from fake_shoal import Deliver, FakeShoal, FakeStream, problem
from typer.testing import Result

from shoal_service.cli.exits import ExitCode
from shoal_service.wire import Points, WireLimits, decode

Shoal = Callable[..., Result]
LIMITS = WireLimits(1 << 24, 10_000, 100)
HOSTS = "host,cpu,at,level,mem\nh1,1,100,warn,2\nh2,3,200,,4\n,5,,info,6\n"
BAD = "host,cpu,mem\nh1,1,2\nh2,,4\nh3,oops,4\nh4,5,6\n"


def sent(fake: FakeShoal) -> list[Points]:
    posts = [request for request in fake.requests if request.url.path.endswith("/ingest")]
    return [decode(request.content, request.headers["Content-Type"], LIMITS) for request in posts]


@pytest.mark.parametrize("batch_size", [1, 2, 1000])
def test_columns_become_records(shoal: Shoal, url: str, fake: FakeShoal, tmp_path: Path, batch_size: int) -> None:
    (tmp_path / "x.csv").write_text(HOSTS)
    columns = ["--key-column", "host", "--time-column", "at", "--payload-columns", "level,host"]
    said = shoal("ingest", tmp_path / "x.csv", "--url", url, *columns, "--batch-size", batch_size)
    assert said.exit_code == 0, said.output
    batches = sent(fake)
    np.testing.assert_array_equal(np.concatenate([b.x for b in batches]), [[1, 2], [3, 4], [5, 6]])
    fields = [b.fields for b in batches]
    assert [key for f, b in zip(fields, batches, strict=True) for key in (f.keys or [b""] * b.n_points)] == [
        b"h1", b"h2", b"",
    ]  # fmt: skip
    payloads = [json.loads(p) for f in fields for p in f.payloads]
    assert payloads == [{"level": "warn", "host": "h1"}, {"level": None, "host": "h2"}, {"level": "info", "host": None}]


def test_stream_is_created_for_the_features_alone(shoal: Shoal, url: str, fake: FakeShoal, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(HOSTS)
    more = ["--key-column", "host", "--payload-columns", "level,at", "--create", "-s", "hosts", "--set", "half_life=1h"]
    assert shoal("ingest", tmp_path / "x.csv", "--url", url, *more).exit_code == 0
    assert fake.streams["hosts"].settings["n_features"] == 2
    assert fake.streams["hosts"].settings["half_life"] == "1h"


def test_first_bad_row_stops_by_default_and_names_line_and_column(
    shoal: Shoal, url: str, fake: FakeShoal, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text(BAD)
    said = shoal("ingest", tmp_path / "x.csv", "--url", url, "--key-column", "host")
    assert said.exit_code == ExitCode.USAGE
    assert "line 3, column 'cpu': empty" in said.stderr
    assert not fake.streams


def test_bad_rows_are_skipped_and_counted(shoal: Shoal, url: str, fake: FakeShoal, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(BAD)
    said = shoal("ingest", tmp_path / "x.csv", "--url", url, "--key-column", "host", "--on-bad", "skip")
    assert said.exit_code == 0, said.output
    assert "2 bad rows skipped" in said.stderr
    np.testing.assert_array_equal(fake.streams["default"].x, [[1, 2], [5, 6]])
    as_json = shoal("ingest", tmp_path / "x.csv", "--url", url, "--columns", "cpu,mem", "--on-bad=skip", "--json")
    assert (json.loads(as_json.stdout)["accepted"], json.loads(as_json.stdout)["bad_rows"]) == (2, 2)


@pytest.mark.parametrize("order", ["after", "before", "equals", "named"])
def test_bad_rows_are_reported_to_a_file(shoal: Shoal, url: str, fake: FakeShoal, tmp_path: Path, order: str) -> None:
    file, report = tmp_path / "x.csv", tmp_path / "bad.ndjson"
    file.write_text(BAD)
    words: list[object] = {
        "after": [file, "--on-bad", "report", report],
        "before": ["--on-bad", "report", report, file],
        "equals": ["--on-bad=report", report, file],
        "named": ["--on-bad", "report", "--bad-rows", report, file],
    }[order]
    said = shoal("ingest", *words, "--url", url, "--key-column", "host")
    assert said.exit_code == 0, said.output
    entries = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(entry["line"], entry["row"]) for entry in entries] == [(3, ["h2", "", "4"]), (4, ["h3", "oops", "4"])]
    assert entries[1]["reason"] == "column 'cpu': 'oops' is not a number"
    np.testing.assert_array_equal(fake.streams["default"].x, [[1, 2], [5, 6]])


def test_a_report_needs_a_file(shoal: Shoal, url: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(BAD)
    said = shoal("ingest", tmp_path / "x.csv", "--url", url, "--on-bad", "report")
    assert said.exit_code == ExitCode.USAGE
    assert "--on-bad report bad.ndjson" in said.stderr


@pytest.mark.parametrize("batch_size", [1, 3, 7, 1000])
def test_rows_that_the_server_refuses_are_bad_rows_too(
    shoal: Shoal, fake: FakeShoal, serve_on_loopback: Callable[[Deliver], str], tmp_path: Path, batch_size: int
) -> None:
    def no_negatives(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/ingest"):
            x = decode(request.content, request.headers["Content-Type"], LIMITS).x
            bad = np.flatnonzero((x < 0).any(axis=1))
            if len(bad):
                answer = problem(422, "outside-domain", "counts are not negative")
                body = json.loads(answer.content) | {"row": int(bad[0])}
                return httpx.Response(422, json=body, headers={"Content-Type": "application/problem+json"})
        return fake.handle(request)

    rows = [[i, -1 if i % 5 == 3 else i] for i in range(23)]
    lines = [f"{a},{b}" if a != 10 else "oops,1" for a, b in rows]
    (tmp_path / "x.csv").write_text("a,b\n" + "\n".join(lines) + "\n")
    url = serve_on_loopback(no_negatives)
    report = tmp_path / "bad.ndjson"
    words = ["--url", url, "--batch-size", batch_size, "--on-bad", "report", report]
    said = shoal("ingest", tmp_path / "x.csv", *words)
    assert said.exit_code == 0, said.output
    good = [row for row in rows if row[0] % 5 != 3 and row[0] != 10]
    np.testing.assert_array_equal(fake.streams["default"].x, good)
    entries = [json.loads(line) for line in report.read_text().splitlines()]
    assert sorted(entry["line"] for entry in entries) == [2 + a for a in (3, 8, 10, 13, 18)]
    assert {entry["reason"] for entry in entries if entry["line"] != 12} == {
        "refused by the server: counts are not negative"
    }
    stopped = shoal("ingest", tmp_path / "x.csv", "--url", url, "--columns", "b")
    assert stopped.exit_code == ExitCode.REFUSED


def test_a_file_with_holes_goes_to_a_stream_that_takes_them(
    shoal: Shoal, url: str, fake: FakeShoal, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,\n,2\n3,4\n")
    refused = shoal("ingest", tmp_path / "x.csv", "--url", url, "-s", "holed", "--create")
    assert refused.exit_code == ExitCode.USAGE
    assert "line 2, column 'b': empty" in refused.stderr
    fake.streams["holed"] = FakeStream({"n_features": 2, "missing": "marginal"})
    shoal("ingest", tmp_path / "x.csv", "--url", url, "-s", "holed")
    posts = [request for request in fake.requests if request.url.path.endswith("/ingest")]
    holes = msgspec.structs.replace(LIMITS, holes=True)
    found = decode(posts[-1].content, posts[-1].headers["Content-Type"], holes).x
    np.testing.assert_array_equal(found, [[1, np.nan], [np.nan, 2], [3, 4]])
