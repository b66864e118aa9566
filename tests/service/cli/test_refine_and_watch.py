"""`shoal refine` and `shoal watch`, against a server that answers as the real one does."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from typer.testing import Result

from shoal_service.wire.models import RefinementOut

RUNNING: dict[str, Any] = {
    "stream": "s", "incarnation": "i", "id": "r-1", "state": "running", "method": "vdp", "why": "asked",
    "created_at": "2026-01-01T00:00:00Z", "window": None, "attempts": 1, "progress": {"round": 3, "elbo": -1.5},
    "points_seen": 900, "window_rows": None, "bound_before": None, "bound_after": None, "components_before": None,
    "components_after": None, "tail_mass": None, "rounds": None, "seconds": None, "adopted": None, "reason": None,
}  # fmt: skip
ADOPTED = {
    **RUNNING, "state": "adopted", "progress": None, "window_rows": 900, "bound_before": -5210.25,
    "bound_after": -4890.5, "components_before": 7, "components_after": 9, "seconds": 1.92, "adopted": True,
}  # fmt: skip
EVENTS = (
    'retry: 1000\n\nid: i.4.0\nevent: split\ndata: {"kind": "split", "points_seen": 900, "parents": [1], '
    '"children": [1, 12], "reason": null}\n\n'
)


class Fake:
    """Answers in turn what a refinement has become; events once."""

    def __init__(self, *states: dict[str, Any]) -> None:
        self.states = list(states)
        self.asked: list[tuple[str, str, bytes]] = []

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.method, request.url.path, request.content))
        if request.url.path.endswith("/events"):
            if len(self.asked) > 1:
                return httpx.Response(404, json={"type": "/problems/unknown-stream", "detail": "gone"})
            return httpx.Response(200, text=EVENTS, headers={"content-type": "text/event-stream"})
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        RefinementOut.model_validate(state)
        return httpx.Response(202 if request.method == "POST" else 200, json=state)


@pytest.fixture
def against(shoal: Callable[..., Result], serve_on_loopback: Any) -> Callable[..., Result]:
    def run(fake: Fake, command: str, *arguments: str) -> Result:
        return shoal(command, "--url", serve_on_loopback(fake.handle), *arguments)

    return run


def test_refine_waits_and_says_what_came_of_it(against: Callable[..., Result]) -> None:
    fake = Fake(RUNNING, RUNNING, ADOPTED)
    result = against(fake, "refine", "--stream", "s", "--method", "fast-vdp", "--window", "60000")
    assert result.exit_code == 0
    assert "adopted; 7 components to 9, bound -5,210.2 to -4,890.5 nats over 900 points; 1.9 s" in result.stdout
    assert fake.asked[0][:2] == ("POST", "/streams/s/refine")
    assert json.loads(fake.asked[0][2]) == {"method": "fast-vdp", "window": 60000}
    assert fake.asked[1][:2] == ("GET", "/streams/s/refinements/r-1")


def test_refine_says_that_points_were_sent_several_times(against: Callable[..., Result]) -> None:
    assert "a typical point is there 2 times" in against(Fake({**ADOPTED, "copies": 2}), "refine").stdout
    assert "typical" not in against(Fake({**ADOPTED, "copies": 1}), "refine").stdout


def test_refine_need_not_wait(against: Callable[..., Result]) -> None:
    fake = Fake(RUNNING)
    result = against(fake, "refine", "--no-wait")
    assert (result.exit_code, len(fake.asked)) == (0, 1)
    assert result.stdout == "refinement r-1 of stream s: running\n"


def test_refine_prints_json(against: Callable[..., Result]) -> None:
    result = against(Fake(RUNNING, ADOPTED), "refine", "--json")
    assert json.loads(result.stdout) == ADOPTED


def test_what_is_not_adopted_is_no_error_and_what_has_failed_is(against: Callable[..., Result]) -> None:
    kept = {**ADOPTED, "state": "not-adopted", "adopted": False, "reason": "the bound rose by only 0 nats"}
    result = against(Fake(RUNNING, kept), "refine")
    assert result.exit_code == 0
    assert "not adopted" in result.stdout
    assert "the bound rose by only 0 nats" in result.stdout
    failed = {**RUNNING, "state": "failed", "adopted": False, "reason": "no result within 1800 s"}
    result = against(Fake(RUNNING, failed), "refine")
    assert result.exit_code == 5
    assert "no result within 1800 s" in result.stderr


def test_watch_prints_a_line_for_each_event_when_it_is_piped(against: Callable[..., Result]) -> None:
    result = against(Fake(RUNNING), "watch", "--stream", "s", "--after", "0")
    assert result.exit_code == 4, "the stream is gone in the end"
    assert result.stdout.splitlines() == [
        "id\tkind\tpoints_seen\tparents\tchildren\treason",
        "i.4.0\tsplit\t900\t1\t1,12\t",
    ]


def test_watch_prints_objects(against: Callable[..., Result]) -> None:
    result = against(Fake(RUNNING), "watch", "--json")
    (event,) = map(json.loads, result.stdout.splitlines())
    assert (event["id"], event["kind"], event["children"]) == ("i.4.0", "split", [1, 12])
