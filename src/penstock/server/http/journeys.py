"""Journeys of messages: by place, by trace id, searched, counted."""

from ...api.journeys import DescribeJourney, DescribeJourneys, FindTrace, ListJourneys
from ...api.json.journeys import (
    TraceOut,
    TracePageOut,
    TraceQuery,
    TraceSearchQuery,
    TracesQuery,
    TraceStatsOut,
    page_out,
    search_of,
    stats_out,
    trace_out,
)
from ...api.json.paging import page_limit
from ...api.principals import Action
from ...errors import NotFound, OffsetOutOfRange, TraceNotFound
from .requests import Request
from .responses import Answer, json_response
from .routing import Route, TopicIn


async def of_message(request: Request) -> Answer:
    """The journey of the message of the path."""
    place = request.params
    command = DescribeJourney(place["topic"], int(place["partition"]), int(place["offset"]))
    return json_response(trace_out(await request.execute(command)))


async def of_trace(request: Request) -> Answer:
    """The journey of a trace id, derived or sent."""
    asked = request.query(TraceQuery)
    command = FindTrace(
        topic=asked.topic,
        prefixes=() if asked.topic is not None else request.principal.prefixes,
        trace_id=request.params["trace_id"],
        cursor=asked.cursor,
    )
    return json_response(trace_out(await request.execute(command)))


async def latest(request: Request) -> Answer:
    asked = request.query(TracesQuery)
    prefixes = () if asked.topic is not None else request.principal.prefixes
    limit = min(page_limit(asked.limit), _LATEST_MAX)
    command = ListJourneys(topic=asked.topic, prefixes=prefixes, limit=limit)
    return json_response(page_out(await request.execute(command)))


async def search(request: Request) -> Answer:
    asked = request.query(TraceSearchQuery)
    command = search_of(asked, request.principal.prefixes)
    return json_response(page_out(await request.execute(command)))


async def stats(request: Request) -> Answer:
    command = DescribeJourneys(prefixes=request.principal.prefixes)
    return json_response(stats_out(await request.execute(command)))


_TAG = "traces"
# Stories are told for all of them at once.
_LATEST_MAX = 100

ROUTES = (
    Route(
        method="GET",
        path="/topics/{topic}/partitions/{partition}/messages/{offset}/journey",
        call=of_message,
        action=Action.FETCH,
        summary="Everything that happened to a message, for every group",
        tag=_TAG,
        answer=TraceOut,
        errors=(NotFound, OffsetOutOfRange),
        topic_in=TopicIn.PATH,
    ),
    Route(
        method="GET",
        path="/traces",
        call=latest,
        action=Action.FETCH,
        summary="The journeys of the messages that were published last",
        tag=_TAG,
        query=TracesQuery,
        topic_in=TopicIn.REST,
        answer=TracePageOut,
        errors=(NotFound,),
    ),
    Route(
        method="GET",
        path="/traces/search",
        call=search,
        action=Action.FETCH,
        summary="Journeys by key, header, trace id, time, group or status; a page reads 16 MiB of messages at most",
        tag=_TAG,
        query=TraceSearchQuery,
        topic_in=TopicIn.REST,
        answer=TracePageOut,
        errors=(NotFound,),
    ),
    Route(
        method="GET",
        path="/traces/stats",
        call=stats,
        action=Action.SEE_STATS,
        summary="What is kept for journeys, and how long messages take",
        tag=_TAG,
        answer=TraceStatsOut,
    ),
    Route(
        method="GET",
        path="/traces/{trace_id}",
        call=of_trace,
        action=Action.FETCH,
        summary="The journey of a trace",
        tag=_TAG,
        query=TraceQuery,
        topic_in=TopicIn.REST,
        answer=TraceOut,
        errors=(TraceNotFound,),
    ),
)
