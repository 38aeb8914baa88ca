"""A key with prefixes asks every query of every port, and no answer names what it does not reach."""

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.api import journeys, members
from penstock.api.answers import Answer, Kind, answers_of
from penstock.api.classic import JoinClassic
from penstock.api.command import Command
from penstock.api.commits import CommitStagings, OpenStaging, StageNamed, StagingRef
from penstock.api.consume import Poll
from penstock.api.dead_letters import GroupBy
from penstock.api.frames import COMMAND, request_frame
from penstock.api.groups import Commit, Mode, PartitionOffset
from penstock.api.json.pipelines import PipelineIn
from penstock.api.keys import CreateKey, NewKey
from penstock.api.principals import LOCAL, Principal, Role
from penstock.api.publish import Delayed, Publish, Schedule
from penstock.api.queries import KeepQueryStart
from penstock.api.receipts import read_receipt
from penstock.api.schedules import CreateSchedule
from penstock.api.schemas import DescribeVersion, NewSchema, RegisterSchema
from penstock.api.start import EARLIEST
from penstock.api.topics import CreateTopic
from penstock.api.transactions import InitProducer, ListTransactions, Stage
from penstock.api.wire import CALLS, encode_command
from penstock.model import Message
from penstock.server.http.table import ROUTES
from tests.kafka.in_process import KafkaRig
from tests.server.binary.services import service_of
from tests.server.binary.transports import on_wire
from tests.server.rigs import InProcess, in_process
from tests.server.wires import until

FOREIGN = b"foreign"
TOPICS = ("foreign.t", "mine.t", "foreign.u")
GROUP, MEMBER, SUBJECT = "both", "member", "mine.t-value"
# A query with one of these fields is about what the client names.
OF_ONE = {"topic", "name", "names", "subject", "key_id", "schema"}
QUERIES = [call.kind for call in CALLS.values() if call.kind.is_query]


def required_fields(kind: type[Command[Any]]) -> set[str]:
    return {field.name for field in msgspec.structs.fields(kind) if field.required}


class Scene:
    """A broker on which everything is there twice: in topics of the key's own, and in foreign ones."""

    def __init__(self, broker: InProcess) -> None:
        self.broker = broker
        for topic in TOPICS:
            self._fill(topic)
        for group, mode in ((GROUP, Mode.SHARED), ("assigned", Mode.RELAXED)):
            join = members.JoinGroup(group, MEMBER, TOPICS, session_ms=60_000, mode=mode)
            if mode is Mode.RELAXED:
                self.run(join)
                self.run(members.PollMember(group, MEMBER, 100))
            else:
                limits = broker.settings.limits.limits_config()
                shared = broker.app.shared
                shared.join(group, MEMBER, "client", TOPICS, 60, by=LOCAL, limits=limits)
        self._stage()
        assigns = [("range", b"foreign")]
        joined = JoinClassic(
            "classic", "", protocol_type="consumer", protocols=assigns, topic_names=TOPICS
        )
        self.run(joined)
        report = PipelineIn(kind="stream", state="running", topics=[*TOPICS], target="foreign")
        broker.app.pipelines.report("p", report, 0, 60)
        offsets = {f"{topic}/0": 0 for topic in TOPICS}
        self.run(KeepQueryStart("start", offsets, {}, "asked"))
        broker.driver.settle()
        self.run(CreateKey("other", Role.READONLY, ("foreign.",)))
        self.key: NewKey = self.run(CreateKey("reader", Role.ADMIN, ("mine.",)))
        foreign = self.run(DescribeVersion("foreign.t-value"))
        self.schema = foreign.schema
        self.trace_id = self.run(journeys.DescribeJourney("foreign.t", 0, 0)).trace_id
        (self.transaction,) = (one.transaction_id for one in self.run(ListTransactions()))

    def run(self, command: Command[Any]) -> Any:
        return self.broker.driver.execute(command)

    def _fill(self, topic: str) -> None:
        name = topic.partition(".")[0]
        self.run(CreateTopic(topic, 2))
        field = f'{{"name":"{name}","type":"int"}}'
        record = f'{{"type":"record","name":"{name}","fields":[{field}]}}'
        self.run(RegisterSchema(f"{topic}-value", NewSchema("AVRO", record)))
        message = Message(name.encode(), name.encode(), [(name, name.encode())])
        self.run(Publish(topic, [message] * 8, 0))
        leased = self.run(Poll(topic, GROUP, MEMBER, 6, 60_000))
        read = [read_receipt(one.receipt) for one in leased][:3]
        self.run(Answer([*answers_of(read, Kind.REJECT, name).values()]))
        for group in ("lake", f"{name}-group"):
            self.run(Commit(group, (PartitionOffset(topic, 0, 1),), opens_group=True))
        due_ns = self.broker.clock.now_ns() + 3600 * 1_000_000_000
        self.run(Schedule(topic, [Delayed(message, due_ns, name.encode())], 0))
        self.run(CreateSchedule(topic, f"{name}-schedule", every_ms=3_600_000, value=message.value))

    def _stage(self) -> None:
        session = self.run(InitProducer("producer"))
        staging = self.run(OpenStaging("commit", 1, "writer"))
        committed = self.run(OpenStaging("committed", 1, "writer"))
        for topic in TOPICS:
            self.run(Stage(*session, topic, [Message(b"v")], 0))
            for one in (staging, committed):
                self.run(StageNamed(one, topic, [Message(b"v")], 0, 0))
        refs = [StagingRef(committed, len(TOPICS))]
        self.run(CommitStagings("committed", 1, "writer", refs))

    def values(self) -> dict[str, Any]:
        """Of the fields of queries, by their names: what is the key's own, and numbers of what is foreign."""
        return {
            "topic": "mine.t",
            "names": ("mine.t",),
            "group": GROUP,
            "member": MEMBER,
            "subject": SUBJECT,
            "schema": NewSchema("AVRO", '"int"'),
            "schema_id": self.schema.schema_id,
            "content": b"\0" + self.schema.schema_id.to_bytes(4, "big") + b"\2",
            "trace_id": self.trace_id,
            "transaction_id": self.transaction,
            "query": "start",
            "key_id": self.key.key.key_id,
            "key": "mine-schedule",
            "which": b"mine",
            "by": GroupBy.ERROR,
            "to": EARLIEST,
            "start": EARLIEST,
            "partition": 0,
            "number": 0,
            "offset": 0,
            "end": 1,
            "hold_ms": 0,
            "epoch": 0,
            "time_ns": 0,
            "version": 1,
            "limit": 100,
            "groups_max": 100,
        }

    def queries(self, kind: type[Command[Any]]) -> Iterator[Command[Any]]:
        """A query of its own things, of all, by what is required alone, and by all that it takes."""
        names = {"name": "commit" if "Commit" in kind.__name__ else "mine.t"}
        known = {**self.values(), **names}
        fields = msgspec.structs.fields(kind)
        required = {field.name: known[field.name] for field in fields if field.required}
        yield kind(**required)
        given = {field.name: known[field.name] for field in fields if field.name in known}
        if "topic" in given and "topic" not in required:
            yield kind(**required, topic="mine.t")
            del given["topic"]
        if kind is not journeys.SearchJourneys:
            yield kind(**given)
        for flag in ("deleted", "or_global", "serialized"):
            if any(field.name == flag for field in fields):
                yield kind(**required, **{flag: True})
        for group in ("assigned", "lake", "classic"):
            if "group" in required:
                yield kind(**{**required, "group": group})


SETTINGS = {("auth", "enabled"): True}


async def answers_to_queries(
    scene: Scene, principal: Principal
) -> list[tuple[Command[Any], bytes]]:
    """What the binary port answers a principal, to every query of every kind."""
    connection, wire = on_wire(service_of(scene.broker), scene.key)
    connection.principal = principal
    asked = [query for kind in QUERIES for query in scene.queries(kind)]
    for number, query in enumerate(asked):
        frame = request_frame(COMMAND, number, encode_command(query), b"test")
        connection.data_received(b"".join(frame))
        await until(lambda number=number: number in wire.replies)
    return [(query, bytes(wire.replies[number])) for number, query in enumerate(asked)]


@pytest.mark.parametrize("role", [Role.ADMIN, Role.READONLY])
async def test_no_answer_of_the_binary_port_names_what_a_key_does_not_reach(
    tmp_path: Path, role: Role
) -> None:
    async with in_process(tmp_path, SETTINGS) as broker:
        principal = Principal("reader", role, ("mine.",), key_id="pk-1")
        answers = await answers_to_queries(Scene(broker), principal)
        assert not {repr(query) for query, reply in answers if FOREIGN in reply}
        done = sum(reply[0] == 0 for _, reply in answers)
        assert done > len(answers) // 2 or role is Role.READONLY


# Queries of all that there is which name none of it.
NAMELESS = {
    *("DescribeCompatibility", "DescribeMode", "DescribeRegistry"),
    *("SeeHealth", "SeeStored", "SeeTransactionStats"),
}


async def test_every_query_of_all_would_name_what_a_key_does_not_reach(tmp_path: Path) -> None:
    """Or the scene lacks something, and the test of its answers looks at nothing."""
    async with in_process(tmp_path, SETTINGS) as broker:
        answers = await answers_to_queries(Scene(broker), LOCAL)
        named = {type(query) for query, reply in answers if FOREIGN in reply}
        of_all = {kind for kind in QUERIES if not OF_ONE & required_fields(kind)}
        assert {kind.__name__ for kind in of_all - named} == NAMELESS


async def test_no_answer_of_http_names_what_a_key_does_not_reach(tmp_path: Path) -> None:
    async with in_process(tmp_path, SETTINGS) as broker:
        scene = Scene(broker)
        words = {
            "topic": "mine.t",
            "partition": "0",
            "offset": "0",
            "subject": SUBJECT,
            "version": "1",
            "schedule": "mine-schedule",
            "query": "start",
            "commit": "commit",
            "trace_id": scene.trace_id,
            "transaction": scene.transaction,
            "pipeline": "p",
            "id": str(scene.schema.schema_id),
            "guid": scene.schema.guid,
            "key_id": scene.key.key.key_id,
            "producer_id": scene.transaction.split("-")[0],
        }
        told, statuses = set(), []
        headers = {"authorization": f"Bearer {scene.key.text}"}
        for route in ROUTES:
            if route.method != "GET" or any(
                part in route.path for part in ("console", "docs", "{file}")
            ):
                continue
            for group in (GROUP, "assigned", "lake", "classic"):
                target = route.path
                for name, word in {**words, "group": group}.items():
                    target = target.replace(f"{{{name}}}", word)
                reply = await broker.call("GET", target, headers=headers)
                statuses.append(reply.status)
                if FOREIGN in reply.body or any(
                    "foreign" in line for line in reply.headers.values()
                ):
                    told.add(target)
        content = {"content": {"base64": b64encode(scene.values()["content"]).decode()}}
        reply = await broker.call("POST", "/schemas/decode", content, headers=headers)
        assert (reply.status, FOREIGN in reply.body) == (404, False)
        assert not told
        assert statuses.count(200) > len(statuses) // 2


KAFKA_QUERIES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "Metadata": (3, 4, {"topics": None, "allow_auto_topic_creation": False}),
    "ListGroups": (16, 2, {}),
    "DescribeGroups": (
        15,
        4,
        {"groups": [GROUP, "assigned", "kafka"], "include_authorized_operations": False},
    ),
    "OffsetFetch": (9, 5, {"group_id": "kafka", "topics": None}),
    "ConsumerGroupDescribe": (
        69,
        0,
        {"group_ids": [GROUP, "assigned"], "include_authorized_operations": False},
    ),
    "ShareGroupDescribe": (
        77,
        1,
        {"group_ids": [GROUP, "assigned"], "include_authorized_operations": False},
    ),
}


@pytest.mark.parametrize("name", KAFKA_QUERIES)
async def test_no_answer_of_kafka_names_what_a_key_does_not_reach(
    tmp_path: Path, name: str
) -> None:
    async with in_process(tmp_path, SETTINGS) as broker:
        scene = Scene(broker)
        rig = KafkaRig(broker)
        await share(rig, GROUP)
        await commit(rig, "kafka")
        key, version, values = KAFKA_QUERIES[name]
        client = rig.client(
            Principal("reader", Role.ADMIN, ("mine.",), key_id=scene.key.key.key_id)
        )
        reply = await client.ask(key, version, **values)
        assert "foreign" not in repr(reply)
        everything = await rig.client(LOCAL).ask(key, version, **values)
        assert name in {"ListGroups", "DescribeGroups"} or "foreign" in repr(everything), (
            "it says nothing at all"
        )


async def share(rig: KafkaRig, group: str) -> None:
    """A member of a shared group that came by Kafka, and reads what is foreign."""
    values = {"group_id": group, "member_id": "A" * 22, "member_epoch": 0, "rack_id": None}
    reply = await rig.client(LOCAL).ask(76, 1, **values, subscribed_topic_names=[*TOPICS])
    assert not reply["error_code"], reply


async def commit(rig: KafkaRig, group: str) -> None:
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    topics = [{"name": topic, "partitions": [part]} for topic in TOPICS]
    member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    await rig.client(LOCAL).ask(8, 7, group_id=group, **member, topics=topics)
