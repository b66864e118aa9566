"""Parts of the OpenAPI document that signatures do not contain: raw bodies, examples of answers, errors."""

from collections.abc import Iterable
from inspect import signature
from typing import Any

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import BaseRoute

from shoal.errors import NotFiniteError, NotNumericError, OutsideDomainError, SettingError, ShapeError, ShoalError
from shoal_service.errors import (
    BodyTooLargeError,
    FeatureNamesError,
    HostNotAllowedError,
    IdempotencyMismatchError,
    LimitError,
    MalformedBodyError,
    NotReadyError,
    OffsetBeyondLogError,
    OffsetNotAppliedError,
    OverloadedError,
    ParameterError,
    StoreUnavailableError,
    StreamGoneError,
    StreamNameError,
    UnknownStreamError,
    UnsupportedMediaTypeError,
    UploadTooSlowError,
)
from shoal_service.problems import openapi_responses
from shoal_service.routes.endpoints import SECURITY_SCHEMES
from shoal_service.settings import Settings
from shoal_service.wire.models import (
    FileSourceIn,
    KafkaSourceIn,
    KeyLimitsIn,
    ParquetSourceIn,
    ProblemOut,
    RedisSourceIn,
    SparseRowIn,
    StreamIn,
    VariableIn,
    points_body,
)

Responses = dict[int | str, dict[str, Any]]
Errors = tuple[type[ShoalError], ...]

SNAPSHOT = "application/vnd.shoal.snapshot"
BYTES = "application/octet-stream"

JSON_BODY: Errors = (
    MalformedBodyError,
    BodyTooLargeError,
    UnsupportedMediaTypeError,
    UploadTooSlowError,
    OverloadedError,
)
BODY: Errors = (
    *JSON_BODY,
    LimitError,
    ShapeError,
    NotFiniteError,
    NotNumericError,
    OutsideDomainError,
    FeatureNamesError,
)
DOMAIN: Errors = (ShapeError, OutsideDomainError)
WRITE: Errors = (IdempotencyMismatchError, OverloadedError, StreamGoneError)
READ: Errors = (OffsetBeyondLogError, OffsetNotAppliedError, NotReadyError)
HOST: Errors = (ParameterError, HostNotAllowedError)
STORE: Errors = (StoreUnavailableError, *HOST)
STREAM: Errors = (UnknownStreamError, StreamNameError, *STORE)
CHANGE: Errors = (NotReadyError, *STREAM)
SETTING: Errors = (SettingError, LimitError)

_SCHEMA = "#/components/schemas/{model}"
_POINTS_EXAMPLES = {
    "application/json": {"points": [[1.2, 3.4], [0.9, 3.1]]},
    "application/x-ndjson": "[1.2, 3.4]\n[0.9, 3.1]\n",
    "application/msgpack": 'msgpack.packb({"d": 2, "t": "f4", "x": x.astype("<f4").tobytes()})',
    "application/x-npy": "numpy.save(file, x)",
    "application/vnd.apache.arrow.stream": "with pyarrow.ipc.new_stream(file, table.schema) as out: out.write(table)",
}
"""Examples by media type. For binary bodies they show the Python code that writes them."""


def answers(success: Responses, *errors: type[ShoalError]) -> Responses:
    """Describe all answers of an operation: the successful ones, and the problems by status."""
    return {**success, **openapi_responses(*dict.fromkeys(errors))}


def answer(
    status: int, model: type[BaseModel], description: str, headers: tuple[str, ...] = (), *, example: Any = None
) -> Responses:
    """Describe one successful answer. The example is that of the model, unless another is given."""
    content = {"application/json": {"example": example if example is not None else example_of(model)}}
    return {status: {"model": model, "description": description, "content": content, "headers": _headers(headers)}}


def bare(status: int, description: str, headers: tuple[str, ...] = ()) -> Responses:
    """Describe an answer without a body."""
    return {status: {"description": description, "headers": _headers(headers)}}


def text(status: int, media_type: str, example: str, description: str) -> Responses:
    """Describe an answer that is text."""
    return {
        status: {
            "description": description,
            "content": {media_type: {"schema": {"type": "string"}, "example": example}},
        }
    }


def snapshot_file(status: int) -> Responses:
    """Describe an answer that is a snapshot file."""
    schema = {"type": "string", "format": "binary"}
    content = {SNAPSHOT: {"schema": schema, "example": "the bytes of a snapshot file; do not change them"}}
    return {status: {"description": "The state, with a checksum", "content": content, "headers": _headers(("ETag",))}}


def points(description: str) -> dict[str, Any]:
    """Describe a request body of points, with an example for each format."""
    body = points_body(description)
    for media_type, content in body["content"].items():
        content["example"] = _POINTS_EXAMPLES[media_type]
    return {"requestBody": body}


def snapshot_body() -> dict[str, Any]:
    """Describe the request body of a restore."""
    content = {"schema": {"type": "string", "format": "binary"}, "example": "a file from GET /snapshot"}
    return {"requestBody": {"required": True, "content": {SNAPSHOT: content, BYTES: content}}}


def settings_body() -> dict[str, Any]:
    """Describe the request body that creates or changes a stream."""
    content = {"schema": StreamIn.model_json_schema(), "example": example_of(StreamIn)}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def json_body(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """Describe a JSON request body by its model."""
    schema = _without_definitions(model.model_json_schema(ref_template=_SCHEMA))
    content = {"schema": schema, "example": example_of(model)}
    return {"requestBody": {"required": required, "content": {"application/json": content}}}


def _without_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    schema.pop("$defs", None)  # `completed` adds them to the document
    return schema


def words_of(model: type[BaseModel]) -> str:
    """List the fields of a model in one line."""
    return ", ".join(f"`{name}`" for name in model.model_fields)


def example_of(model: type[BaseModel]) -> Any:
    """The first example of a model."""
    extra = model.model_config.get("json_schema_extra")
    assert isinstance(extra, dict), f"{model.__name__} has no example"
    examples: Any = extra["examples"]
    return examples[0]


def completed(document: dict[str, Any], routes: Iterable[BaseRoute], settings: Settings) -> dict[str, Any]:
    """Complete the OpenAPI document of FastAPI: add the schemas that bodies refer to, the families of the registry and
    the limits of this service, and remove the errors of FastAPI, which are never sent.
    """
    _restore_examples(document, routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    document["components"]["securitySchemes"] = SECURITY_SCHEMES
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["ProblemOut"] = ProblemOut.model_json_schema()
    schemas["SparseRowIn"] = SparseRowIn.model_json_schema()
    schemas["KeyLimitsIn"] = KeyLimitsIn.model_json_schema()
    for kind in (RedisSourceIn, KafkaSourceIn, ParquetSourceIn, FileSourceIn, VariableIn):
        schemas[kind.__name__] = _without_definitions(kind.model_json_schema(ref_template=_SCHEMA))
    for operation in (operation for path in document["paths"].values() for operation in path.values()):
        if "HTTPValidationError" in str(operation["responses"].get("422")):
            del operation["responses"]["422"]
    body = document["paths"]["/streams/{stream}"]["put"]["requestBody"]["content"]["application/json"]["schema"]
    _name_families(body["properties"])
    _name_limits(document, body["properties"], settings)
    return document


def _restore_examples(document: dict[str, Any], routes: Iterable[BaseRoute]) -> None:
    """Write the examples of answers again as they were declared: FastAPI leaves out the fields that are null."""
    schemas = document["components"]["schemas"]
    for route in (route for route in routes if isinstance(route, APIRoute) and route.include_in_schema):
        for method in route.methods or ():
            described = document["paths"][route.path_format][method.lower()]["responses"]
            for status, response in route.responses.items():
                for media_type, content in response.get("content", {}).items():
                    if "example" in content:
                        described[str(status)]["content"][media_type]["example"] = content["example"]
                if "model" in response:
                    _restore_examples_of(schemas, response["model"])


def _restore_examples_of(schemas: dict[str, Any], model: type[BaseModel]) -> None:
    whole = model.model_json_schema()
    for name, schema in {**whole.get("$defs", {}), model.__name__: whole}.items():
        if "examples" in schema:
            schemas[name]["examples"] = schema["examples"]


def _name_limits(document: dict[str, Any], fields: dict[str, Any], settings: Settings) -> None:
    """Write the limits of this service into the schemas of stream settings and of parameters."""
    fields["n_features"]["maximum"] = settings.max_features
    fields["window"]["maximum"] = settings.max_window
    fields["window_bytes"]["maximum"] = int(settings.max_window_bytes)
    fields["max_state_bytes"]["maximum"] = int(settings.max_state_bytes)
    limits = {"timeout": {"maximum": settings.max_wait_s}, "x": {"minItems": 1, "maxItems": settings.max_predict_get}}
    for operation in (operation for path in document["paths"].values() for operation in path.values()):
        for parameter in operation.get("parameters", ()):
            parameter["schema"] |= limits.get(parameter["name"], {})


def _name_families(fields: dict[str, Any]) -> None:
    """Name the families of the registry, and what each of them needs, in the settings of a stream."""
    from shoal.families import FAMILIES, is_conjugate  # loads the numerical libraries
    from shoal.mixture import AUTO_FAMILY

    sparse = ", ".join(name for name, family in FAMILIES.items() if family.domain.sparse)
    fixed = ", ".join(name for name, family in FAMILIES.items() if not is_conjugate(family))
    fields["family"]["anyOf"][0]["enum"] = list(FAMILIES)
    fields["family"]["anyOf"].insert(1, {"const": AUTO_FAMILY, "type": "string"})
    fields["family"]["description"] += f" Sparse rows: {sparse}. Without refinement: {fixed}."
    priors = "; ".join(f"{name}: {', '.join(signature(family).parameters)}" for name, family in FAMILIES.items())
    fields["prior"]["description"] += f" Hyperparameters: {priors}."


_HEADER_WORDS = {
    "ETag": "Entity tag of this state: the incarnation of the stream and the log entry",
    "Location": "Path of the created resource",
    "Idempotency-Replayed": "`true` if the key was known; the first answer is repeated",
}


def _headers(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: {"description": _HEADER_WORDS[name], "schema": {"type": "string"}} for name in names}


def _header(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": {"type": "string"}}


IF_NONE_MATCH = _header(
    "If-None-Match", "Entity tags, with commas. If the present one is among them, the answer is 304."
)
IF_MATCH = _header(
    "If-Match", "Entity tags, with commas. If the settings are none of these any more, the answer is 412."
)
IF_NONE = _header("If-None-Match", "`*`: create the stream only if there is none. Otherwise the answer is 412.")


def conditions(*headers: dict[str, Any]) -> dict[str, Any]:
    """Describe the headers of conditional requests. Handlers read them by themselves: they may have several lines."""
    return {"parameters": list(headers)}


NOT_MODIFIED = bare(304, "Nothing has changed since the tag in If-None-Match", ("ETag",))
"""The answer to a request whose If-None-Match names the present tag."""
