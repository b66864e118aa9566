"""`shoal streams` and `shoal records` against the real service, and advice on what was misspelt."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_shoal import Deliver
from typer.testing import Result

Shoal = Callable[..., Result]


@pytest.fixture
def asked(shoal: Shoal, serve_on_loopback: Callable[[Deliver], str], real_shoal: Deliver) -> Shoal:
    """Run a command against the real service."""
    url = serve_on_loopback(real_shoal)

    def run(*arguments: object, **more: Any) -> Result:
        return shoal(*arguments, "--url", url, **more)

    return run


def json_of(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("streams", "records"):
        monkeypatch.setattr(f"shoal_service.cli.{name}.for_people", lambda: True)


def test_a_column_without_a_family_is_said_by_its_number_of_columns(asked: Shoal) -> None:
    said = asked("streams", "create", "few", "--features", 3, "--family", '{"cpu": "gaussian", "mem": "gaussian"}')
    assert said.exit_code == 4
    assert "family names 2 columns, and n_features is 3; name each column" in said.stderr


def test_the_nearest_stream_is_offered_for_an_unknown_one(asked: Shoal) -> None:
    asked("streams", "create", "web", "--features", 1)
    for command in (["components", "--stream", "wbe"], ["streams", "show", "wbe"]):
        said = asked(*command)
        assert said.exit_code == 4
        assert "there is no stream 'wbe'; did you mean 'web'? `shoal streams list` shows" in " ".join(
            said.stderr.split()
        )
    assert "did you mean" not in asked("clusters", "--stream", "zzz").stderr


def test_a_stream_from_its_creation_to_its_end(asked: Shoal) -> None:
    shape = ("--features", 3, "--family", "diagonal", "--partitions", 2)
    made = asked("streams", "create", "life", *shape, "--set", "half_life=5000")
    assert (made.exit_code, made.stdout) == (0, "stream life is created: diagonal, n_features 3\n")
    again = asked("streams", "create", "life", "--features", 3)
    assert again.exit_code == 4
    assert "shoal streams set life" in again.stderr
    changed = json_of(asked("streams", "set", "life", "half_life=null", "seed=7", "--json"))
    assert (changed["settings"]["half_life"], changed["settings"]["seed"]) == (None, 7)
    timed = json_of(asked("streams", "set", "life", "half_life=90s", "lateness=10m", "--json"))["settings"]
    assert (timed["half_life"], timed["lateness"]) == ("90s", "10m")
    assert asked("streams", "set", "life", "half_life=null", "lateness=null").exit_code == 0
    shown = dict(line.split("\t") for line in asked("streams", "show", "life").stdout.splitlines())
    assert (shown["stream"], shown["status"], shown["seed"], shown["half_life"]) == ("life", "empty", "7", "null")
    assert shown["partitions"] == "2"
    header, *lines = [line.split("\t") for line in asked("streams", "list").stdout.splitlines()]
    assert header == ["stream", "status", "points_seen", "n_components", "family", "n_features"]
    assert ["life", "empty", "0", "0", "diagonal", "3"] in lines
    chosen = asked("streams", "list", "li?e").stdout.splitlines()[1:]
    assert [line.split("\t")[0] for line in chosen] == ["life"]
    assert asked("streams", "list", "nothing-*").stdout.splitlines()[1:] == []
    unasked = asked("streams", "delete", "life")
    assert unasked.exit_code == 2
    assert "add --yes" in unasked.stderr
    assert json_of(asked("streams", "delete", "life", "--yes", "--json")) == {"stream": "life", "deleted": True}
    missing = asked("streams", "set", "life", "seed=1")
    assert missing.exit_code == 4
    assert "`shoal ingest --create`" in missing.stderr


def test_the_settings_of_a_shape_stay(asked: Shoal) -> None:
    asked("streams", "create", "shape", "--features", 3)
    refused = asked("streams", "set", "shape", "n_features=4")
    assert refused.exit_code == 4
    assert "n_features gives the stream its shape" in refused.stderr


def test_records_are_read_and_forgotten(asked: Shoal, real_shoal: Deliver, terminal: None) -> None:
    keys = [f"host-{i}/with-a-long-name-of-a-log-file" for i in range(4)]
    body = {
        "points": [[float(i % 2) * 90, 0.0] for i in range(4)],
        "keys": keys,
        "payloads": [{"i": i} for i in range(4)],
    }
    path = "http://127.0.0.1/streams/of-keys/ingest?create=true&wait=applied&timeout=30"
    reply = real_shoal(httpx.Request("POST", path, headers={"Content-Type": "application/json"}, json=body))
    assert reply.status_code == 200, reply.read()
    stream = ("--stream", "of-keys")
    one = json_of(asked("records", "get", keys[1], *stream, "--json"))
    assert (one["key"], one["log_offset"], one["payload"]) == (keys[1], 2, {"i": 1})
    many = json_of(asked("records", "lookup", "-", *stream, "--json", stdin=f"{keys[2]}\nnobody\n".encode()))["records"]
    assert (many[0]["log_offset"], many[1]) == (3, None)
    listed = json_of(asked("records", "list", one["component"], *stream, "--json"))["records"]
    assert keys[1] in [record["key"] for record in listed]
    for said in (asked("records", "list", one["component"], *stream), asked("records", "lookup", *keys, *stream)):
        assert said.exit_code == 0, said.output
        assert max(map(len, said.stdout.splitlines())) <= 80
        assert "host-1/" in said.stdout
    gone = asked("records", "delete", keys[1], *stream)
    assert (gone.exit_code, gone.stdout) == (0, f"record {keys[1]} is forgotten\n")
    assert asked("records", "get", keys[1], *stream).exit_code == 4


def test_a_table_of_streams_fits_in_80_columns(asked: Shoal, terminal: None) -> None:
    asked("streams", "create", "a-stream-with-quite-a-long-name-for-a-stream", "--features", 16)
    said = asked("streams", "list")
    assert max(map(len, said.stdout.splitlines())) <= 80
    (line,) = [line for line in said.stdout.splitlines() if "a-stream-with" in line]
    assert line.split()[-1] == "16"
    assert (
        max(map(len, asked("streams", "show", "a-stream-with-quite-a-long-name-for-a-stream").stdout.splitlines()))
        <= 80
    )


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (("streams", "create", "x", "--features", 2, "--set", "half_live=5"), "half_life"),
        (("streams", "create", "x", "--features", 2, "--family", "gausian"), "gaussian"),
        (("streams", "create", "x", "--features", 2, "--set", "method=sva_pm"), "sva-pm"),
        (("refine", "--method", "fast_vdp", "--stream", "spelt"), "fast-vdp"),
        (("records", "list", 1, "--order", "typicl"), "typical"),
        (("records", "gte", "a"), "get"),
        (("steams", "list"), "streams"),
        (("streams", "list", "--jsn"), "--json"),
        (("ingest", "FILE", "--format", "cvs"), "csv"),
        (("ingest", "FILE", "--columns", "humidty"), "humidity"),
        (("predict", "FILE", "--level", "clustr"), "cluster"),
        (("keys", "create", "--name", "a", "--scope", "amdin"), "admin"),
        (("fit", "FILE", "--family", "dirichelt"), "dirichlet"),
    ],
)
def test_what_is_misspelt_gets_its_nearest_name(
    asked: Shoal, shoal: Shoal, tmp_path: Path, arguments: tuple[object, ...], nearest: str
) -> None:
    file = tmp_path / "x.csv"
    file.write_text("humidity,cpu\n1,2\n3,4\n")
    asked("streams", "create", "spelt", "--features", 2)
    given = [file if argument == "FILE" else argument for argument in arguments]
    said = shoal(*given) if given[0] in ("fit", "steams") else asked(*given)
    assert said.exit_code in (2, 4), said.output
    words = " ".join(said.output.replace("│", " ").split()).lower()
    assert f"did you mean '{nearest}'" in words or f"possible options: {nearest}" in words, said.output


def test_a_command_that_there_is_not_gets_those_that_there_are(shoal: Shoal) -> None:
    said = shoal("records", "show", "k")
    assert said.exit_code == 2
    assert "No such command 'show'. Choose get, lookup, list or delete." in said.output


def test_a_path_of_no_route_gets_the_nearest_one(real_shoal: Deliver) -> None:
    reply = real_shoal(httpx.Request("GET", "http://127.0.0.1/component"))
    assert reply.status_code == 404
    assert "did you mean '/components'? /docs lists" in json.loads(reply.read())["detail"]
    reply = real_shoal(httpx.Request("GET", "http://127.0.0.1/components?limti=3"))
    assert "did you mean 'limit'? " in json.loads(reply.read())["detail"]
