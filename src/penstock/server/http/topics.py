"""Topics: created, listed, described, configured, grown, swept and deleted."""

import msgspec

from ...api.json.paging import PageQuery, page_of
from ...api.json.reading import decode
from ...api.json.topics import (
    CompactOut,
    ConfigureIn,
    CreatedOut,
    CreateIn,
    CreateQuery,
    GrowIn,
    GrownOut,
    PartitionOut,
    PartitionsOut,
    TopicOut,
    TopicsOut,
    TopicsQuery,
    grown_out,
    retention_of,
    topic_out,
)
from ...api.principals import Action
from ...api.topics import (
    AddPartitions,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    DescribeTopics,
    ListTopics,
    SweepTopics,
)
from ...broker.topics import PARTITIONS_MAX
from ...errors import AlreadyExists, BadRequest, InvalidConfig, NotFound, Refused
from .requests import Request
from .responses import Answer, json_response, nothing
from .routing import Route, TopicIn

_CREATE = msgspec.json.Decoder(CreateIn)
_CONFIGURE = msgspec.json.Decoder(ConfigureIn)
_GROW = msgspec.json.Decoder(GrowIn)


async def create(request: Request) -> Answer:
    asked = request.query(CreateQuery)
    body = request.body
    if body and asked.name is not None:
        raise BadRequest("name the topic in the query or in the body, not in both", field="name")
    if body:
        sent = decode(body, _CREATE)
    elif asked.name is not None:
        sent = CreateIn(name=asked.name, num_partitions=asked.partitions)
    else:
        raise BadRequest("name is missing", field="name")
    usual = request.app.settings
    count = usual.topic.num_partitions if sent.num_partitions is None else sent.num_partitions
    if count == 0:
        # On the other ports that stands for as many as the settings say.
        raise Refused(
            f"num_partitions must be in 1..{PARTITIONS_MAX}, got 0", field="num_partitions"
        )
    settings = usual.topic_defaults() | sent.config | retention_of(sent.retention_hours)
    await request.execute_audited(CreateTopic(sent.name, count, settings))
    return json_response(CreatedOut(sent.name, count, True), status=201)


async def list_topics(request: Request) -> Answer:
    asked = request.query(TopicsQuery)
    names = await request.execute(ListTopics(request.principal.prefixes))
    seen, cursor = page_of(names, asked, str)
    if not asked.details:
        return json_response(TopicsOut(list(seen), cursor))
    found = await request.execute(DescribeTopics(seen))
    return json_response(TopicsOut([topic_out(one) for one in found], cursor))


async def describe(request: Request) -> Answer:
    return json_response(topic_out(await request.execute(DescribeTopic(request.params["topic"]))))


async def partitions(request: Request) -> Answer:
    asked = request.query(PageQuery)
    name = request.params["topic"]
    found = await request.execute(DescribeTopic(name))
    seen, cursor = page_of(found.partitions, asked, lambda one: f"{one.number:08}")
    return json_response(PartitionsOut(name, [PartitionOut(*one) for one in seen], cursor))


async def configure(request: Request) -> Answer:
    sent = request.json(_CONFIGURE)
    name, changes = request.params["topic"], sent.config | retention_of(sent.retention_hours)
    if not changes:
        raise BadRequest("there is nothing to change", field="config")
    return json_response(topic_out(await request.execute_audited(ConfigureTopic(name, changes))))


async def delete(request: Request) -> Answer:
    await request.execute_audited(DeleteTopic(request.params["topic"]))
    return nothing()


async def grow(request: Request) -> Answer:
    sent = request.json(_GROW)
    name = request.params["topic"]
    before = await request.execute_audited(AddPartitions(name, sent.count))
    return json_response(grown_out(name, before, sent.count))


async def compact(request: Request) -> Answer:
    """Remove what retention lets go, now."""
    name = request.params["topic"]
    swept = (await request.execute_audited(SweepTopics(name)))[name]
    return json_response(CompactOut(name, swept.segments_removed, swept.bytes_freed))


_TAG = "topics"

ROUTES = (
    Route(
        method="POST",
        path="/topics",
        call=create,
        action=Action.CREATE_TOPIC,
        summary="Create a topic",
        tag=_TAG,
        query=CreateQuery,
        body=CreateIn,
        answer=CreatedOut,
        status=201,
        errors=(AlreadyExists, InvalidConfig),
        topic_in=TopicIn.REST,
    ),
    Route(
        method="GET",
        path="/topics",
        call=list_topics,
        action=Action.SEE_TOPICS,
        summary="List topics",
        tag=_TAG,
        query=TopicsQuery,
        answer=TopicsOut,
    ),
    Route(
        method="GET",
        path="/topics/{topic}",
        call=describe,
        action=Action.SEE_TOPICS,
        summary="Describe a topic",
        tag=_TAG,
        answer=TopicOut,
        errors=(NotFound,),
        topic_in=TopicIn.PATH,
    ),
    Route(
        method="PATCH",
        path="/topics/{topic}",
        call=configure,
        action=Action.CONFIGURE_TOPIC,
        summary="Change settings of a topic",
        tag=_TAG,
        body=ConfigureIn,
        answer=TopicOut,
        errors=(NotFound, InvalidConfig),
        topic_in=TopicIn.PATH,
    ),
    Route(
        method="DELETE",
        path="/topics/{topic}",
        call=delete,
        action=Action.DELETE_TOPIC,
        summary="Delete a topic with everything in it, dead letters included",
        tag=_TAG,
        status=204,
        errors=(NotFound,),
        topic_in=TopicIn.PATH,
    ),
    Route(
        method="GET",
        path="/topics/{topic}/partitions",
        call=partitions,
        action=Action.SEE_TOPICS,
        summary="Partitions of a topic",
        tag=_TAG,
        query=PageQuery,
        answer=PartitionsOut,
        errors=(NotFound,),
        topic_in=TopicIn.PATH,
    ),
    Route(
        method="POST",
        path="/admin/topics/{topic}/partitions",
        call=grow,
        action=Action.CONFIGURE_TOPIC,
        summary="Add partitions, up to a new total",
        tag=_TAG,
        body=GrowIn,
        answer=GrownOut,
        errors=(NotFound,),
        topic_in=TopicIn.PATH,
    ),
    Route(
        method="POST",
        path="/admin/topics/{topic}/compact",
        call=compact,
        action=Action.COMPACT_TOPIC,
        summary="Remove what retention lets go, now",
        tag=_TAG,
        answer=CompactOut,
        errors=(NotFound,),
        topic_in=TopicIn.PATH,
    ),
)
