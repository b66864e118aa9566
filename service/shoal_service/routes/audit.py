"""Audit of requests that need an admin key, and of labels: who, what, on which stream or key, and how it ended."""

from typing import Any

from starlette.types import Scope

from shoal_service.access import Reach
from shoal_service.access import Scope as KeyScope
from shoal_service.request_log import route_of
from shoal_service.routes.authorization import CALLER, NEEDS
from shoal_service.streams import DEFAULT_STREAM

SUBJECT = "shoal.subject"
"""Name, in the scope of a request, of the id of the key that it has created."""


def audit_fields(scope: Scope, status: int) -> dict[str, Any] | None:
    """Fields of the audit line of a request that has ended. None for a request that is not audited."""
    needs = scope.get(NEEDS)
    if needs is None or not (needs.audited or needs.scope is KeyScope.ADMIN):
        return None
    caller = scope.get(CALLER)
    given = scope.get("path_params", {})
    return {
        "key_id": None if caller is None else caller.key_id,
        "key_name": None if caller is None else caller.name,
        "action": f"{scope['method']} {route_of(scope)}",
        "stream": given.get("stream", DEFAULT_STREAM) if needs.reach is Reach.STREAM else None,
        "subject": scope.get(SUBJECT)
        or given.get("key", given.get("component", given.get("webhook", given.get("source")))),
        "status": status,
        "outcome": "done" if 200 <= status < 400 else "refused" if 400 <= status < 500 else "failed",
    }
