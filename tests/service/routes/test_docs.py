"""OpenAPI and the pages: complete, true to the answers, and from this service alone."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from shoal.families import FAMILIES
from shoal_service.routes.pages import STATIC
from shoal_service.wire import models
from shoal_service.wire.models.base import WireModel

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]

DATA = (
    "/ingest", "/predict", "/score", "/sample", "/projection",
    "/components", "/components/{component}", "/clusters", "/clusters/{cluster}",
    "/snapshot", "/events", "/webhooks", "/webhooks/{webhook}", "/refine", "/refinements",
    "/refinements/{refinement}", "/dead-letters", "/dead-letters/{seq}", "/dead-letters/{seq}/requeue",
    "/sources", "/sources/{source}",
    "/records", "/records/{key}", "/records/lookup", "/components/{component}/records",
)  # fmt: skip


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(f"{verb.upper()} {path}", op) for path, item in document["paths"].items() for verb, op in item.items()]


def all_models(base: type[BaseModel]) -> list[type[BaseModel]]:
    return [found for model in base.__subclasses__() for found in (model, *all_models(model))]


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    """The document, once it was asked for."""
    return []


@pytest.fixture
async def document(running: Any, documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The document of a service with the settings of the tests."""
    if not documents:
        documents.append(await running.json("/openapi.json"))
    return documents[0]


async def test_every_endpoint_is_documented(document: dict[str, Any]) -> None:
    expected = {
        *DATA,
        *(f"/streams/{{stream}}{path}" for path in DATA),
        "/streams", "/streams/{stream}", "/keys", "/keys/{key}", "/healthz", "/readyz", "/metrics",
    }  # fmt: skip
    assert set(document["paths"]) == expected
    assert len({op["operationId"] for _, op in operations(document)}) == len(operations(document))


async def test_every_body_and_answer_has_an_example(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        contents = [operation["requestBody"]["content"]] if "requestBody" in operation else []
        contents += [answer["content"] for answer in operation["responses"].values() if "content" in answer]
        for content in contents:
            for media_type, described in content.items():
                assert "example" in described or described.get("examples"), (name, media_type)
                assert "schema" in described, (name, media_type)
        for answer in operation["responses"].values():
            assert answer["description"], name
        assert operation["summary"], name
    posts = document["paths"]["/ingest"]["post"]["requestBody"]["content"]
    assert set(posts) == {
        "application/json", "application/x-ndjson", "application/msgpack", "application/x-npy",
        "application/vnd.apache.arrow.stream",
    }  # fmt: skip


async def test_examples_fit_the_schemas_beside_them(document: dict[str, Any]) -> None:
    """FastAPI leaves null fields of examples out, although the answers always have them."""
    shown = [
        answer["content"]
        for _, op in operations(document)
        for answer in op["responses"].values()
        if "content" in answer
    ]
    examples = [
        (content["schema"]["$ref"].rpartition("/")[2], example)
        for contents in shown
        for content in contents.values()
        if "$ref" in content["schema"]
        for example in [content.get("example"), *(one["value"] for one in content.get("examples", {}).values())]
        if example is not None
    ]
    schemas = document["components"]["schemas"]
    examples += [(name, example) for name, schema in schemas.items() for example in schema.get("examples", ())]
    known = {model.__name__: model for model in all_models(WireModel)}
    assert len({name for name, _ in examples}) > 30
    for name, example in examples:
        known[name].model_validate(example)


async def test_null_is_documented_for_the_settings_that_accept_it(running: Any, document: dict[str, Any]) -> None:
    body = document["paths"]["/streams/{stream}"]["put"]["requestBody"]["content"]["application/json"]["schema"]
    for name, schema in body["properties"].items():
        settings = {"n_features": 2, "family": "gaussian", name: None}
        reply = await running.http.put(f"/streams/{name.replace('_', '-')}", json=settings)
        documented = {"type": "null"} in schema.get("anyOf", ())
        assert reply.status_code == (201 if documented else 400), (name, reply.text)


async def test_every_operation_lists_the_errors_that_any_request_may_get(document: dict[str, Any]) -> None:
    """A parameter that is not there (400), a store that does not answer (503), a body that comes too slowly (408)."""
    for name, operation in operations(document):
        due = {"400"} if name.endswith("/healthz") else {"400", "503"}
        if "requestBody" in operation:
            due |= {"408", "413"} if "/snapshot" in name else {"408", "413", "415"}
        assert due <= operation["responses"].keys(), name


async def test_conditions_are_documented_where_they_count(document: dict[str, Any]) -> None:
    due = {"304": "If-None-Match", "412": "If-Match"}
    for name, operation in operations(document):
        headers = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "header"}
        for status, header in due.items():
            assert (status not in operation["responses"]) or header in headers, name


async def test_every_error_is_documented_as_a_problem(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for status, answer in operation["responses"].items():
            if status >= "400":
                assert list(answer["content"]) == ["application/problem+json"], (name, status)
        assert "421" in operation["responses"], name
        assert "422" not in operation["responses"] or "HTTPValidationError" not in str(operation["responses"]["422"])
    assert "HTTPValidationError" not in json.dumps(document)


async def test_the_document_is_the_same_at_every_question(running: Any) -> None:
    first, second = [(await running.http.get("/openapi.json")).text for _ in range(2)]
    assert first == second


async def test_every_family_is_named_with_its_hyperparameters(document: dict[str, Any]) -> None:
    body = document["paths"]["/streams/{stream}"]["put"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["family"]["anyOf"][0]["enum"] == list(FAMILIES)
    assert body["properties"]["family"]["anyOf"][1]["const"] == "auto"
    for name in FAMILIES:
        assert f"{name}: " in body["properties"]["prior"]["description"]


async def test_schemas_refuse_what_the_service_refuses(start: Any) -> None:
    async with start(max_wait_s=7.0, max_window=1234, max_predict_get=3) as running:
        document = await running.json("/openapi.json")
        body = document["paths"]["/streams/{stream}"]["put"]["requestBody"]["content"]["application/json"]["schema"]
        assert body["properties"]["window"]["maximum"] == 1234
        parameters = document["paths"]["/streams/{stream}/predict"]["get"]["parameters"]
        schemas = {parameter["name"]: parameter["schema"] for parameter in parameters}
        assert (schemas["timeout"]["minimum"], schemas["timeout"]["maximum"]) == (0.001, 7.0)
        assert schemas["x"]["maxItems"] == 3
        assert re.fullmatch(schemas["stream"]["pattern"], "sea-1")
        for timeout in ("5e-324", "0", "7.5", "nan"):
            reply = await running.http.get("/predict", params={"x": "1,2", "timeout": timeout})
            assert (reply.status_code, reply.json()["type"]) == (400, "/problems/parameter"), timeout


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for reference in set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document))):
        target = document
        for part in reference.split("/"):
            target = target[part]


async def test_answers_are_what_the_documentation_says(running: Any, clusters: np.ndarray) -> None:
    applied = await running.learn(clusters)
    answers: list[tuple[type[BaseModel], Any]] = [
        (models.AppliedOut, applied),
        (models.IngestOut, (await running.ingest(clusters[:2])).json()),
        (models.ComponentsOut, await running.json("/components")),
        (models.ComponentsOut, await running.json("/components", fields="covariance", limit=1)),
        (models.ComponentOut, await running.json(f"/components/{applied['components'][0]}")),
        (models.ClustersOut, await running.json("/clusters")),
        (models.ClusterOut, await running.json(f"/clusters/{(await running.json('/clusters'))['clusters'][0]['id']}")),
        (models.PredictOut, await running.json("/predict", x="1,2")),
        (models.PredictOut, await running.json("/predict", x="1,2", level="cluster")),
        (models.StreamOut, await running.json("/streams/default")),
        (models.StreamsOut, await running.json("/streams")),
        (models.HealthOut, await running.json("/healthz")),
        (models.ProblemOut, (await running.http.get("/predict?x=1")).json()),
        (models.ProblemOut, (await running.http.get("/nowhere")).json()),
    ]
    saved = (await running.http.get("/snapshot")).content
    restored = await running.http.put("/snapshot", content=saved, headers={"Content-Type": "application/octet-stream"})
    answers.append((models.RestoreOut, restored.json()))
    for model, answer in answers:
        model.model_validate(answer)


@pytest.mark.parametrize("path", ["/", "/docs", "/static/docs.js", "/static/docs.html", "/static/index.html"])
async def test_pages_load_nothing_from_elsewhere(running: Any, path: str) -> None:
    reply = await running.http.get(path)
    assert reply.status_code == 200
    loaded = re.findall(r"""(?:src|href)\s*=\s*["']?([^"'\s>]+)""", reply.text) + re.findall(
        r"url\(([^)]*)", reply.text
    )
    assert not [address for address in loaded if re.match(r"(https?:)?//", address)]
    if path in ("/", "/docs"):
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'self'" in reply.headers["content-security-policy"]
        for address in loaded:
            if address.startswith("/"):
                found = await running.http.get(address)
                assert found.status_code in (200, 503), address


async def test_the_documentation_asks_no_public_validator(running: Any) -> None:
    assert "validatorUrl: null" in (await running.http.get("/static/docs.js")).text


MANIFESTS = sorted((*STATIC.rglob("manifest.json"), *(Path(__file__).parents[2] / "vendor").rglob("manifest.json")))


@pytest.mark.parametrize("path", MANIFESTS, ids=[path.parent.name for path in MANIFESTS])
async def test_vendored_files_are_those_that_were_released(path: Path, store_kind: str) -> None:
    manifest = json.loads(path.read_text())
    assert {"package", "version", "license"} <= manifest.keys()
    held = {file.name for file in path.parent.iterdir()} - {"manifest.json"}
    assert held == set(manifest["files"])
    assert any(name.startswith("LICENSE") for name in held)
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((path.parent / name).read_bytes()).hexdigest() == digest, name


async def test_pages_and_their_styles_fetch_nothing_from_other_hosts(store_kind: str) -> None:
    assert not list(STATIC.rglob("*.map"))
    for path in STATIC.rglob("*.css"):
        styles = path.read_text()
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", styles), path
        assert "@import" not in styles, path


async def test_the_dashboard_may_run_no_script_and_no_style_but_its_own_files(running: Any) -> None:
    reply = await running.http.get("/")
    policy = reply.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "style-src 'self'" in policy
    assert not re.search(r"<style|style=|<script(?![^>]* src=)| on\w+=", reply.text)


async def test_files_of_pages_are_asked_for_again_at_each_visit(running: Any) -> None:
    reply = await running.http.get("/static/dashboard/main.js")
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["content-type"].startswith("text/javascript")
    assert "default-src 'self'" in reply.headers["content-security-policy"]
    again = await running.http.get("/static/dashboard/main.js", headers={"If-None-Match": reply.headers["etag"]})
    assert (again.status_code, again.headers["cache-control"]) == (304, "no-cache")


async def test_every_module_of_the_dashboard_is_used_and_short(store_kind: str) -> None:
    folder = STATIC / "dashboard"
    modules = {path.name: path.read_text() for path in folder.glob("*.js")}
    imported = {name for text in modules.values() for name in re.findall(r"""from "\./([\w.]+)";""", text)}
    assert imported | {"main.js"} == set(modules)
    for name, text in modules.items():
        assert len(text.splitlines()) < 300, name
        assert text.startswith("/**"), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|https?://", text), name
