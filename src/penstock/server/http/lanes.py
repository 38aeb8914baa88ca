"""Priority lanes: how many messages wait in each, and how they are served."""

from ...api.groups import DescribeLanes
from ...api.json.lanes import LanesOut, LanesQuery, lanes_out, totals_of
from ...api.principals import Action
from ...delivery.lane_turns import WEIGHTS
from ...errors import NotFound
from .requests import Request
from .responses import Answer, json_response
from .routing import Route, TopicIn


async def lanes(request: Request) -> Answer:
    asked = request.query(LanesQuery)
    topic, prefixes = asked.topic, request.principal.prefixes
    if topic is not None:
        topic, prefixes = request.allow(topic), ()
    command = DescribeLanes(topic=topic, prefixes=prefixes, group=asked.group)
    found = await request.execute(command)
    everything = [part for one in found.values() for part in one.partitions]
    by_topic = {name: lanes_out(*one) for name, one in found.items()}
    shares = {one.name.lower(): weight for one, weight in WEIGHTS.items()}
    return json_response(LanesOut(by_topic, totals_of(everything), shares))


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
        topic_in=TopicIn.REST,
    ),
)
