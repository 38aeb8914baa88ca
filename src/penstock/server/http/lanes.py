"""Priority lanes: how many messages wait in each, and how they are served."""

from ...api.groups import DescribeLanes
from ...api.json.lanes import LanesOut, LanesQuery, lanes_out, totals_of
from ...api.principals import Action
from ...errors import NotFound
from .requests import Request
from .responses import Answer, json_response
from .routing import Route


async def lanes(request: Request) -> Answer:
    asked = request.query(LanesQuery)
    prefixes = request.principal.prefixes
    found = await request.execute(DescribeLanes(prefixes=prefixes, group=asked.group))
    everything = [part for one in found.values() for part in one.partitions]
    return json_response(
        LanesOut({topic: lanes_out(*one) for topic, one in found.items()}, totals_of(everything))
    )


ROUTES = (
    Route(
        method="GET",
        path="/priority/stats",
        call=lanes,
        action=Action.SEE_STATS,
        summary="What waits in each priority lane, and how it is served",
        tag="priority",
        query=LanesQuery,
        answer=LanesOut,
        errors=(NotFound,),
    ),
)
