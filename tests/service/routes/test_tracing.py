"""Spans for OpenTelemetry, seen by the exporter in memory of its SDK."""

import asyncio
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shoal_service.errors import StoreUnavailableError
from shoal_service.refining import child
from shoal_service.streams.refinement import process
from shoal_service.tracing import span, tracing

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans that have ended, of this test alone. OpenTelemetry itself has one provider for a whole process."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


async def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    """The span of that name, as soon as it has ended."""
    until = time.monotonic() + 120
    while not (found := [one for one in spans.get_finished_spans() if one.name == name]):
        assert time.monotonic() < until, [one.name for one in spans.get_finished_spans()]
        await asyncio.sleep(0.01)
    return found[0]


def attributes(one: ReadableSpan) -> dict[str, Any]:
    return dict(one.attributes or {})


async def test_a_batch_leaves_the_spans_of_its_request_its_append_and_its_application(
    spans: InMemorySpanExporter, running: Any
) -> None:
    await running.http.put("/streams/s", json={"n_features": 2})
    reply = await running.http.post(
        "/streams/s/ingest?wait=applied", json={"points": [[0.0, 1.0], [2.0, 3.0]]}, headers={"traceparent": PARENT}
    )
    assert reply.status_code == 200
    request = await named(spans, "POST /streams/{stream}/ingest")
    assert (request.kind, request.status.status_code) == (trace.SpanKind.SERVER, trace.StatusCode.UNSET)
    assert attributes(request) == {
        "http.request.method": "POST",
        "http.route": "/streams/{stream}/ingest",
        "http.response.status_code": 200,
    }
    assert request.parent is not None, "the trace of the client goes on"
    assert f"{request.parent.trace_id:032x}-{request.parent.span_id:016x}" == PARENT[3:-3]
    append = await named(spans, "append")
    assert append.parent == request.context
    assert attributes(append) == {"shoal.stream": "s", "shoal.kind": "batch", "shoal.points": 2}
    apply = await named(spans, "apply")
    assert apply.parent is None, "the log holds no trace"
    assert attributes(apply) == {
        "shoal.stream": "s",
        "shoal.kind": "batch",
        "shoal.seq": 1,
        "shoal.points": 2,
        "shoal.log_offset": 2,
    }


async def test_an_append_that_the_store_refuses_is_an_error_with_its_reason(
    spans: InMemorySpanExporter, running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.http.put("/streams/s", json={"n_features": 1})

    def full(*args: Any, **more: Any) -> None:
        raise StoreUnavailableError("the disk is full")

    monkeypatch.setattr(running.store, "append", full)
    assert (await running.ingest([[1.0]], "/streams/s/ingest")).status_code == 503
    append = await named(spans, "append")
    assert append.status.status_code is trace.StatusCode.ERROR
    assert "the disk is full" in str(append.status.description)
    request = await named(spans, "POST /streams/{stream}/ingest")
    assert request.status.status_code is trace.StatusCode.ERROR
    assert attributes(request)["http.response.status_code"] == 503


async def test_a_refinement_leaves_a_span_with_its_id(
    spans: InMemorySpanExporter, running: Any, clusters: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refine(self: Any, task: process.Task, timeout_s: float, watch: Any) -> process.Outcome:
        import io

        paths = {name: str(getattr(task, name)) for name in ("state", "window", "result")}
        return process._outcome(child._answer({**paths, "method": "vdp", "window_rows": 600}, io.StringIO()))

    monkeypatch.setattr(process.RefinementProcess, "refine", refine)
    settings = {"n_features": 2, "family": "gaussian", "warmup_points": 200, "window": 2000, "refinement": None}
    await running.http.put("/streams/s", json=settings)
    await running.learn(clusters, "/streams/s/ingest")
    asked = (await running.http.post("/streams/s/refine", json={"method": "vdp"})).json()
    found = await named(spans, "refine")
    assert attributes(found) == {"shoal.stream": "s", "shoal.refinement": asked["id"], "shoal.attempt": 1}
    assert found.status.status_code is trace.StatusCode.UNSET


async def test_without_a_provider_no_span_is_made(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not tracing()

    def never(*args: Any, **more: Any) -> None:
        raise AssertionError("a tracer was asked for")

    monkeypatch.setattr(trace, "get_tracer", never)
    await running.learn([[0.0, 0.0]])
    with span("append", {}) as made:
        assert made is None


def test_without_the_package_nothing_is_imported_or_made(store_kind: str) -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from shoal_service import tracing\n"
        "assert not tracing.tracing()\n"
        "with tracing.span('append', {}) as made: assert made is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.')]\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
