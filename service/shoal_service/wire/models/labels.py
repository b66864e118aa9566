"""Labels of components: the body of `PATCH /components/{id}`."""

import unicodedata
from typing import Any

from pydantic import ConfigDict, Field

from shoal_service.errors import ParameterError
from shoal_service.wire.models.base import WireModel, read_json
from shoal_service.wire.points import Body

MAX_LABEL = 200
"""Most characters of a label."""
MAX_NOTE_BYTES = 4_096
"""Most bytes of a note, in UTF-8."""
_NO_TEXT = frozenset(("Cc", "Zl", "Zp"))
"""Categories of Unicode: control characters, and separators of lines and of paragraphs."""


class LabelIn(WireModel):
    """Label and note of a component. A field that is left out stays as it is; null removes it."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        json_schema_extra={"examples": [{"label": "idle hosts", "note": "after the nightly backup"}]},
    )

    label: str | None = Field(None, min_length=1, max_length=MAX_LABEL)
    """A short name, on one line."""
    note: str | None = Field(None, min_length=1)
    """More about it, up to 4 KiB."""


def decode_label(text: Body) -> dict[str, Any]:
    """Read the fields that are to change. Raises as `read_json`, and ParameterError for a text that cannot be kept."""
    asked = read_json(LabelIn, text)
    if not asked.model_fields_set:
        raise ParameterError('the body changes nothing; send {"label": "...", "note": "..."} or one of them')
    if asked.label is not None:
        _check_label(asked.label)
    size = len((asked.note or "").encode())
    if size > MAX_NOTE_BYTES:
        raise ParameterError(f"the note has {size:,} bytes, the limit is {MAX_NOTE_BYTES:,}; shorten it")
    return asked.model_dump(exclude_unset=True)


def _check_label(label: str) -> None:
    if any(unicodedata.category(character) in _NO_TEXT for character in label):
        raise ParameterError(f"label {label[:60]!r} has control characters; send one line of text")
    if not label.strip():
        raise ParameterError(f"label {label[:60]!r} is blank; send a text, or null to remove the label")
