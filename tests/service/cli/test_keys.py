"""`shoal keys` on a store at rest and against a real server, and the key that every command sends."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from harness.server_log import listening_at
from harness.shoal_command import started
from harness.waiting import LONGEST_WAIT_S, eventually
from harness.web import WEB
from shoal_service.access import AccessControl
from shoal_service.client import AccessError, Client
from shoal_service.store import SqliteStore

Shoal = Callable[..., Result]
Parts = tuple[Callable[..., list[str]], Callable[[], dict[str, str]]]
SECRET = re.compile(r"shoal_[A-Za-z0-9_-]{43}\n")


def keys_in(folder: Path) -> list[Any]:
    store = SqliteStore(folder)
    access = AccessControl(store)
    try:
        return access.all_keys()
    finally:
        store.close()


# -- at rest


def test_a_key_made_at_rest_is_printed_and_nothing_else(shoal: Shoal, tmp_path: Path) -> None:
    data = tmp_path / "data"
    more = ["--stream", "sea-*", "--stream", "b", "--expires", "2099-01-31T12:00:00Z"]
    more += ["--limit", "requests_per_s=2.5", "--limit", "bytes_in_flight=1000000"]
    made = shoal("keys", "create", "--data", data, "--name", "gauge", "--scope", "write", *more)
    assert made.exit_code == 0, made.output
    assert SECRET.fullmatch(made.output), "stdout and stderr"
    (key,) = keys_in(data)
    assert (key.name, key.grant.scope.value, key.grant.streams) == ("gauge", "write", ("sea-*", "b"))
    assert key.grant.limits == (2.5, None, 1_000_000, None)
    assert key.as_plain()["expires_at"] == "2099-01-31T12:00:00Z"
    listed = shoal("keys", "list", "--data", data).stdout.splitlines()[1].split("\t")
    assert listed[-1] == "requests_per_s=2.5,bytes_in_flight=1000000"
    assert made.output.strip() not in (data / "shoal.sqlite3").read_bytes().decode("latin-1")


def test_keys_are_listed_and_revoked_at_rest_by_id_or_name(shoal: Shoal, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("a", "b", "b"):
        assert shoal("keys", "create", "--data", data, "--name", name, "--scope", "read").exit_code == 0
    listed = shoal("keys", "list", "--data", data)
    head, *lines = [line.split("\t") for line in listed.stdout.splitlines()]
    assert head == ["id", "name", "scope", "streams", "created_at", "expires_at", "last_used_at", "limits"]
    assert [line[1] for line in lines] == ["a", "b", "b"]
    assert [key["name"] for key in json.loads(shoal("keys", "list", "--data", data, "--json").stdout)["keys"]] == [
        "a",
        "b",
        "b",
    ]
    assert shoal("keys", "revoke", "a", "--data", data).exit_code == 0
    two = shoal("keys", "revoke", "b", "--data", data)
    assert two.exit_code == 2
    assert "2 keys have the name 'b'" in two.stderr
    assert shoal("keys", "revoke", lines[1][0], "--data", data).exit_code == 0
    assert [key.id for key in keys_in(data)] == [lines[2][0]]
    assert shoal("keys", "revoke", "nobody", "--data", data).exit_code == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "--scope", "read"], "--name"),
        (["create", "--name", "a"], "--scope"),
        (["create", "--name", "a", "--scope", "root"], "use one of read, write, admin"),
        (["create", "--name", "a", "--scope", "read", "--stream", "A"], "matches no stream"),
        (["create", "--name", "a", "--scope", "read", "--expires", "30"], "30d"),
        (["create", "--name", "a", "--scope", "read", "--expires", "2001-01-01T00:00:00Z"], "future"),
        (["create", "--name", "a", "--scope", "read", "--limit", "streams=1.5"], "streams=1.5 is not a limit"),
        (["create", "--name", "a", "--scope", "read", "--limit", "rows=5"], "requests_per_s"),
        (["create", "--name", "a", "--scope", "read", "--limit", "points_per_s=nan"], "not a limit"),
        (["create", "--name", "a", "--scope", "read", "--port", "1"], "remove --data"),
        (["list", "--url", "http://localhost:1"], "remove --data"),
        (["list"], "does not exist"),
        (["revoke", "a"], "does not exist"),
    ],
)
def test_wrong_commands_are_exit_2_and_make_no_store(
    shoal: Shoal, tmp_path: Path, arguments: list[str], words: str
) -> None:
    done = shoal("keys", *arguments, "--data", tmp_path / "data")
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.stderr.split())
    assert not (tmp_path / "data").exists()


def test_a_store_that_a_server_uses_is_asked_over_http(shoal: Shoal, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    done = shoal("keys", "create", "--name", "a", "--scope", "read", "--data", tmp_path)
    store.close()
    assert done.exit_code == 6
    assert "leave out --data to ask the server" in " ".join(done.stderr.split())


# -- a real server


@pytest.fixture(scope="module")
def served(process_parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """A server whose admin key was made at rest by another process: address, key, and its log."""
    command, environment = process_parts
    folder = tmp_path_factory.mktemp("keyed")
    create = command("keys", "create", "--name", "admin", "--scope", "admin", "--data", folder / "data")
    made = subprocess.run(create, env=environment(), capture_output=True, text=True, timeout=120, check=True)
    assert SECRET.fullmatch(made.stdout)
    assert made.stderr == ""
    process = started(["serve", "--port", "0", "--data", str(folder / "data")], folder / "log")
    try:
        address = listening_at(folder / "log")
        eventually(lambda: WEB.get(f"{address}/readyz").status_code == 200)
        yield address, made.stdout.strip(), folder / "log"
        process.send_signal(signal.SIGTERM)
        process.wait(LONGEST_WAIT_S)
    finally:
        process.kill()


def status(address: str, key: str) -> int:
    return WEB.get(f"{address}/streams", headers={"Authorization": f"Bearer {key}"}).status_code


@pytest.mark.system
def test_a_key_made_over_http_works_until_another_process_revokes_it(
    served: tuple[str, str, Path], process_parts: Parts, shoal: Shoal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (address, admin, log), (command, environment) = served, process_parts

    def in_a_process(*arguments: object) -> "subprocess.CompletedProcess[str]":
        own = environment() | {"SHOAL_API_KEY": admin, "SHOAL_URL": address}
        return subprocess.run(command(*arguments), env=own, capture_output=True, text=True, timeout=120)

    def keys_by(key: str) -> Result:
        monkeypatch.setenv("SHOAL_API_KEY", key)
        return shoal("keys", "list", "--json", "--url", address)

    assert WEB.get(f"{address}/streams").status_code == 401
    made = in_a_process("keys", "create", "--name", "reader", "--scope", "read", "--expires", "1h")
    assert (made.returncode, made.stderr) == (0, "")
    assert SECRET.fullmatch(made.stdout)
    reader = made.stdout.strip()
    assert status(address, reader) == 200

    refused = keys_by(reader)
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert "needs the scope 'admin'" in " ".join(refused.stderr.split())
    listed = json.loads(keys_by(admin).stdout)["keys"]
    assert [key["name"] for key in listed] == ["admin", "reader"]
    assert all(key["last_used_at"] for key in listed)

    assert (in_a_process("keys", "revoke", listed[1]["id"]).stdout, status(address, reader)) == ("", 401)
    assert keys_by("").exit_code == 4
    written = log.read_text()
    assert "/keys" in written
    assert admin not in written
    assert reader not in written


@pytest.mark.system
def test_every_command_sends_the_key(
    served: tuple[str, str, Path], shoal: Shoal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, admin, _ = served
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(size=(50, 2)))
    commands: list[list[object]] = [
        ["ingest", tmp_path / "x.npy", "--wait"],
        ["components"],
        ["predict", tmp_path / "x.npy"],
        ["refine", "--no-wait"],
        ["snapshot", "save", tmp_path / "s.shoal"],
        ["snapshot", "restore", tmp_path / "s.shoal"],
    ]
    for command in commands:
        without = shoal(*command, "--url", address)
        assert without.exit_code == 4, (command, without.output)
        assert "a key is needed" in without.stderr
        done = shoal(*command, "--url", address, "--api-key", admin)
        assert done.exit_code == 0, (command, done.output)
    monkeypatch.setenv("SHOAL_API_KEY", admin)
    assert shoal("components", "--url", address).exit_code == 0
    assert shoal("components", "--url", address, "--api-key", "shoal_wrong").exit_code == 4


@pytest.mark.system
def test_the_client_takes_a_key_and_finds_it_in_the_environment(
    served: tuple[str, str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, admin, _ = served
    with Client(address) as client, pytest.raises(AccessError) as caught:
        client.streams()
    assert (caught.value.status, caught.value.type, caught.value.retryable) == (401, "unauthenticated", False)
    with Client(address, api_key=admin) as client:
        made = client.create_access_key("gauge", "read", streams=["sea-*"])
        assert made.key not in repr(made)
        assert (made.info.scope, made.info.streams) == ("read", ("sea-*",))
        assert client.access_keys()[-1].id == made.info.id
    monkeypatch.setenv("SHOAL_API_KEY", made.key)
    with Client(address) as client:
        assert client.streams() == []
        with pytest.raises(AccessError, match="'admin'") as caught:
            client.revoke_access_key(made.info.id)
        assert caught.value.type == "forbidden"
        assert made.key not in repr(client._http.headers)
    with Client(address, api_key="") as client, pytest.raises(AccessError):
        client.streams()


def test_a_key_that_cannot_be_sent_is_refused_without_showing_it() -> None:
    for key in ("two words-of-a-key", "line\nbreak-of-a-key", "sn\N{SNOWMAN}w-of-a-key"):
        with pytest.raises(AccessError) as caught:
            Client("http://127.0.0.1:1", api_key=key)
        assert "of-a-key" not in str(caught.value)


def test_an_address_with_a_user_keeps_authorization_for_that_user() -> None:
    with Client("http://user:password@127.0.0.1:1", api_key="shoal_key") as client:
        assert client._http.headers["api-key"] == "shoal_key"
        assert "Authorization" not in client._http.headers


@pytest.mark.system
def test_a_key_in_the_environment_is_on_no_process_list(served: tuple[str, str, Path]) -> None:
    _, admin, _ = served
    seen = 0
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes()
        except OSError:
            continue
        seen += 1
        if int(process.parent.name) != os.getpid():
            assert admin.encode() not in line
    assert seen > 1
