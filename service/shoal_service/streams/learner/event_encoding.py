"""What an entry of the log did, as the events that readers are told of."""

from collections.abc import Iterator
from typing import Any

from shoal_service.store import Entry, EntryKind
from shoal_service.streams.learner.apply import Change, Working
from shoal_service.streams.refinement.trigger import Gathered


def told(
    entry: Entry, working: Working, change: Change, gathered: Gathered | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kind and data of each event of an entry that was applied, in order. A function of the log alone."""
    at = {"log_offset": entry.log_offset, "offset": working.state.points_seen}
    refinement = {} if gathered is None else {"refinement": gathered.entry.refinement}
    for event in change.info.events if change.info is not None else ():
        kin = {"parents": list(event.parents), "children": list(event.children)}
        yield event.kind, {**at, "offset": event.offset, **kin, **refinement}
    if entry.kind is EntryKind.RESTORE:
        yield "restored", {**at, "parents": [], "children": sorted(working.state.live_ids.tolist())}
    if change.adoption is not None and change.adoption.refused is not None:
        yield "refused", {**at, "parents": [], "children": [], **refinement, "reason": change.adoption.refused}
