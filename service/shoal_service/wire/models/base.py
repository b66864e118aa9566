"""Parts that all models share: the base class, examples for the documentation, fields of answers about a stream."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

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
