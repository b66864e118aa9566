"""Positions of sources: how far each partition of a source is in the log of a stream.

A position is a document of the stream. An append that carries a `SourceStep` replaces it in its own transaction, if the
stored position is the one before the step. So a crash can neither lose nor double the records between two positions.

A step of a configured source names the definition that it was read for. The append is refused once that is changed or
deleted. So a batch on its way cannot leave a position behind that the next definition would begin at.
"""

import hashlib
import re
from typing import NamedTuple

import msgspec

from shoal_service.errors import SourceChangedError, SourcePositionError
from shoal_service.store.contract import Appended, SourceStep

KIND = "sources"
"""Kind of the documents. A name is that of the source, a slash, and that of the partition."""
DEFINITION_KIND = "source"
"""Kind of the documents that define the sources which the service runs itself, by name."""
_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_PARTITION = re.compile(r"[!-~]{1,150}")
_POSITION = re.compile(r"[!-~]{1,256}")
_DIGEST = re.compile(r"[0-9a-f]{40}")
SOURCE_FORM = "1 to 100 letters, digits, dots, colons, hyphens and underscores, first a letter or digit"
PARTITION_FORM = "1 to 150 printable ASCII characters without blanks"
POSITION_FORM = "1 to 256 printable ASCII characters without blanks"
DIGEST_FORM = "40 hexadecimal digits in lower case"


class SourcePosition(NamedTuple):
    """Position of one partition of a source, with the last step that led there."""

    source: str
    partition: str
    position: str
    before: str | None
    """Position before the last step. None: it was the first one."""
    n_points: int
    """Points of the last step."""
    seq: int
    """Entry of the last step."""
    log_offset: int
    """Points in the log up to and including that entry."""


class _Stored(msgspec.Struct):
    before: str | None
    position: str
    n_points: int
    seq: int
    log_offset: int


def fault_of(step: SourceStep) -> str | None:
    """Return what is wrong with the words of a step, or None."""
    words = [
        ("source", step.source, _SOURCE, SOURCE_FORM),
        ("partition", step.partition, _PARTITION, PARTITION_FORM),
        ("position_before", step.before, _POSITION, POSITION_FORM),
        ("position", step.after, _POSITION, POSITION_FORM),
        ("definition", step.definition, _DIGEST, DIGEST_FORM),
    ]
    for name, text, form, in_words in words:
        if text is not None and form.fullmatch(text) is None:
            return f"{name} is {text[:80]!r}; use {in_words}"
    if step.before == step.after:
        return f"position_before and position are both {step.after[:80]!r}; a step leads to another position"
    return None


def check_step(step: SourceStep) -> None:
    """Raise ValueError for a step that a store cannot hold."""
    if fault := fault_of(step):
        raise ValueError(fault)


def document_of(step: SourceStep) -> str:
    """Return the name of the document that holds the position."""
    return f"{step.source}/{step.partition}"


def encode(step: SourceStep, appended: Appended) -> bytes:
    """Return the document after a step. The script `append` of the Redis store writes the same bytes."""
    return encode_head(step, appended.n_points) + b',"seq":%d,"log_offset":%d}' % (appended.seq, appended.log_offset)


def encode_head(step: SourceStep, n_points: int) -> bytes:
    """Return the beginning of the document, as far as it is known before the append."""
    head = {"before": step.before, "position": step.after, "n_points": n_points}
    return msgspec.json.encode(head).removesuffix(b"}")


def decode(document: str, value: bytes) -> SourcePosition:
    """Return the position in a document."""
    source, _, partition = document.partition("/")
    last = msgspec.json.decode(value, type=_Stored)
    return SourcePosition(source, partition, last.position, last.before, last.n_points, last.seq, last.log_offset)


def known_step(stream: str, step: SourceStep, last: SourcePosition | None) -> Appended | None:
    """Return the first answer to a step that is in the log, or None for one that follows the stored position.

    SourcePositionError for any other step.
    """
    position = None if last is None else last.position
    if position == step.before:
        return None
    if last is not None and (last.before, last.position) == (step.before, step.after):
        return Appended(last.seq, last.log_offset, last.n_points, replayed=True)
    at = "has no stored position" if position is None else f"is stored up to {position!r}"
    given = "the beginning" if step.before is None else repr(step.before)
    raise SourcePositionError(
        f"partition {step.partition!r} of source {step.source!r} {at} in stream {stream!r}, and this batch continues "
        f"from {given}; read on from the stored position",
        position=position,
    )


def definition_digest(document: bytes) -> str:
    """Return the SHA-1 of the document of a definition. The script `append` of the Redis store computes the same."""
    return hashlib.sha1(document, usedforsecurity=False).hexdigest()


def changed(stream: str, step: SourceStep) -> SourceChangedError:
    """Return the error for a batch of a definition that is no longer in force."""
    return SourceChangedError(
        f"source {step.source!r} of stream {stream!r} was changed, paused or deleted, and this batch is from before; "
        "nothing of it is stored"
    )


def damaged(stream: str, step: SourceStep) -> SourcePositionError:
    """Return the error for a position that is damaged. It must not count as none, or all would be read again."""
    return SourcePositionError(
        f"the stored position of partition {step.partition!r} of source {step.source!r} in stream {stream!r} is "
        "damaged; find the last record that was learnt, delete the position, and read on from there",
        position=None,
    )
