"""Parts that all models share: the base class, examples for the documentation, fields of answers about a stream."""

from collections.abc import Collection
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shoal_service.errors import MalformedBodyError, ParameterError, spelling_advice
from shoal_service.wire.points import Body

INCARNATION = "7f1b8c6e-3f0e-4d7a-9c55-2b8f6f0f6a11"
STREAM = {"stream": "default", "incarnation": INCARNATION, "log_offset": 2000}


class WireModel(BaseModel):
    """Base of all models: unknown fields are refused, and the text below a field documents it."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


def example(**fields: Any) -> ConfigDict:
    """Model configuration with one example for the documentation."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class StreamAnswer(WireModel):
    """The first fields of every answer about a stream."""

    stream: str
    incarnation: str
    """UUID of this life of the stream. A stream that is deleted and created again gets another one."""
    log_offset: int = Field(ge=0)
    """Number of points in the log up to which this answer is valid."""


Model = TypeVar("Model", bound=BaseModel)


def read_json(
    model: type[Model],
    text: Body,
    *,
    nested: type[BaseModel] | None = None,
    secret: Collection[str] = (),
) -> Model:
    """Read a small JSON object, with objects of the model `nested` in it. `text`: as `json_text` gives it.

    The errors do not show values of the names in `secret`.

    Raises MalformedBodyError, and ParameterError for a missing or unknown name or a value outside its range.
    """
    try:
        return model.model_validate_json(bytes(text))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        first = min(faults, key=lambda fault: fault["type"] != "extra_forbidden")  # one misspelt is also missing
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "json_invalid" or not name:
            raise MalformedBodyError(f"the body is not a JSON object: {first['msg']}") from None
        if first["type"] == "missing":
            raise ParameterError(f"{name} is missing") from None
        if first["type"] == "extra_forbidden":
            known = nested if nested is not None and len(first["loc"]) > 1 else model
            advice = spelling_advice(first, known.model_fields) or f"; send {', '.join(known.model_fields)}"
            raise ParameterError(f"unknown field {name!r}{advice}") from None
        hidden = first["loc"][0] in secret
        given = "" if hidden else f" is {str(first['input'])[:80]!r}"
        raise ParameterError(f"{name}{given}: {first['msg']}{spelling_advice(first)}") from None
