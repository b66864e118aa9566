"""A small honest server for the client's tests, with two components: by the sign of the first feature.

It keeps what it is sent, remembers idempotency keys, and refuses what the real one refuses; the tests that use it run
against the real service too (`conftest.py`). And a transport that loses, refuses and delays on demand.
"""

import fnmatch
import json
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import anyio.to_thread
import httpx
import msgspec
import numpy as np

Deliver: TypeAlias = Callable[[httpx.Request], httpx.Response]
Fault: TypeAlias = Literal["pass", "refuse", "lose", "cut"] | httpx.Response


class FakeStream:
    """What one stream holds."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.batches: list[np.ndarray[Any, Any]] = []
        self.answers: dict[str, tuple[bytes, int, int]] = {}  # key -> body, accepted, log offset

    @property
    def x(self) -> np.ndarray[Any, Any]:
        return np.concatenate(self.batches or [np.empty((0, self.settings["n_features"]))])


class FakeShoal:
    """The server; call `handle` with a request."""

    def __init__(self) -> None:
        self.streams: dict[str, FakeStream] = {}
        self.requests: list[httpx.Request] = []

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        parts = request.url.path.strip("/").split("/")
        if parts == ["readyz"]:
            return answer(200, {"status": "ready", "store": "memory", "streams": len(self.streams)})
        if parts == ["streams"]:
            asked = request.url.params
            names = [
                name
                for name in sorted(self.streams)
                if fnmatch.fnmatchcase(name, asked.get("name", "*")) and name > asked.get("cursor", "")
            ]
            page = names[: int(asked.get("limit", 1_000))]
            following = page[-1] if len(page) < len(names) else None
            return answer(200, {"streams": [self._about(name) for name in page], "next": following})
        if parts[0] == "streams" and len(parts) == 2:
            return self._stream(request, parts[1])
        name, rest = (parts[1], parts[2:]) if parts[0] == "streams" else ("default", parts)
        if name not in self.streams and name != "default":
            return problem(404, "unknown-stream", f"there is no stream {name!r}")
        verb = getattr(self, f"_{request.method.lower()}_{rest[0]}", None)
        return problem(404, "about:blank", "Not Found") if verb is None else verb(request, name, *rest[1:])

    def _head(self, name: str) -> dict[str, Any]:
        stream = self.streams.get(name)
        return {"stream": name, "incarnation": f"uuid-{name}", "log_offset": 0 if stream is None else len(stream.x)}

    def _about(self, name: str) -> dict[str, Any]:
        n = len(self.streams[name].x)
        status = "live" if n else "empty"
        more = {"points_seen": n, "status": status, "n_components": 2, "created_at": "2026-01-01T00:00:00Z"}
        return {**self._head(name), **more, "settings": self.streams[name].settings}

    def _stream(self, request: httpx.Request, name: str) -> httpx.Response:
        if request.method == "PUT":
            settings = json.loads(request.content)
            known = self.streams.setdefault(name, FakeStream(settings))
            if settings.get("n_features", known.settings["n_features"]) != known.settings["n_features"]:
                return problem(409, "stream-conflict", "n_features gives the stream its shape")
            known.settings.update(settings)
            return answer(200, self._about(name))
        if name not in self.streams:
            return problem(404, "unknown-stream", f"there is no stream {name!r}")
        if request.method == "DELETE":
            del self.streams[name]
            return httpx.Response(204)
        return answer(200, self._about(name))

    def _points(self, request: httpx.Request, name: str) -> np.ndarray[Any, Any] | httpx.Response:
        if request.headers["Content-Type"] != "application/msgpack":
            return problem(415, "unsupported-media-type", "send MessagePack")
        body = msgspec.msgpack.decode(request.content)
        x = np.frombuffer(body["x"], dtype=f"<{body['t']}").reshape(-1, body["d"])
        stream = self.streams.get(name)
        if stream is not None and x.shape[1] != stream.settings["n_features"]:
            return problem(400, "shape", f"points have {x.shape[1]} features, stream {name!r} expects another number")
        bad = np.flatnonzero(~np.isfinite(x).all(axis=1))
        return problem(400, "not-finite", f"row {bad[0]} holds nan", row=int(bad[0])) if len(bad) else x

    def _post_ingest(self, request: httpx.Request, name: str) -> httpx.Response:
        x = self._points(request, name)
        if isinstance(x, httpx.Response):
            return x
        stream = self.streams.setdefault(name, FakeStream({"n_features": x.shape[1]}))
        key = request.headers["Idempotency-Key"]
        known = stream.answers.get(key)
        if known is not None and known[0] != request.content:
            return problem(422, "idempotency-mismatch", "the key was used for another request")
        if known is None:
            stream.batches.append(x)
            stream.answers[key] = request.content, len(x), len(stream.x)
        _, accepted, offset = stream.answers[key]
        body = {**self._head(name), "accepted": accepted, "log_offset": offset}
        applied = {"components": (x[:, 0] > 0).astype(int).tolist()} if "wait" in request.url.params else {}
        if request.url.params.get("level") == "cluster":
            applied["clusters"] = applied["components"]
        headers = {} if known is None else {"Idempotency-Replayed": "true"}
        return answer(200 if applied else 202, body | applied, headers)

    def _get_components(self, request: httpx.Request, name: str, which: str | None = None) -> httpx.Response:
        x = self.streams[name].x if name in self.streams else np.empty((0, 1))
        sides = [x[x[:, 0] > 0], x[x[:, 0] <= 0]]
        found = [_component(1 - i, side, len(x)) for i, side in enumerate(sides) if len(side)]
        if which is not None:
            chosen = [c for c in found if c["id"] == int(which)]
            more = {"covariance": None, "live": True, "retired_at": None, "successors": []}
            more["lineage"] = [{"id": 7, "born_at": 1, "retired_at": 2}]
            missing = problem(404, "unknown-component", f"no component {which}")
            return answer(200, {**self._head(name), **chosen[0], **more}) if chosen else missing
        if int(request.url.params.get("min_offset", 0)) > len(x):
            return problem(400, "offset-beyond-log", "the log has not reached this offset")
        found.sort(key=lambda c: (-c["mass"], c["id"]))
        start = int(request.url.params.get("cursor", 0))
        stop = start + int(request.url.params.get("limit", 100))
        body = {"points_seen": len(x), "status": "live" if len(x) else "empty", "new_weight": 1 / (1 + len(x))}
        after = str(stop) if stop < len(found) else None
        return answer(200, {**self._head(name), **body, "components": found[start:stop], "next": after})

    def _get_clusters(self, request: httpx.Request, name: str, which: str | None = None) -> httpx.Response:
        """Each component is a cluster, or both are one."""
        components = json.loads(self._get_components(request, name).content)
        rows = [{key: one[key] for key in ("id", "weight", "mass")} for one in components["components"]]
        if int(request.url.params.get("n", 1)) > max(len(rows), 1):
            return problem(400, "setting", f"there are {len(rows)} components; give at most {len(rows)}")
        rows = [row | {"components": [row["id"]]} for row in rows]
        if request.url.params.get("n") == "1":
            weight, mass = (sum(row[key] for row in rows) for key in ("weight", "mass"))
            rows = [{"id": 0, "weight": weight, "mass": mass, "components": [0, 1]}]
        if which is not None:
            found = [row for row in rows if row["id"] == int(which)]
            if not found:
                return problem(404, "unknown-component", f"no cluster {which}")
            x = self.streams[name].x
            moments = {"mean": x.mean(axis=0).tolist(), "variance": x.var(axis=0).tolist()}
            return answer(200, {**self._head(name), **found[0], "rule": "number", **moments})
        rule = ("number" if "n" in request.url.params else "penalty") if rows else None
        head = {key: components[key] for key in ("points_seen", "status")}
        return answer(200, {**self._head(name), **head, "rule": rule, "clusters": rows})

    def _post_predict(self, request: httpx.Request, name: str) -> httpx.Response:
        if name not in self.streams or not len(self.streams[name].x):
            return problem(409, "no-points", "the stream has no points yet")
        x = self._points(request, name)
        if isinstance(x, httpx.Response):
            return x
        own = {1: 1, 0: 0} if request.url.params.get("level") == "cluster" else {}
        rows = [
            ({"cluster": own[c]} if own else {})
            | {"component": c, "log_density": -1.5, "novelty": 0.25, "responsibilities": [{"id": c, "p": 0.75}]}
            for c in (x[:, 0] > 0).astype(int).tolist()
        ]
        return answer(200, {**self._head(name), "predictions": rows})

    def _get_snapshot(self, request: httpx.Request, name: str) -> httpx.Response:
        return httpx.Response(200, content=b"snapshot:" + self.streams[name].x.tobytes())

    def _put_snapshot(self, request: httpx.Request, name: str) -> httpx.Response:
        if not request.content.startswith(b"snapshot:"):
            return problem(400, "snapshot-damaged", "the snapshot is damaged")
        return answer(200, {**self._head(name), "restored": True})


class FaultyTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Delivers to a server, except where the list of faults, one a request, says otherwise.

    refuse: nothing listens. cut: the connection ends before the server has the request. lose: the server has done it,
    and the reply is lost. A response: the server (or something before it) answers that instead. Then: pass.
    """

    def __init__(self, deliver: Deliver, faults: Iterable[Fault] = ()) -> None:
        self.deliver = deliver
        self.faults = list(faults)
        self.n_requests = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.n_requests += 1
        fault = self.faults.pop(0) if self.faults else "pass"
        if isinstance(fault, httpx.Response):
            return fault
        if fault == "refuse":
            raise httpx.ConnectError("connection refused", request=request)
        if fault == "cut":
            raise httpx.WriteError("connection reset", request=request)
        response = self.deliver(request)
        if fault == "lose":
            raise httpx.ReadError("connection reset", request=request)
        return response

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return await anyio.to_thread.run_sync(self.handle_request, request)


class Pauses(list[float]):
    """The pauses that a client asked for, instead of waiting; time passes as if it had."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now


def answer(status: int, body: Any, headers: dict[str, str] | None = None) -> httpx.Response:
    """A JSON answer."""
    return httpx.Response(status, json=body, headers=headers)


def problem(status: int, slug: str, detail: str, *, retry_after: float | None = None, **more: Any) -> httpx.Response:
    """A problem, as the service writes them."""
    kind = slug if ":" in slug else f"/problems/{slug}"
    body = {"type": kind, "title": slug, "status": status, "detail": detail, "retryable": status in (429, 503, 504)}
    headers = {"Content-Type": "application/problem+json"} | (
        {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    )
    return httpx.Response(status, content=json.dumps(body | more), headers=headers)


def _component(identity: int, x: np.ndarray[Any, Any], n: int) -> dict[str, Any]:
    return {
        "id": identity,
        "weight": len(x) / (n + 1),
        "mass": float(len(x)),
        "mean": x.mean(axis=0).tolist(),
        "variance": [None] * x.shape[1] if len(x) < 2 else x.var(axis=0).tolist(),
        "born_at": 1,
        "last_seen_at": n,
    }
