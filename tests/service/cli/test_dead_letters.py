"""`shoal dead-letters`, against a server that answers as the real one does, and on a folder of data."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import Result

from harness import earlier_stores
from shoal_service.wire.models import DeadLetterOut, DeadLettersOut, RequeueOut

ROW: dict[str, Any] = {"seq": 17, "log_offset": 2000, "n_points": 2, "n_bytes": 48, "reason": "ValueError: no"}
OF = {"stream": "s", "incarnation": "i"}


def answer(request: httpx.Request) -> httpx.Response:
    path = request.url.path.removeprefix("/streams/s")
    if path == "/dead-letters":
        body: dict[str, Any] = {**OF, "dead_letters": [ROW]}
        DeadLettersOut.model_validate(body)
        return httpx.Response(200, json=body)
    if path == "/dead-letters/17":
        body = {**OF, **ROW, "points": [[1.5, 2.0], [0.25, 4.0]]}
        DeadLetterOut.model_validate(body)
        return httpx.Response(200, json=body)
    if (request.method, path) == ("POST", "/dead-letters/17/requeue"):
        body = {**OF, "accepted": 2, "log_offset": 2102}
        RequeueOut.model_validate(body)
        return httpx.Response(202, json=body, headers={"Idempotency-Replayed": "true"})
    problem = {"type": "/problems/unknown-dead-letter", "title": "none", "status": 404, "detail": "no dead letter"}
    return httpx.Response(404, json=problem, headers={"content-type": "application/problem+json"})


@pytest.fixture
def letters(shoal: Callable[..., Result], serve_on_loopback: Any) -> Callable[..., Result]:
    url = serve_on_loopback(answer)
    return lambda *arguments: shoal("dead-letters", *arguments, "--url", url, "--stream", "s")


def test_over_http(letters: Callable[..., Result]) -> None:
    lines = letters("list").stdout.splitlines()
    assert lines == ["seq\tlog_offset\tn_points\tn_bytes\treason", "17\t2000\t2\t48\tValueError: no"]
    assert [one["seq"] for one in json.loads(letters("list", "--json").stdout)] == [17]
    assert letters("show", 17).stdout.splitlines() == [
        "entry 17 of stream s, 2 points: ValueError: no", "1.5\t2.0", "0.25\t4.0",
    ]  # fmt: skip
    assert "was appended before: 2 points, log offset 2,102" in letters("requeue", 17).stdout
    assert json.loads(letters("requeue", 17, "--json").stdout)["replayed"] is True
    missing = letters("show", 5)
    assert missing.exit_code == 4
    assert "no dead letter" in missing.stderr


def test_on_a_folder(shoal: Callable[..., Result], tmp_path: Path) -> None:
    folder = earlier_stores.unpack_folder("0.1.0", tmp_path / "data")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    found = shoal("dead-letters", "list", "--data", folder, "--stream", "axes")
    assert found.stdout.splitlines()[1].startswith("5\t402\t2\t9\tMalformedBodyError")
    shown = shoal("dead-letters", "show", 5, "--data", folder, "--stream", "axes")
    assert shown.stdout.splitlines()[-1] == "its payload holds no points that can be read"
    assert shoal("dead-letters", "list", "--data", folder, "--stream", "plane", "--json").stdout == "[]\n"
    assert shoal("dead-letters", "show", 6, "--data", folder, "--stream", "axes").exit_code == 4
    assert shoal("dead-letters", "list", "--data", folder, "--stream", "none").exit_code != 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
