"""The commands, in this process, against a server on loopback."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import onnx
import pytest
from fake_shoal import Deliver, FakeShoal, FakeStream, problem
from typer.testing import Result

from shoal import StreamingDPMixture
from shoal_service.cli import options
from shoal_service.cli.exits import ExitCode
from shoal_service.cli.output import sparkline, weight_bar

Shoal = Callable[..., Result]
X = np.array([[3.0, 3.1], [2.9, 3.0], [3.1, 2.9], [-3.0, -3.0]])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, X)
    return path


def test_ingest_components_predict(shoal: Shoal, url: str, file: Path, fake: FakeShoal) -> None:
    sent = shoal("ingest", file, "--url", url, "--batch-size", 3)
    assert sent.exit_code == 0, sent.stderr
    assert sent.stdout == "4 points sent to stream default, log offset 4\n"
    assert sent.stderr == ""
    np.testing.assert_array_equal(fake.streams["default"].x, X)

    shown = shoal("components", "--url", url)
    assert shown.exit_code == 0, shown.stderr
    header, *lines = [line.split("\t") for line in shown.stdout.splitlines()]
    assert header == ["id", "weight", "mass", "born_at", "last_seen_at", "mean"]
    assert [line[0] for line in lines] == ["1", "0"]
    assert [float(line[1]) for line in lines] == [0.6, 0.2]
    assert list(map(float, lines[1][5].split(","))) == [-3.0, -3.0]

    grouped = shoal("clusters", "--url", url)
    assert grouped.exit_code == 0, grouped.stderr
    assert [line.split("\t")[::3] for line in grouped.stdout.splitlines()] == [
        ["id", "components"],
        ["1", "1"],
        ["0", "0"],
    ]
    assert shoal("clusters", "--url", url, "--limit", 1).stdout.splitlines() == grouped.stdout.splitlines()[:2]
    one = json.loads(shoal("clusters", "--url", url, "--number", 1, "--json").stdout)
    assert (one["rule"], one["points_seen"], one["clusters"][0]["components"]) == ("number", 4, [0, 1])

    said = shoal("predict", file, "--url", url)
    assert said.exit_code == 0, said.stderr
    assert said.stdout.splitlines() == ["component\tlog_density\tnovelty", *["1\t-1.5\t0.25"] * 3, "0\t-1.5\t0.25"]


def test_predict_names_clusters_when_asked(shoal: Shoal, url: str, file: Path, tmp_path: Path) -> None:
    shoal("ingest", file, "--url", url)
    said = shoal("predict", file, "--url", url, "--level", "cluster")
    assert said.exit_code == 0, said.stderr
    lines = ["1\t-1.5\t0.25\t1"] * 3 + ["0\t-1.5\t0.25\t0"]
    assert said.stdout.splitlines() == ["component\tlog_density\tnovelty\tcluster", *lines]
    first = json.loads(shoal("predict", file, "--url", url, "--level", "cluster", "--json").stdout.splitlines()[0])
    assert (first["cluster"], first["component"]) == (1, 1)
    labels = tmp_path / "labels.npy"
    shoal("predict", file, "--url", url, "--level", "cluster", "--out", labels)
    np.testing.assert_array_equal(np.load(labels), [1, 1, 1, 0])
    assert shoal("predict", file, "--url", url, "--level", "group").exit_code == 2


def test_json_output_is_one_document(shoal: Shoal, url: str, file: Path) -> None:
    sent = json.loads(shoal("ingest", file, "--url", url, "--json", "--wait").stdout)
    assert (sent["stream"], sent["accepted"], sent["log_offset"], sent["batches"]) == ("default", 4, 4, 1)
    found = json.loads(shoal("components", "--url", url, "--json", "--min-offset", 4).stdout)
    assert found["points_seen"] == 4
    assert [c["id"] for c in found["components"]] == [1, 0]
    assert found["components"][1]["variance"] == [None, None]
    rows = [json.loads(line) for line in shoal("predict", file, "--url", url, "--json").stdout.splitlines()]
    assert rows[3] == {
        "component": 0, "log_density": -1.5, "novelty": 0.25, "responsibilities": [{"id": 0, "p": 0.75}],
    }  # fmt: skip


def test_limit_shows_the_largest(shoal: Shoal, url: str, file: Path) -> None:
    shoal("ingest", file, "--url", url)
    assert len(shoal("components", "--url", url, "-n", 1).stdout.splitlines()) == 2
    assert len(json.loads(shoal("components", "--url", url, "-n", 1, "--json").stdout)["components"]) == 1


def test_table_in_a_terminal_has_bars_and_means(
    shoal: Shoal, url: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("shoal_service.cli.components.for_people", lambda: True)
    shoal("ingest", file, "--url", url)
    table = shoal("components", "--url", url).stdout
    assert "default: 2 components of 4 points" in table
    assert "████████████" in table
    assert "weight of new components: 0.2" in table
    few = shoal("components", "--url", url, "-n", 1).stdout.splitlines()
    assert "1 smaller one is not shown (--limit 0 shows all)" in [line.strip() for line in few]


def test_fit_shows_a_table_in_a_terminal(shoal: Shoal, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("shoal_service.cli.fit_stream.for_people", lambda: True)
    said = shoal("fit", file)
    assert said.exit_code == 0, said.stderr
    assert "of 4 points" in said.stdout
    assert "weight of new components" in said.stdout
    assert "born at" not in said.stdout


def test_fit_forgets_by_the_times_of_a_column_as_the_library_does(shoal: Shoal, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    x, times = rng.normal(size=(60, 2)), 1e9 + rng.permutation(60) * 300.0
    moments = [datetime.fromtimestamp(at, UTC).isoformat() for at in times.tolist()]
    rows = [f"{a!r},{at},{b!r}" for (a, b), at in zip(x.tolist(), moments, strict=True)]
    (tmp_path / "timed.csv").write_text("\n".join(["a,at,b", *rows]))
    given = ("--half-life", "1h", "--time-column", "at", "--out", tmp_path / "labels.npy")
    said = shoal("fit", tmp_path / "timed.csv", *given, "--json")
    assert said.exit_code == 0, said.stderr
    model = StreamingDPMixture(half_life="1h").fit(x, times=times)
    masses = {component["id"]: component["mass"] for component in json.loads(said.stdout)["components"]}
    assert masses == dict(zip(model.component_ids_.tolist(), model.masses_.tolist(), strict=True))
    assert sum(masses.values()) < 50, "of 60"
    np.testing.assert_array_equal(np.load(tmp_path / "labels.npy"), model.predict(x))


def test_bars_and_ticks() -> None:
    assert weight_bar(1.0, 4) == "████"
    assert weight_bar(0.5, 4) == "██  "
    assert weight_bar(1 / 32, 4) == "▏   "
    assert weight_bar(0.0, 4) == "    "
    assert sparkline([0, 5, 10, 1, float("nan")], [0, 0, 0, 1, 0], [10, 10, 10, 1, 1]) == "▁▅█▄ "


def test_predictions_of_no_points_are_a_table_without_rows(shoal: Shoal, url: str, tmp_path: Path) -> None:
    """A program that reads the table finds its columns."""
    (tmp_path / "x.csv").write_text("x,y\n")
    for level, last in (("component", "novelty"), ("cluster", "novelty\tcluster")):
        said = shoal("predict", tmp_path / "x.csv", "--url", url, "--level", level)
        assert (said.exit_code, said.stdout) == (0, f"component\tlog_density\t{last}\n"), said.stderr
        assert said.stderr == "the file has no points\n"


def test_labels_of_predict_are_saved(shoal: Shoal, url: str, file: Path, tmp_path: Path) -> None:
    shoal("ingest", file, "--url", url)
    said = shoal("predict", file, "--url", url, "--out", tmp_path / "labels.npy")
    assert (said.exit_code, said.stdout) == (0, "")
    labels = np.load(tmp_path / "labels.npy")
    assert labels.dtype == np.int64
    assert labels.tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("format_", "content"),
    [
        ("csv", b"x,y\n3,1\n-3,2\n"),
        ("ndjson", b"[3, 1]\n[-3, 2]\n"),
        (None, b"3,1\n-3,2\n"),
        (None, b"[3,1]\n[-3,2]\n"),
    ],
)
def test_stdin_is_read(shoal: Shoal, url: str, fake: FakeShoal, format_: str | None, content: bytes) -> None:
    more = ["--format", format_] if format_ else []
    sent = shoal("ingest", "-", "--url", url, *more, stdin=content)
    assert sent.exit_code == 0, sent.stderr
    assert fake.streams["default"].x.tolist() == [[3, 1], [-3, 2]]


def test_npy_on_stdin_is_read(shoal: Shoal, url: str, fake: FakeShoal, file: Path) -> None:
    assert shoal("ingest", "-", "--url", url, stdin=file.read_bytes()).exit_code == 0
    np.testing.assert_array_equal(fake.streams["default"].x, X)


def test_npz_on_stdin_is_refused_with_the_reason(shoal: Shoal, url: str) -> None:
    said = shoal("ingest", "-", "--url", url, "--format", "npz", stdin=b"PK\x03\x04")
    assert said.exit_code == ExitCode.USAGE
    assert "save it to a file" in said.stderr


def test_no_points_are_said(shoal: Shoal, url: str) -> None:
    said = shoal("ingest", "-", "--url", url, stdin=b"")
    assert (said.exit_code, said.stdout) == (0, "0 points sent to stream default\n")
    assert "nothing was sent" in said.stderr


def test_same_upload_under_one_name_is_stored_once(shoal: Shoal, url: str, file: Path, fake: FakeShoal) -> None:
    for _ in range(2):
        said = shoal("ingest", file, "--url", url, "--idempotency-key", "monday")
    assert "1 batch stored before" in said.stdout
    assert len(fake.streams["default"].x) == 4


def test_snapshot_is_saved_and_restored(shoal: Shoal, url: str, file: Path, tmp_path: Path) -> None:
    shoal("ingest", file, "--url", url)
    target = tmp_path / "state.shoal"
    assert shoal("snapshot", "save", target, "--url", url).stdout.startswith(f"saved to {target}: ")
    again = shoal("snapshot", "save", target, "--url", url)
    assert (again.exit_code, "--force" in again.stderr) == (ExitCode.USAGE, True)
    assert shoal("snapshot", "save", target, "--url", url, "--force").exit_code == 0
    assert "restored" in shoal("snapshot", "restore", target, "--url", url).stdout
    assert json.loads(shoal("snapshot", "restore", target, "--url", url, "--json").stdout)["log_offset"] == 4
    assert shoal("snapshot", "restore", tmp_path / "none", "--url", url).exit_code == ExitCode.USAGE
    assert shoal("snapshot", "save", tmp_path / "no" / "folder", "--url", url).exit_code == ExitCode.USAGE


def test_a_saved_state_is_converted_for_other_programs(shoal: Shoal, tmp_path: Path) -> None:
    model = StreamingDPMixture().fit(np.random.default_rng(0).normal(size=(60, 2)))
    model.save(tmp_path / "state.shoal")
    for ending in ("json", "onnx"):
        target = tmp_path / f"mixture.{ending}"
        assert shoal("snapshot", "convert", tmp_path / "state.shoal", target).stdout.startswith(f"wrote {target}: ")
        again = shoal("snapshot", "convert", tmp_path / "state.shoal", target)
        assert (again.exit_code, "--force" in again.stderr) == (ExitCode.USAGE, True)
    assert json.loads((tmp_path / "mixture.json").read_text())["components"][0]["id"] == model.component_ids_[0]
    assert onnx.load(str(tmp_path / "mixture.onnx")).producer_name == "shoal"
    other = shoal("snapshot", "convert", tmp_path / "state.shoal", tmp_path / "mixture.pmml")
    assert (other.exit_code, "end the name with .json or .onnx" in other.stderr) == (ExitCode.USAGE, True)
    assert shoal("snapshot", "convert", tmp_path / "none", tmp_path / "b.json").exit_code == ExitCode.USAGE


def test_address_is_taken_from_flags_over_environment_over_file(
    shoal: Shoal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert options.server_url(None, None) == "http://127.0.0.1:8000"
    toml = tmp_path / "shoal.toml"
    toml.write_text('port = 7001\nhost = "localhost"\n')
    monkeypatch.setenv("SHOAL_CONFIG", str(toml))
    assert options.server_url(None, None) == "http://localhost:7001"
    monkeypatch.setenv("SHOAL_PORT", "7002")
    assert options.server_url(None, None) == "http://localhost:7002"
    assert options.server_url(None, 7003) == "http://127.0.0.1:7003"
    assert options.server_url("box:7004", None) == "http://box:7004"
    assert options.server_url("https://box", None) == "https://box"
    for host, expected in (("0.0.0.0", "127.0.0.1"), ("::1", "[::1]")):
        monkeypatch.setenv("SHOAL_HOST", host)
        assert options.server_url(None, None) == f"http://{expected}:7002"
    toml.write_text("port = ")
    assert shoal("components").exit_code == ExitCode.USAGE


def test_stream_and_url_are_taken_from_the_environment(
    shoal: Shoal, url: str, file: Path, fake: FakeShoal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_URL", url)
    monkeypatch.setenv("SHOAL_STREAM", "sensors")
    said = shoal("ingest", file)
    assert said.exit_code == ExitCode.REFUSED
    assert "no stream 'sensors'; `shoal streams list` shows" in " ".join(said.stderr.split())
    assert "--create" in said.stderr
    fake.streams["sensors"] = FakeStream({"n_features": 2})
    assert shoal("ingest", file).exit_code == 0
    assert len(fake.streams["sensors"].x) == 4


def test_a_port_given_wins_over_an_address_in_the_environment(
    shoal: Shoal, url: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_URL", "http://127.0.0.1:9")
    assert shoal("ingest", file, "--port", url.rpartition(":")[2]).exit_code == 0


def test_stream_is_made_as_wide_as_the_file(shoal: Shoal, url: str, file: Path, fake: FakeShoal) -> None:
    more = ["--create", "--set", "family=diagonal", "--set", "half_life=500"]
    said = shoal("ingest", file, "--url", url, "--stream", "sensors", *more)
    assert said.exit_code == 0, said.stderr
    assert fake.streams["sensors"].settings == {"n_features": 2, "family": "diagonal", "half_life": 500}
    np.testing.assert_array_equal(fake.streams["sensors"].x, X)
    assert shoal("ingest", file, "--url", url, "--stream", "sensors", "--create").exit_code == 0
    assert shoal("ingest", file, "--url", url, "--set", "family=diagonal").exit_code == ExitCode.USAGE


def test_nothing_listens_is_exit_3_and_says_how_to_start(shoal: Shoal, file: Path) -> None:
    said = shoal("ingest", file, "--url", "http://127.0.0.1:9")
    assert said.exit_code == ExitCode.UNREACHABLE
    assert "shoal serve" in said.stderr
    assert "stored" not in said.stderr
    assert said.stdout == ""


def test_something_else_listens_is_exit_3(shoal: Shoal, serve_on_loopback: Callable[[Deliver], str]) -> None:
    url = serve_on_loopback(lambda request: httpx.Response(200, html="<h1>hello</h1>"))
    said = shoal("components", "--url", url)
    assert said.exit_code == ExitCode.UNREACHABLE
    assert "check the address" in said.stderr


def test_refusal_is_exit_4(shoal: Shoal, url: str, file: Path, tmp_path: Path) -> None:
    shoal("ingest", file, "--url", url)
    np.save(tmp_path / "wide.npy", np.ones((2, 5)))
    said = shoal("ingest", tmp_path / "wide.npy", "--url", url)
    assert said.exit_code == ExitCode.REFUSED
    assert "5 features" in said.stderr


def test_busy_server_is_exit_5_once_the_deadline_has_passed(
    shoal: Shoal, serve_on_loopback: Callable[[Deliver], str], file: Path
) -> None:
    url = serve_on_loopback(lambda request: problem(503, "overloaded", "too much is waiting"))
    said = shoal("ingest", file, "--url", url, "--deadline", 0.4)
    assert said.exit_code == ExitCode.BUSY
    assert "too much is waiting" in said.stderr
    assert "gave up after" in said.stderr


def test_failure_in_the_middle_says_what_is_stored(
    shoal: Shoal, serve_on_loopback: Callable[[Deliver], str], file: Path, fake: FakeShoal
) -> None:
    def server(request: httpx.Request) -> httpx.Response:
        return fake.handle(request) if len(fake.requests) < 3 else problem(409, "stream-conflict", "no more")

    said = shoal("ingest", file, "--url", serve_on_loopback(server), "--batch-size", 1)
    assert said.exit_code == ExitCode.REFUSED
    assert "3 points" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ingest", "{tmp}/missing.csv"], "cannot read"),
        (["ingest", "{tmp}/nan.npy"], "row 1 "),
        (["ingest", "{tmp}/x.npy", "--columns", "9"], "columns are 0 to 1"),
        (["predict", "{tmp}/nan.npy"], "row 1 "),
        (["predict", "{tmp}/x.npy", "--out", "{tmp}/no/folder.npy"], "does not exist"),
        (["predict", "{tmp}/x.npy", "--out", "{tmp}/x.npy"], "is the file that is read"),
        (["fit", "{tmp}/x.npy", "--save", "{tmp}"], "it is a folder; give the name of a file"),
        (
            ["streams", "set", "a", "half_life"],
            "'half_life' is not a setting NAME=VALUE; write it like half_life=50000",
        ),
        (["fit", "{tmp}/x.npy", "--save", "{tmp}/../{name}/x.npy"], "is the file that is read"),
        (["ingest", "{tmp}/x.npy", "--on-bad", "report", "{tmp}/x.npy"], "is the file that is read"),
        (["components", "--port", "1", "--url", "x"], "remove --port"),
        (["components", "--nonsense"], "nonsense"),
        (["components", "--limit", "few"], "'few' should be a valid"),
        (["ingest", "{tmp}/x.npy", "--batch-size", "0"], "'0' should be greater"),
        (["fit", "{tmp}/x.npy", "--missing", "skip"], "'--missing': 'skip' is not one of"),
        (["ingest"], "FILE"),
        (["nonsense"], "nonsense"),
        (["serve", "--set", "port"], "NAME=VALUE"),
        (["serve", "--set", "max_stream=3"], "did you mean 'max_streams'"),
        (["serve", "--host", "0.0.0.0"], "insecure"),
        (["serve", "--config", "{tmp}/none.toml"], "does not exist"),
        (["fit", "-", "--out", "{tmp}/labels.npy"], "second pass"),
        (["fit", "{tmp}/x.npy", "--family", "cubic"], "cubic"),
        (["fit", "{tmp}/empty.csv"], "no points"),
        (["fit", "{tmp}/nan.npy"], "row 1 "),
        (["fit", "{tmp}/x.npy", "--half-life", "-3"], "half_life"),
        (["fit", "{tmp}/x.npy", "--half-life", "1h"], "has no times"),
        (["fit", "{tmp}/x.npy", "--half-life", "9", "--time-column", "at"], "--time-column is for"),
        (["fit", "{tmp}/timeless.csv", "--half-life", "1h", "--time-column", "at"], "line 3, has no time"),
        (["fit", "{tmp}/x.npy", "--method", "kmeans"], "fast-vdp"),
        (["fit", "{tmp}/x.npy", "--truncation", "5"], "--truncation is for batch methods"),
        (["fit", "{tmp}/x.npy", "--random-state", "5"], "--random-state is for batch methods"),
    ],
)
def test_wrong_commands_and_files_are_exit_2(
    shoal: Shoal, url: str, tmp_path: Path, file: Path, arguments: list[str], words: str
) -> None:
    np.save(tmp_path / "nan.npy", np.array([[1.0, 2.0], [np.nan, 1.0]]))
    (tmp_path / "empty.csv").touch()
    (tmp_path / "timeless.csv").write_text("x,at\n1,5\n2,\n")
    given = [a.replace("{tmp}", str(tmp_path)).replace("{name}", tmp_path.name) for a in arguments]
    if given[0] in ("ingest", "predict") and len(given) > 1:
        given += ["--url", url]
    said = shoal(*given)
    assert said.exit_code == ExitCode.USAGE, said.output
    assert words in said.stderr
    assert said.stdout == ""
    np.testing.assert_array_equal(np.load(file), X)


def test_settings_are_listed_with_what_they_do(shoal: Shoal) -> None:
    said = shoal("serve", "--list-settings", "--port", 9000, "--set", "max_streams=7")
    assert "port = 9000\n" in said.stdout
    assert "max_streams = 7\n    Largest number of streams" in said.stdout


@pytest.mark.parametrize(
    "arguments", [[], ["serve"], ["ingest"], ["components"], ["predict"], ["fit"], ["snapshot", "save"], ["version"]]
)
def test_help_teaches(shoal: Shoal, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    said = shoal(*arguments, "--help")
    assert said.exit_code == 0
    assert f"shoal {arguments[0] if arguments else 'serve'}" in said.stdout
    if not arguments:
        assert all(f" {code.value}" in said.stdout for code in ExitCode)
    elif arguments != ["version"]:
        assert "Example" in said.stdout
    assert "<bool>" not in said.stdout  # a flag has no value


def test_flags_of_nested_commands_show_no_type(shoal: Shoal) -> None:
    assert "<bool>" not in shoal("streams", "create", "--help").stdout


def test_version_names_what_a_bug_report_needs(shoal: Shoal) -> None:
    assert shoal("--version").stdout.startswith("shoal ")
    assert set(json.loads(shoal("version", "--json").stdout)) >= {"shoal", "python", "numpy", "numba"}
