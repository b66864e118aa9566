"""Parameters of an ingest that carries records of a source: which ones they are."""

from typing import Annotated

from fastapi import Query

from shoal_service.errors import ParameterError
from shoal_service.store import SourceStep, fault_of

DEFAULT_PARTITION = "0"

Source = Annotated[
    str | None,
    Query(
        description="Name of the source that the points come from. Its position is stored with the batch, which is "
        "refused unless it begins at the stored position.",
        examples=["orders"],
    ),
]
Partition = Annotated[
    str | None,
    Query(description="Partition of the source. [default: 0]", examples=["3"]),
]
PositionBefore = Annotated[
    str | None,
    Query(
        description="Position that must be stored. Left out: none is, the batch is the first of its partition.",
        examples=["1700000000000-0"],
    ),
]
Position = Annotated[
    str | None,
    Query(description="Position behind the batch, which is stored with it.", examples=["1700000000000-4"]),
]

Definition = Annotated[
    str | None,
    Query(
        description="Digest of the definition of a configured source, which the service's own connectors send. The "
        "batch is refused where the source was changed, paused or deleted meanwhile.",
    ),
]


def source_step(
    source: str | None, partition: str | None, before: str | None, after: str | None, definition: str | None
) -> SourceStep | None:
    """Return the step of a source that the parameters of an ingest name, or None. Raises ParameterError."""
    if source is None:
        given = {"partition": partition, "position_before": before, "position": after, "definition": definition}
        for name, value in given.items():
            if value is not None:
                raise ParameterError(f"{name} is {value[:80]!r}, and no source is named; send source=NAME with it")
        return None
    if after is None:
        raise ParameterError(f"source is {source[:80]!r}, and position is missing; send the position behind the batch")
    step = SourceStep(source, DEFAULT_PARTITION if partition is None else partition, before, after, definition)
    if fault := fault_of(step):
        raise ParameterError(fault)
    return step
