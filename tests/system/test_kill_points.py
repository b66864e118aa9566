"""kill -9 at every named point of write, apply, checkpoint, trim and adoption, over both stores.

After each death the log holds every acknowledged batch once and at its place, and the state is, to the bit, the
library's replay of the log from its beginning, and so is each record. A failure prints the rounds that lead to it.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.redis_server import running_redis

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
BATCHES_A_ROUND = 5
SHORT_POINTS = 4
"""Points that the short form tries of each store. The long form (`make soak`) tries all, many times."""


class Mortal:
    """The process of `harness.kill_points`, over one store."""

    def __init__(self, store: dict[str, Any]) -> None:
        paths = [str(ROOT / folder) for folder in ("core", "service", "tests")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness.kill_points"],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.store = store

    def ask(self, **asked: Any) -> list[dict[str, Any]]:
        """What a forked process tells, until it ends."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({**self.store, **asked}) + "\n")
        self.process.stdin.flush()
        told = []
        for line in self.process.stdout:
            told.append(json.loads(line))
            if "end" in told[-1]:
                return told
        raise AssertionError(f"the process has ended with {self.process.wait()}")

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mortal]:
    if request.param == "sqlite":
        made = Mortal({"store": "sqlite", "place": str(tmp_path)})
        yield made
        made.close()
        return
    with running_redis(request.getfixturevalue("redis_binary"), tmp_path) as server:
        made = Mortal({"store": "redis", "place": str(tmp_path), "url": server.url})
        yield made
        made.close()


def told(answers: list[dict[str, Any]], what: str) -> list[Any]:
    return [answer[what] for answer in answers if what in answer]


@pytest.mark.parametrize(
    ("seed", "passes"),
    [
        (int(os.environ.get("SHOAL_KILL_SEED", "1")), 0),
        pytest.param(2, 6, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_whatever_point_it_dies_at_nothing_is_lost_and_nothing_is_learnt_twice(
    mortal: Mortal, seed: int, passes: int
) -> None:
    rng = random.Random(seed)
    (points,) = told(mortal.ask(do="points"), "points")
    chosen = rng.sample(points, SHORT_POINTS) if passes == 0 else points * passes
    rng.shuffle(chosen)
    rounds: list[dict[str, Any]] = []
    acks: dict[int, int] = {}
    killed = 0
    total = BATCHES_A_ROUND * len(chosen)
    while chosen or len(acks) < total:
        point = chosen.pop() if chosen else None  # at the end, lives that nothing ends
        upto = min(total, BATCHES_A_ROUND * (len(rounds) + 1))
        asked = {"point": point, "after": rng.random() < 0.5, "nth": rng.randrange(1, 4), "upto": upto}
        rounds.append(asked)
        answers = mortal.ask(do="round", orderly=point is None, **asked)
        trace = f"seed {seed}, SHOAL_KILL_SEED={seed} replays it; rounds {rounds[-6:]}; last told {answers[-3:]}"
        assert not told(answers, "failed"), trace
        killed += answers[-1]["end"] == "killed"
        assert (answers[-1]["end"] == "killed") or told(answers, "survived"), trace
        for n, offset in told(answers, "ack"):
            assert acks.setdefault(n, offset) == offset, f"batch {n} was given another place; {trace}"
        found = mortal.ask(do="verify", upto=asked["upto"], acks=list(acks.items()), states=told(answers, "state"))
        assert found[0] == {"wrong": ""}, f"{found}; {trace}"
    print(f"{mortal.store['store']}: {killed} of {len(rounds)} lives killed, {len(acks)} batches")  # noqa: T201
    assert sorted(acks) == list(range(total))
    assert killed >= len(rounds) / 2, f"only {killed} of {len(rounds)} rounds ended at their point"
