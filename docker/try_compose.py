"""Test docker-compose.yml with real containers: python3 docker/try_compose.py [--keep]

The script sends points, predicts, and asks for a refinement that must be adopted. It runs `down` and `up`. It kills
every container in turn, and the refiner also in the middle of a refinement. It stops Redis from within, and the
restart policy must start it again. After each step, the components must be the same to the last digit, and every
acknowledged point must be counted once. While nobody sends anything, the processes must publish and compute next to
nothing. At the end, no process may have compiled a kernel.

The script needs a Docker engine with Compose v2 and only the standard library. Without an engine, it exits with 77 and
says why. It uses a project name, a port and a volume of its own.
"""

import argparse
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NO_ENGINE = 77
CENTRES = [(4.0 * i, 4.0 * j) for i in range(3) for j in range(3)]
CORNERS = [[0.0, 0.0], [8.0, 0.0], [0.0, 8.0], [8.0, 8.0]]
SETTINGS = {"n_features": 2, "warmup_points": 300, "refinement": None}
"""No automatic refinement: otherwise components could change between two comparisons."""
REFINEMENT_S = 120.0
IDLE_S, IDLE_WITHIN_S = 10.0, 120.0
"""How long the idle processes are watched, and the time until they must be idle."""
MESSAGES_PER_S, SHARE_OF_A_CORE = 5.0, 0.03
"""What they may publish together and what each may compute in that time."""


def missing() -> str | None:
    """Return why this script cannot run here, or None if it can."""
    if shutil.which("docker") is None:
        return "docker is not on PATH"
    for words in (["info", "--format", "{{.ServerVersion}}"], ["compose", "version"]):
        try:
            done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=15)
        except subprocess.TimeoutExpired:
            return f"`docker {' '.join(words)}` does not answer"
        if done.returncode:
            return f"`docker {' '.join(words)}` fails: {(done.stderr or done.stdout).strip().splitlines()[0]}"
    return None


class Compose:
    """The compose project under test."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.name = f"shoal-try-{os.getpid()}"
        self.url = f"http://127.0.0.1:{port}"
        self._environment = {**os.environ, "PORT": str(port), "IMAGE": os.environ.get("IMAGE", self.name)}
        self._key = ""

    def run(self, *words: str, timeout_s: float = 1800.0) -> str:
        """Run `docker compose WORDS` and return its standard output."""
        command = ["docker", "compose", "--project-name", self.name, "--file", str(ROOT / "docker-compose.yml"), *words]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=timeout_s)
        if done.returncode:
            raise SystemExit(f"$ docker compose {' '.join(words)}\n{done.stdout}{done.stderr}{self._logs()}")
        return done.stdout

    def up(self) -> None:
        """Start the containers that do not run, wait until all are healthy, and read the admin key."""
        self.run("up", "--detach", "--wait", "--wait-timeout", "180")
        key = self.run("exec", "--no-TTY", "api", "cat", "/keys/admin.key").strip()
        if not key or self._key not in ("", key):
            raise SystemExit("the admin key is missing, or another one than before")
        self._key = key

    def status(self, path: str, key: str) -> int:
        """Return the status of an answer to GET with this key."""
        request = urllib.request.Request(self.url + path, headers={"api-key": key} if key else {})
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return int(error.code)

    def ask(self, method: str, path: str, body: Any = None, *, timeout_s: float = 60.0, **headers: str) -> Any:
        """Return the JSON answer. Retry while the service is not ready or does not answer."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}", **headers}
        request = urllib.request.Request(self.url + path, data, sent)
        request.method = method
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as reply:
                    return json.loads(reply.read() or b"null")
            except OSError as error:  # also HTTPError
                status = getattr(error, "code", None)
                if status not in (None, 503, 504) or time.monotonic() > deadline:
                    detail = error.read().decode() if hasattr(error, "read") else ""
                    raise SystemExit(f"{method} {path}: {error} {detail}{self._logs()}") from None
                time.sleep(0.2)

    def compiled(self, service: str) -> float:
        """Return how many kernels a service has compiled since its start, from its metrics."""
        program = (
            "import pathlib, urllib.request as u; key = pathlib.Path('/keys/admin.key'); "
            "sent = {'api-key': key.read_text().strip()} if key.exists() else {}; "
            "print(u.urlopen(u.Request('http://127.0.0.1:8000/metrics', headers=sent)).read().decode())"
        )
        lines = self.run("exec", "--no-TTY", service, "python", "-c", program).splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("shoal_kernels_compiled_total "))

    def published(self) -> int:
        """Return how many messages were published through Redis since it started."""
        stats = self.run("exec", "--no-TTY", "redis", "redis-cli", "info", "commandstats")
        lines = [line for line in stats.splitlines() if line.startswith("cmdstat_publish:")]
        return int(lines[0].split("calls=")[1].split(",")[0]) if lines else 0

    def cpu_s(self, service: str) -> float:
        """Return the CPU time of a container's first process since its start."""
        fields = self.run("exec", "--no-TTY", service, "cat", "/proc/1/stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100.0  # utime and stime, in hundredths on every Linux

    def compiled_by_refining(self) -> int:
        """Return how many kernels a new process compiles for one pass, a refinement and a batch fit."""
        program = (
            "import numpy as np\nfrom numba.core import event\n"
            "with event.install_recorder('numba:compile') as seen:\n"
            "    from shoal import DPMixture, StreamingDPMixture\n"
            "    x = np.random.default_rng(0).normal(size=(1500, 2)) + 9.0 * (np.arange(1500)[:, None] % 2)\n"
            "    model = StreamingDPMixture().partial_fit(x)\n"
            "    model.refine(); model.predict(x); DPMixture(method='fast-vdp').fit(x)\n"
            "print(sum(e.is_start for _, e in seen.buffer))"
        )
        entrypoint = ["--env", "SHOAL_COMMAND=python", "refiner", "/opt/shoal/entrypoint.sh"]
        return int(self.run("exec", "--no-TTY", *entrypoint, "-c", program))

    def end(self, *, images: bool) -> None:
        """Remove the containers and the data."""
        self.run("down", "--volumes", "--timeout", "30")
        if images:
            subprocess.run(["docker", "image", "rm", self.name], capture_output=True)

    def _logs(self) -> str:
        command = ["docker", "compose", "--project-name", self.name, "logs", "--no-color", "--tail", "100"]
        shown = subprocess.run(command, env=self._environment, capture_output=True, text=True, cwd=ROOT).stdout
        lines = [line for line in shown.splitlines() if '"event":"request"' not in line]
        return "\n".join(["", *lines[-40:]])


def rounded(answer: Any) -> Any:
    """Round numbers to nine digits. The last digits differ for a process that answers while it loads its kernels."""
    if isinstance(answer, dict):
        return {name: rounded(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return [rounded(value) for value in answer]
    return float(f"{answer:.9g}") if isinstance(answer, float) else answer


class Trial:
    """A stream and its last known state."""

    def __init__(self, compose: Compose, name: str) -> None:
        self._compose = compose
        self._name = name
        self._path = f"/streams/{name}"
        self._random = random.Random(5)
        self._sent = 0
        self._known: Any = None

    def create(self) -> None:
        """Create the stream."""
        self._compose.ask("PUT", self._path, SETTINGS)

    def send(self, n_batches: int) -> None:
        """Send batches of 200 points of nine clusters, each with its own key, and wait until they are learned."""
        for _ in range(n_batches):
            centres = self._random.choices(CENTRES, k=200)
            points = [[self._random.gauss(x, 1.0), self._random.gauss(y, 1.0)] for x, y in centres]
            key = {"Idempotency-Key": f"{self._name}-{self._sent}"}
            self._sent += self._compose.ask("POST", f"{self._path}/ingest", {"points": points}, **key)["accepted"]
        self._known = self._look()

    def check(self, after: str) -> None:
        """Check that the components are the same and that every acknowledged point is counted once."""
        seen = self._look()
        if seen != self._known:
            raise SystemExit(f"after {after}: {json.dumps(seen)[:600]}\nbefore: {json.dumps(self._known)[:600]}")
        print(
            f"ok: {after}: {len(seen['components'])} components of {seen['points_seen']} points, the same", flush=True
        )

    def ask_refinement(self) -> str:
        """Ask for a refinement and return its path."""
        asked = self._compose.ask("POST", f"{self._path}/refine", **{"Idempotency-Key": "asked-for"})
        return f"{self._path}/refinements/{asked['id']}"

    def wait_until_it_runs(self, refinement: str) -> None:
        """Wait until the first attempt at the refinement runs."""
        until = time.monotonic() + REFINEMENT_S
        while (found := self._compose.ask("GET", refinement))["state"] != "running":
            if found["adopted"] is not None or time.monotonic() > until:
                raise SystemExit(f"the refinement did not reach the state running: {json.dumps(found)[:600]}")
            time.sleep(0.02)

    def check_adopted(self, refinement: str, after: str) -> int:
        """Check that it is adopted and that readers see another mixture of the same points. Return its attempts."""
        until = time.monotonic() + REFINEMENT_S
        while (found := self._compose.ask("GET", refinement))["adopted"] is None:
            if time.monotonic() > until:
                raise SystemExit(f"after {after}: not finished within {REFINEMENT_S:g} s: {json.dumps(found)[:600]}")
            time.sleep(0.1)
        before, self._known = self._known, self._look()
        better = found["state"] == "adopted" and found["bound_after"] > found["bound_before"]
        if not better or self._known["components"] == before["components"]:
            raise SystemExit(f"after {after}: {json.dumps(found)[:600]}")
        gain, seconds, attempts = found["bound_after"] - found["bound_before"], found["seconds"], found["attempts"]
        print(f"ok: {after}: adopted in {seconds:.1f} s at attempt {attempts}, the bound {gain:.1f} higher", flush=True)
        return int(attempts)

    def _look(self) -> Any:
        found = self._compose.ask("GET", f"{self._path}/components?min_offset={self._sent}&timeout=20")
        if not found["points_seen"] == found["log_offset"] == self._sent:
            raise SystemExit(f"{self._sent} points were acknowledged, and the stream has {found['points_seen']}")
        predicted = self._compose.ask("POST", f"{self._path}/predict", {"points": [*CORNERS, [90.0, 90.0]]})
        if (
            predicted["predictions"][-1]["novelty"] < 0.99
            or len({p["component"] for p in predicted["predictions"]}) < 4
        ):
            raise SystemExit(f"predictions are wrong: {json.dumps(predicted)[:600]}")
        return found | {"predictions": rounded(predicted["predictions"])}


def trial(compose: Compose) -> None:
    """Run all steps in order."""
    stream = Trial(compose, "default")
    compose.up()
    check_keys(compose)
    stream.create()
    stream.send(10)
    stream.check("ingest and predict")
    if stream.check_adopted(stream.ask_refinement(), "a refinement was asked for") != 1:
        raise SystemExit("a refinement that nothing stopped needed more than one attempt")
    compose.run("down", "--timeout", "30")
    compose.up()
    stream.check("down and up")
    for service in ("learner", "api", "redis", "refiner"):
        kill(compose, service)
        stream.check(f"kill -9 of {service}")
        stream.send(3)
        stream.check("more points after it")
    compose.run("exec", "--no-TTY", "redis", "redis-cli", "shutdown")
    stream.send(3)
    stream.check("a stop of Redis from within and a restart by its policy")
    try_kill_while_refining(compose)
    stream.check("the steps on another stream")
    check_idle(compose)
    check_nothing_compiles(compose)


def check_idle(compose: Compose) -> None:
    """Check that the processes publish and compute next to nothing while nobody sends anything."""
    services, deadline = ("api", "learner", "refiner"), time.monotonic() + IDLE_WITHIN_S

    def told(rate: float, shares: list[float]) -> str:
        parts = [f"{one} {share:.1%}" for one, share in zip(services, shares, strict=True)]
        return f"{rate:.1f} messages a second; of a core: {', '.join(parts)}"

    while True:
        messages, busy, began = compose.published(), [compose.cpu_s(one) for one in services], time.monotonic()
        time.sleep(IDLE_S)
        took = time.monotonic() - began
        rate = (compose.published() - messages) / took
        shares = [(compose.cpu_s(one) - before) / took for one, before in zip(services, busy, strict=True)]
        if rate < MESSAGES_PER_S and max(shares) < SHARE_OF_A_CORE:
            print(f"ok: idle: {told(rate, shares)}", flush=True)
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"the idle processes are busy: {told(rate, shares)}")


def check_keys(compose: Compose) -> None:
    """Check that requests need a key, that the admin key makes others, and that a revoked one opens nothing."""
    made = compose.ask("POST", "/keys", {"name": "trial", "scope": "read"})
    seen = [compose.status("/streams", key) for key in ("", "shoal_wrong", made["key"])]
    seen.append(compose.status("/keys", made["key"]))
    compose.ask("DELETE", f"/keys/{made['id']}")
    seen.append(compose.status("/streams", made["key"]))
    if seen != [401, 401, 200, 403, 401] or compose.status("/readyz", "") != 200:
        raise SystemExit(f"without a key, with a wrong, a good, a weak and a revoked one: {seen}")
    print("ok: requests need a key; the generated one makes and revokes others", flush=True)


def kill(compose: Compose, service: str) -> None:
    """Kill a container with SIGKILL and start it again."""
    compose.run("kill", "--signal", "SIGKILL", service)
    compose.up()


def try_kill_while_refining(compose: Compose) -> None:
    """Kill the refiner in the middle of a refinement. The next one must start the refinement again and finish it.

    A refinement may end before the kill comes. Then a stream with more points is tried.
    """
    after = "kill -9 of refiner in the middle of a refinement"
    for n_batches in (20, 40, 80, 160):
        stream = Trial(compose, f"refined-{n_batches}")
        stream.create()
        stream.send(n_batches)
        refinement = stream.ask_refinement()
        stream.wait_until_it_runs(refinement)
        kill(compose, "refiner")
        if stream.check_adopted(refinement, after) == 2:
            break
        print(f"the refinement of {200 * n_batches} points ended before the kill", flush=True)
    else:
        raise SystemExit("no refinement took long enough to be killed in its middle")
    kill(compose, "learner")
    stream.check("kill -9 of learner after an adoption")


def check_nothing_compiles(compose: Compose) -> None:
    """Check that no process has compiled a kernel since its start, and that a refinement compiles none."""
    for service in ("api", "learner", "refiner"):
        if (n := compose.compiled(service)) != 0:
            raise SystemExit(f"{service} compiled {n:.0f} kernels; the image should contain all of them")
    if (n := compose.compiled_by_refining()) != 0:
        raise SystemExit(f"a process that refines compiles {n} kernels; the image should contain all of them")
    print("ok: api, learner and refiner compiled no kernel, and a refinement compiles none")


def main() -> None:
    """Build the image, run the test, and remove everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the containers running and print their address")
    keep = parser.parse_args().keep
    if (reason := missing()) is not None:
        print(f"skipped: {reason}", file=sys.stderr)
        sys.exit(NO_ENGINE)
    compose = Compose()
    built = "IMAGE" not in os.environ
    try:
        if built:
            timed("build", lambda: compose.run("build"))
        timed("trial", lambda: trial(compose))
    finally:
        if keep:
            print(f"kept: {compose.url}, docker compose --project-name {compose.name} ...")
        else:
            compose.end(images=built)


def timed(what: str, work: Callable[[], object]) -> None:
    """Do the work and print how long it took."""
    began = time.monotonic()
    work()
    print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
