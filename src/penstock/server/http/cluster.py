"""A broker and its standby over HTTP: which one leads, how far the other is behind, and the planned switch-over."""

from typing import Any

import msgspec

from ...api.principals import Action
from ...errors import Draining, NotFound, Unavailable
from .requests import Request
from .responses import Answer, json_response
from .routing import Route


class LeaderOut(msgspec.Struct):
    """`is_leader` is true: this node may be written to. Nodes that follow answer 503."""

    is_leader: bool
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
    """`in_sync` counts this machine; `standbys` are those that are connected."""

    node: int
    role: str
    epoch: int
    cluster_id: str
    min_isr: int
    leader: str
    is_level: bool
    heard_ns: int
    sequence: int
    committed: int
    in_sync: int
    standbys: list[StandbyOut]


async def leader(request: Request) -> Answer:
    """For load balancers: 200 from the node that leads, 503 from the other."""
    if request.app.is_draining:
        raise Draining
    leading = request.app.leading
    if leading is None:
        return json_response(LeaderOut(True, "", "", 0))
    membership = leading.membership
    return json_response(LeaderOut(True, membership.binary, membership.http, membership.epoch))


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
        summary="Whether this node leads: 200, or 503",
        tag="health",
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
