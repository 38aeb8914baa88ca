"""Topics: created, listed, described, configured, grown, swept and deleted."""

from typing import Any

import msgspec

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
    TopicDescription,
)
from ...errors import AlreadyExists, BadRequest, InvalidConfig, NotFound
from .paging import PageQuery, page_of
from .requests import Request, decode
from .responses import Answer, json_response, nothing
from .routing import Route, TopicIn
from .shapes import Int64, Strict


class CreateIn(Strict):
    """A topic; `config` holds the settings that differ from the broker's."""

    name: str
    num_partitions: Int64 | None = None
    retention_hours: float | None = None
    config: dict[str, Any] = msgspec.field(default_factory=dict)


class CreateQuery(Strict):
    """The same for those who have no body."""

    name: str | None = None
    partitions: Int64 | None = None


class CreatedOut(msgspec.Struct):
    name: str
    partitions: int
    created: bool


class TopicsQuery(PageQuery):
    details: bool = False


class TopicsOut(msgspec.Struct):
    """Names; with `details` an object for each."""

    topics: list[Any]
    cursor: str | None


class Ends(msgspec.Struct):
    """First offset kept, next offset to be written."""

    earliest: int
    latest: int


class TopicOut(msgspec.Struct, omit_defaults=True):
    name: str
    partitions: int
    total_messages: int
    total_size_bytes: int
    partition_offsets: dict[str, Ends]
    config: dict[str, Any]
    # Partitions that cannot be used, and why.
    faulty: dict[str, str] = {}


class PartitionOut(msgspec.Struct, omit_defaults=True):
    """`fault` says why a partition cannot be used; the figures are 0 then."""

    partition: int
    earliest: int
    latest: int
    messages: int
    size_bytes: int
    fault: str = ""


class PartitionsOut(msgspec.Struct):
    topic: str
    partitions: list[PartitionOut]
    cursor: str | None


class ConfigureIn(Strict):
    """Settings to change; the rest stays."""

    config: dict[str, Any] = msgspec.field(default_factory=dict)
    retention_hours: float | None = None


class GrowIn(Strict):
    """The new total."""

    count: Int64


class GrownOut(msgspec.Struct):
    success: bool
    topic_name: str
    old_partition_count: int
    new_partition_count: int
    partitions_added: int


class CompactOut(msgspec.Struct):
    topic: str
    segments_removed: int
    bytes_freed: int


_CREATE = msgspec.json.Decoder(CreateIn)
_CONFIGURE = msgspec.json.Decoder(ConfigureIn)
_GROW = msgspec.json.Decoder(GrowIn)


async def create(request: Request) -> Answer:
    asked = request.query(CreateQuery)
    body = await request.body()
    if body and asked.name is not None:
        raise BadRequest("name the topic in the query or in the body, not in both", field="name")
    if body:
        sent = decode(body, _CREATE)
    elif asked.name is not None:
        sent = CreateIn(name=asked.name, num_partitions=asked.partitions)
    else:
        raise BadRequest("name is missing", field="name")
    usual = request.door.settings
    count = usual.topic.num_partitions if sent.num_partitions is None else sent.num_partitions
    settings = usual.topic_defaults() | sent.config | _retention(sent.retention_hours)
    await request.execute(CreateTopic(sent.name, count, settings))
    request.audit(sent.name)
    return json_response(CreatedOut(sent.name, count, True), status=201)


def _retention(hours: float | None) -> dict[str, Any]:
    return {} if hours is None else {"retention_hours": hours}


async def list_topics(request: Request) -> Answer:
    asked = request.query(TopicsQuery)
    names = await request.execute(ListTopics(request.principal.prefixes))
    seen, cursor = page_of(names, asked, str)
    if not asked.details:
        return json_response(TopicsOut(list(seen), cursor))
    found = await request.execute(DescribeTopics(seen))
    return json_response(TopicsOut([_topic_out(one) for one in found], cursor))


async def describe(request: Request) -> Answer:
    return json_response(_topic_out(await request.execute(DescribeTopic(request.params["topic"]))))


def _topic_out(topic: TopicDescription) -> TopicOut:
    found = topic.partitions
    return TopicOut(
        topic.name,
        len(found),
        sum(one.messages for one in found),
        sum(one.size_bytes for one in found),
        {str(one.number): Ends(one.earliest, one.latest) for one in found if not one.fault},
        topic.settings,
        {str(one.number): one.fault for one in found if one.fault},
    )


async def partitions(request: Request) -> Answer:
    asked = request.query(PageQuery)
    name = request.params["topic"]
    found = await request.execute(DescribeTopic(name))
    seen, cursor = page_of(found.partitions, asked, lambda one: f"{one.number:08}")
    return json_response(PartitionsOut(name, [PartitionOut(*one) for one in seen], cursor))


async def configure(request: Request) -> Answer:
    sent = await request.json(_CONFIGURE)
    name, changes = request.params["topic"], sent.config | _retention(sent.retention_hours)
    if not changes:
        raise BadRequest("there is nothing to change", field="config")
    configured = await request.execute(ConfigureTopic(name, changes))
    request.audit(name)
    return json_response(_topic_out(configured))


async def delete(request: Request) -> Answer:
    name = request.params["topic"]
    await request.execute(DeleteTopic(name))
    request.audit(name)
    return nothing()


async def grow(request: Request) -> Answer:
    sent = await request.json(_GROW)
    name = request.params["topic"]
    before = await request.execute(AddPartitions(name, sent.count))
    request.audit(f"{name}: {before} to {sent.count} partitions")
    return json_response(GrownOut(True, name, before, sent.count, sent.count - before))


async def compact(request: Request) -> Answer:
    """Remove what retention lets go, now."""
    name = request.params["topic"]
    swept = (await request.execute(SweepTopics(name)))[name]
    request.audit(name)
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
