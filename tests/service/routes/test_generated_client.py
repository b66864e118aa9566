"""A client that a generator makes of the OpenAPI document: whole, and it works."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]


async def test_operations_have_names_of_their_own(running: Any) -> None:
    """A generator makes a function of each: equal names would hide one."""
    document = await running.json("/openapi.json")
    names = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


async def test_the_generated_client_speaks_with_the_service(
    running: Any, clusters: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = shutil.which("openapi-python-client")
    if generator is None:
        pytest.skip("needs openapi-python-client on the path, in an environment of its own: it asks for an older typer")
    document = await running.json("/openapi.json")
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    command = [generator, "generate", "--path", "openapi.json", "--meta", "none", "--output-path", "shoal_generated"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.syspath_prepend(str(tmp_path))
    made = {path.stem for path in (tmp_path / "shoal_generated" / "api").glob("*/*.py")}
    due = {operation["operationId"] for item in document["paths"].values() for operation in item.values()}
    assert {name.replace("__", "_").strip("_") for name in due} <= {name.replace("__", "_") for name in made}

    def api(name: str) -> Any:
        return importlib.import_module(f"shoal_generated.api.{name}")

    try:
        client = importlib.import_module("shoal_generated").Client(base_url="http://127.0.0.1")
        client.set_async_httpx_client(running.http)
        body = importlib.import_module("shoal_generated.models").IngestIngestPostJsonIngestIn(points=clusters.tolist())
        sent = await api("points.ingest_ingest_post").asyncio(client=client, body=body, wait="applied")
        found = await api("components.components_components_get").asyncio(client=client)
        told = await api("points.predict_few_predict_get").asyncio(client=client, x=["0,0"])
        wrong = await api("points.predict_few_predict_get").asyncio(client=client, x=["0"])
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "shoal_generated"]:
            del sys.modules[name]
    assert len(sent.components) == len(clusters) == sent.log_offset
    answer = await running.json("/components")
    assert [one.id for one in found.components] == [one["id"] for one in answer["components"]]
    assert told.to_dict() == await running.json("/predict", x="0,0")
    assert (wrong.status, wrong.type_) == (400, "/problems/shape")
