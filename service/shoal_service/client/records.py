"""Records: points under keys of their own, and the component that each belongs to today."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from shoal_service.client.flow import Flow, Request, Session, exchange
from shoal_service.client.http import data_path, given, json_of, segment

KEYS_AT_ONCE = 10_000
"""Most keys of one lookup."""
PAGE = 1_000
"""Most records of one page."""


@dataclass(frozen=True)
class Record:
    """The newest point under a key."""

    key: str
    component: int | None
    """Id of the live component that it belongs to today. None if its component went without a successor."""
    assigned: int
    """Id of the component as the point was learnt."""
    log_offset: int
    """Number of points in the log up to and including this one."""
    time: str | float | None
    payload: dict[str, Any] | None
    novelty: float
    """Probability that the point belonged to no component, just before it was learnt."""
    log_density: float | None
    """Log predictive density in nats, just before it was learnt."""
    resolved: str
    """`exact`, `refined` or `inherited`: how `component` follows from `assigned`."""

    label: str | None = None
    """The label of that component."""

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Record":
        """Read one record of an answer."""
        return cls(**{name: body[name] for name in cls.__dataclass_fields__ if name in body})


@dataclass(frozen=True)
class MemberRecord:
    """A record of a component."""

    key: str
    log_offset: int
    time: str | float | None
    payload: dict[str, Any] | None
    log_density: float | None

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "MemberRecord":
        """Read one record of an answer."""
        return cls(**{name: body[name] for name in cls.__dataclass_fields__})


def record(session: Session, /, key: str, *, min_offset: int | None = None) -> Flow[Record]:
    """Read the record of a key. `min_offset`: as for `components`. Raises NotFoundError if there is none."""
    request = Request("GET", _path(session, key), given(min_offset=min_offset))
    return Record.from_json(json_of((yield from exchange(session, request)), "key", "component"))


def lookup_records(
    session: Session, /, keys: Iterable[str], *, min_offset: int | None = None
) -> Flow[list[Record | None]]:
    """Read the records of many keys, in their order. None stands for a key that no record has."""
    asked, found = list(keys), list[Record | None]()
    for start in range(0, len(asked), KEYS_AT_ONCE):
        request = Request(
            "POST",
            data_path(session, "records/lookup"),
            given(min_offset=min_offset),
            {"Content-Type": "application/json"},
            msgspec.json.encode({"keys": asked[start : start + KEYS_AT_ONCE]}),
        )
        rows = json_of((yield from exchange(session, request)), "records")["records"]
        found += [None if row is None else Record.from_json(row) for row in rows]
    return found


def component_records(
    session: Session,
    /,
    component_id: int,
    *,
    order: Literal["newest", "typical", "atypical"] = "newest",
    limit: int | None = 100,
    min_offset: int | None = None,
) -> Flow[list[MemberRecord]]:
    """Read up to `limit` records (None: all) that belong to a component today.

    `order`: the newest first, or by log density from the highest (`typical`) or the lowest (`atypical`). Raises
    NotFoundError for an unknown id.
    """
    params = given(order=order, min_offset=min_offset)
    rows = yield from _pages(session, f"components/{int(component_id)}/records", params, limit)
    return [MemberRecord.from_json(row) for row in rows]


def changed_records(
    session: Session, /, since: str | None = None, *, limit: int | None = None, min_offset: int | None = None
) -> Flow[list[Record]]:
    """Read up to `limit` records (None: all) that may belong elsewhere since an event, in the order of the log.

    `since`: id of an event, as `events` gives it; None: all records. Raises InvalidRequestError for an event that is
    no longer known.
    """
    rows = yield from _pages(session, "records", given(changed_since=since, min_offset=min_offset), limit)
    return [Record.from_json(row) for row in rows]


def delete_record(session: Session, /, key: str) -> Flow[bool]:
    """Forget key, time and payload of a record. True once they are forgotten, False if that is durably requested.

    What the components learnt from its point stays. Raises NotFoundError if there is no such record.
    """
    request = Request("DELETE", _path(session, key))
    return bool(json_of((yield from exchange(session, request)), "forgotten")["forgotten"])


def _path(session: Session, key: str) -> str:
    return data_path(session, f"records/{segment(key)}")


def _pages(session: Session, rest: str, params: dict[str, str], limit: int | None) -> Flow[list[dict[str, Any]]]:
    """Read pages until `limit` rows are there, or all."""
    rows: list[dict[str, Any]] = []
    cursor: str | None = None
    while limit is None or len(rows) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(rows))
        request = Request("GET", data_path(session, rest), params | given(limit=size, cursor=cursor))
        body = json_of((yield from exchange(session, request)), "records", "next")
        rows += body["records"]
        cursor = body["next"]
        if cursor is None:
            break
    return rows
