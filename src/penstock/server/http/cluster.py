"""A broker and its standby over HTTP: which one leads, how far the other is behind, and the planned switch-over."""

from typing import Any, Literal

import msgspec

from ...api.json.messages import Strict
from ...api.principals import Action
from ...errors import Draining, NotFound, Unavailable
from .requests import Request
from .responses import Answer, json_response
from .routing import Route


class LeaderOut(msgspec.Struct):
    """`is_writable`: what changes something is not refused for want of a standby. Nodes that follow answer 503."""

    is_leader: bool
    is_writable: bool
    leader: str
    http: str
    epoch: int


class StandbyOut(msgspec.Struct):
    """Another machine; `lag_bytes` was appended here and is not confirmed there, `lag_s` is for how long."""

    node: int
    is_in_sync: bool
    lag_bytes: int
    lag_s: float
    sent_bytes: int


class ClusterOut(msgspec.Struct):
    """`in_sync` counts this machine; `standbys` are those that are connected. `forced_epoch` is the last one that was
    begun by force; 0: none was. `is_alone`: it acknowledges without the others until they are back."""

    node: int
    role: str
    epoch: int
    cluster_id: str
    min_isr: int
    is_alone: bool
    leader: str
    is_level: bool
    heard_ns: int
    forced_epoch: int
    problem: str
    sequence: int
    committed: int
    in_sync: int
    standbys: list[StandbyOut]


class LeaderQuery(Strict):
    """`for=reads`: 200 also while the leader refuses what changes something."""

    purpose: Literal["reads", "writes"] = msgspec.field(name="for", default="writes")


async def leader(request: Request) -> Answer:
    """For load balancers: 200 from the node that leads, 503 from the other, and from one whose standby is away for
    longer than `cluster.replica_lag_ms` while it has to confirm."""
    purpose = request.query(LeaderQuery).purpose
    if request.app.is_draining:
        raise Draining
    leading = request.app.leading
    if leading is None:
        return json_response(LeaderOut(True, True, "", "", 0))
    membership, is_writable = leading.membership, leading.is_writable
    answer = LeaderOut(True, is_writable, membership.binary, membership.http, membership.epoch)
    return json_response(answer, status=200 if is_writable or purpose == "reads" else 503)


def _status(request: Request) -> dict[str, Any]:
    leading = request.app.leading
    if leading is None:
        raise NotFound("standby", "of this broker: cluster.listen is empty")
    return leading.membership.report()


async def status(request: Request) -> Answer:
    """The pair as this node sees it."""
    return json_response(_status(request))


async def hand_over(request: Request) -> Answer:
    """Let the standby lead; answered when this node has stopped and the standby has everything."""
    found = _status(request)
    leading = request.app.leading
    assert leading is not None, "the status is of one"
    request.admit_line()
    await request.audit(f"epoch {found['epoch']}")
    await leading.hand_over()
    return json_response(found, status=202)


ROUTES = (
    Route(
        method="GET",
        path="/leader",
        call=leader,
        action=Action.SEE_HEALTH,
        summary="Whether this node leads, and takes changes: 200, or 503",
        tag="health",
        query=LeaderQuery,
        answer=LeaderOut,
        errors=(Draining,),
        is_open=True,
    ),
    Route(
        method="GET",
        path="/cluster",
        call=status,
        action=Action.SEE_STATS,
        summary="The broker and its standby",
        tag="health",
        answer=ClusterOut,
        errors=(NotFound,),
    ),
    Route(
        method="POST",
        path="/cluster/hand-over",
        call=hand_over,
        action=Action.HAND_OVER,
        summary="Let the standby lead",
        tag="health",
        answer=ClusterOut,
        errors=(NotFound, Unavailable),
        status=202,
    ),
)
