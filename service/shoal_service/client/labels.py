"""Labels of components."""

from typing import Any, Final

from shoal_service.client.flow import Flow, Request, Session, exchange
from shoal_service.client.http import data_path, json_body, json_of
from shoal_service.client.results import Component

UNCHANGED: Final = "\0"
"""Stands for a text that stays as it is. No label holds it."""


def label(
    session: Session, /, component_id: int, label: str | None = UNCHANGED, *, note: str | None = UNCHANGED
) -> Flow[Component]:
    """Give a component a label (up to 200 characters) and a note (up to 4 KiB). None removes one.

    The successors of the component get them. Raises NotFoundError for an unknown id.
    """
    changes: dict[str, Any] = {name: text for name, text in (("label", label), ("note", note)) if text != UNCHANGED}
    request = Request("PATCH", data_path(session, f"components/{int(component_id)}"), **json_body(changes))
    return Component.from_json(json_of((yield from exchange(session, request)), "id", "label"))
