"""`shoal sources` and the same of the client, against the real service; test_configured_sources.py runs sources."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fake_shoal import Deliver
from typer.testing import Result

from shoal_service.client import Client, ConfiguredSource, InvalidRequestError, NotFoundError

Shoal = Callable[..., Result]
BODY = {"kind": "redis-stream", "enabled": False, "redis_url": "redis://:hush@example.invalid:6379/2", "keys": ["k"]}


@pytest.fixture
def asked(shoal: Shoal, serve_on_loopback: Callable[[Deliver], str], real_shoal: Deliver) -> Shoal:
    """Run a command against the real service."""
    url = serve_on_loopback(real_shoal)

    def run(*arguments: object, **more: Any) -> Result:
        return shoal("sources", *arguments, "--url", url, **more)

    return run


@pytest.fixture
def client(real_shoal: Deliver) -> Client:
    return Client(transport=httpx.MockTransport(real_shoal), retries=0)


def json_of(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_source_from_its_definition_to_its_end(
    asked: Shoal, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_stream("wired", n_features=2)
    file = tmp_path / "source.json"
    file.write_text(json.dumps(BODY))
    on = ("--stream", "wired")
    made = json_of(asked("set", "readings", file, *on, "--json"))
    assert (made["name"], made["state"]["state"]) == ("readings", "stopped")
    assert made["settings"]["redis_url"] == "redis://:***@example.invalid:6379/2"
    changed = asked("set", "readings", "-", *on, "--json", stdin=json.dumps({**BODY, "batch_size": 10}).encode())
    assert json_of(changed)["settings"]["batch_size"] == 10
    shown = asked("show", "readings", *on)
    assert "hush" not in shown.output
    lines = dict(line.split("\t") for line in shown.stdout.splitlines())
    assert (lines["kind"], lines["state"], lines["keys"]) == ("redis-stream", "stopped", '["k"]')
    header, row = [line.split("\t") for line in asked("list", *on).stdout.splitlines()]
    assert dict(zip(header, row, strict=True))["name"] == "readings"
    assert json_of(asked("list", *on, "--json"))["configured"][0]["enabled"] is False
    assert json_of(asked("resume", "readings", *on, "--json"))["enabled"] is True
    assert json_of(asked("pause", "readings", *on, "--json"))["enabled"] is False
    monkeypatch.setattr("shoal_service.cli.sources.for_people", lambda: True)
    assert "stopped" in asked("list", *on).stdout
    done = json_of(asked("delete", "readings", *on, "--keep-positions", "--json"))
    assert done == {"deleted": "readings", "kept_positions": True}
    again = asked("delete", "readings", *on)
    assert again.exit_code == 4
    assert "'readings'" in again.stderr
    assert "there are no sources" in asked("list", *on).stdout


def test_positions_are_forgotten(asked: Shoal, real_shoal: Deliver) -> None:
    with Client(stream="forgetful", transport=httpx.MockTransport(real_shoal)) as client:
        client.ingest_step(np.zeros((1, 2)), source="taps", partition="3", before=None, after="1", create=True)
        client.ingest_step(np.zeros((1, 2)), source="taps", partition="4", before=None, after="1")
        on = ("--stream", "forgetful")
        assert json_of(asked("forget", "taps", "--partition", "3", *on, "--json"))["partition"] == "3"
        assert [one.partition for one in client.sources()] == ["4"]
        assert asked("forget", "taps", *on).stdout == "positions of source taps are forgotten\n"
        assert client.sources() == []
        assert asked("forget", "taps", *on).exit_code == 4


@pytest.mark.parametrize(
    ("text", "said"), [("{", "is not JSON"), ("[]", "no JSON object with a kind"), ('{"kind": 1}', "with a kind")]
)
def test_a_file_that_is_no_source(asked: Shoal, text: str, said: str) -> None:
    found = asked("set", "readings", "-", stdin=text.encode())
    assert found.exit_code == 2
    assert said in found.stderr


def test_a_file_that_is_not_there(asked: Shoal, tmp_path: Path) -> None:
    found = asked("set", "readings", tmp_path / "none.json")
    assert found.exit_code == 2
    assert found.stderr == f"error: cannot read {tmp_path}/none.json: No such file or directory\n"


def test_the_client_has_the_same(client: Client) -> None:
    client.create_stream("wired2", n_features=2)
    with Client(stream="wired2", transport=client._http._transport, retries=0) as wired:
        settings = {name: value for name, value in BODY.items() if name not in ("kind", "enabled")}
        made = wired.put_source("readings", "redis-stream", settings, enabled=False)
        assert isinstance(made, ConfiguredSource)
        assert (made.stream, made.name, made.enabled, made.positions) == ("wired2", "readings", False, ())
        assert wired.configured_source("readings") == made
        assert [one.name for one in wired.configured_sources()] == ["readings"]
        with pytest.raises(InvalidRequestError, match="did you mean 'keys'"):
            wired.put_source("readings", "redis-stream", {**settings, "key": "k"})
        wired.delete_source("readings")
        with pytest.raises(NotFoundError):
            wired.configured_source("readings")
