"""Configured sources of a stream: connectors that the service runs itself, as an admin has defined them.

`definition` is a source, and what the settings of the server allow; `state` says what became of it, `documents` keeps
both in the store. `supervisor` runs the connector of one source as a child process, and `runner` does so for the
streams that this process learns.
"""

from shoal_service.streams.sources.definition import (
    SourceDefinition,
    SourceRules,
    check_definition,
    shown_settings,
)
from shoal_service.streams.sources.documents import SourceDocuments
from shoal_service.streams.sources.runner import SourceRunner
from shoal_service.streams.sources.state import SOURCE_STATUSES, RunningSource, SourceState

__all__ = [
    "SOURCE_STATUSES",
    "RunningSource",
    "SourceDefinition",
    "SourceDocuments",
    "SourceRules",
    "SourceRunner",
    "SourceState",
    "check_definition",
    "shown_settings",
]
