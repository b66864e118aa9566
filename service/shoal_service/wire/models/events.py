"""Events of a stream, as the feed sends them."""

from typing import Literal

from shoal_service.wire.models.base import STREAM, WireModel, example


class EventOut(WireModel):
    """Data of one server-sent event. `id` and `event` are fields of the event itself."""

    model_config = example(
        stream=STREAM["stream"],
        incarnation=STREAM["incarnation"],
        kind="merged",
        log_offset=4200,
        points_seen=4096,
        parents=[3, 9],
        children=[3],
        component=None,
        was=None,
        labels={"3": "idle hosts"},
        refinement=None,
        before=None,
        after=None,
        reason=None,
    )

    stream: str
    incarnation: str
    kind: Literal[
        "born",
        "merged",
        "pruned",
        "returned",
        "rescaled",
        "split",
        "refined",
        "restored",
        "adopted",
        "refused",
        "capacity",
        "prior",
        "drift",
        "novelty-rate",
        "cluster-born",
        "cluster-gone",
        "cluster-merged",
        "cluster-split",
        "cluster-regrouped",
        "cluster-renamed",
        "gap",
    ]
    log_offset: int | None
    """Offset at the end of the log entry that caused the event."""
    points_seen: int | None
    """Number of points that the state had seen at the event."""
    parents: list[int]
    """Ids of the components before the event: those that were merged, the one that was split or pruned."""
    children: list[int]
    """Ids of the components after the event."""
    component: int | None
    """For `returned`: the old id, which the component has again."""
    was: int | None
    """For `returned`: the id that it had since it came back."""
    labels: dict[str, str]
    """Labels of these components, by id, where they have one."""
    refinement: str | None
    """Id of the refinement that caused the event."""
    before: float | None
    """`drift`: mean log density (nats) of the points before the change. `novelty-rate`: share of novel points
    before."""
    after: float | None
    """The same of the last 1,000 points."""
    reason: str | None
    """Why a refinement was refused, what was found when the automatic prior was made, or why events are missing."""
