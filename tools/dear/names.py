"""What is on the judged broker: filled once, and named by the requests."""

import time
from typing import NamedTuple

from dear.wires import FrameWire
from penstock.api.groups import Commit, PartitionOffset
from penstock.api.keys import CreateKey, ListKeys, RotateKey
from penstock.api.members import JoinGroup
from penstock.api.principals import Role
from penstock.api.publish import Delayed, Publish, PublishValues, Schedule
from penstock.api.queries import KeepQueryStart
from penstock.api.schedules import CreateSchedule
from penstock.api.schemas import NewSchema, RegisterSchema
from penstock.api.topics import CreateTopic, DescribeLayouts, ListTopics
from penstock.api.transactions import InitProducer, ProducerSession
from penstock.client import Client
from penstock.model import Message

PUBLISHED_TOGETHER = 5000
READ_BY_EACH = 20
DELAYED, SCHEDULES, VERSIONS, QUERIES = 1000, 100, 20, 100
BESIDE, BIG, JOURNEYS, LETTERS, SUBJECT = "beside", "big", "journeys", "letters", "letters-value"
HOUR_NS = 3_600_000_000_000
SCHEMA = (
    '{"type":"record","name":"R","fields":[{"name":"f%d","type":["null","string"],"default":null}]}'
)
_PATIENCE_S = 600.0


class Sizes(NamedTuple):
    """How much is on the broker, and how long the lists of a request are."""

    partitions: int = 1000
    groups: int = 1000
    messages: int = 100_000
    items: int = 100_000


class Names(NamedTuple):
    """Names that exist, the dearest first, and the keys of clients by role."""

    sizes: Sizes
    topics: tuple[str, ...]
    topic_ids: tuple[int, ...]
    partitions_of: tuple[int, ...]
    groups: tuple[str, ...]
    keys: dict[str, str]
    session: ProducerSession

    @property
    def partitions(self) -> int:
        """Of the topic that has most of them."""
        return self.partitions_of[0]

    def partition(self, index: int) -> int:
        """A partition of the topic with this index, another one each time that the topic comes again."""
        turn, topic = divmod(index, len(self.topics))
        return turn % self.partitions_of[topic]


def layout(sizes: Sizes) -> dict[str, int]:
    """Topics with their partitions; half of all partitions are one topic's."""
    rest = max(4, sizes.partitions - sizes.partitions // 2 - 3)
    orders = {f"orders-{number}": rest // 4 for number in range(4)}
    return {BIG: max(1, sizes.partitions // 2), JOURNEYS: 1, LETTERS: 1, BESIDE: 1, **orders}


def fill(binary: int, admin_key: str, sizes: Sizes) -> Names:
    """Fill a broker, unless it was filled before. It takes a minute or more for the usual sizes."""
    topics = layout(sizes)
    groups = tuple(f"group-{number}" for number in range(sizes.groups))
    wire = FrameWire(binary, admin_key, _PATIENCE_S)
    if BESIDE not in wire.run(ListTopics()):
        for name, partitions in topics.items():
            wire.run(CreateTopic(name, partitions, {"max_in_flight": 1_000_000}))
        _publish(wire, sizes, [*topics])
        with Client(f"penstock://127.0.0.1:{binary}", key=admin_key) as client:
            _read(client, groups)
        _commit(wire, groups[0], topics)
        _register(wire)
    keys = {"admin": admin_key} | {
        role.value: _key(wire, role) for role in Role if role is not Role.ADMIN
    }
    ids = tuple(layout.topic_id for layout in wire.run(DescribeLayouts(tuple(topics))))
    session = wire.run(InitProducer("producer"))
    wire.run(JoinGroup("joined", "member", ("orders-0", "orders-1"), session_ms=_HOUR_MS))
    wire.close()
    return Names(sizes, tuple(topics), ids, tuple(topics.values()), groups, keys, session)


_HOUR_MS = 3_600_000


def _publish(wire: FrameWire, sizes: Sizes, topics: list[str]) -> None:
    """Half of the messages where journeys are long, the rest where many partitions are."""
    for first in range(0, sizes.messages, PUBLISHED_TOGETHER):
        count = min(PUBLISHED_TOGETHER, sizes.messages - first)
        messages = [
            Message(b"v%099d" % number, b"k%d" % number, [("h", b"1")])
            for number in range(first, first + count)
        ]
        topic = JOURNEYS if first % (2 * PUBLISHED_TOGETHER) == 0 else topics[first % len(topics)]
        wire.run(Publish(topic, messages))
    for topic in topics:
        wire.run(PublishValues(topic, [b"first"]))
    due_ns = time.time_ns() + 24 * HOUR_NS
    delayed = [
        Delayed(Message(b"later"), due_ns + number, b"d%d" % number) for number in range(DELAYED)
    ]
    wire.run(Schedule(LETTERS, delayed))


def _read(client: Client, groups: tuple[str, ...]) -> None:
    """Every group reads the same messages of one topic; the first one fails with a thousand of another."""
    for group in groups:
        held = client.poll(JOURNEYS, group, limit=READ_BY_EACH)
        client.ack(held)
    while held := client.poll(LETTERS, groups[0], limit=1000):
        client.reject(held, "not ours")
    client.poll(BIG, groups[0], limit=1000, visibility_timeout="12h")


def _commit(wire: FrameWire, group: str, topics: dict[str, int]) -> None:
    """One group reads every partition."""
    for topic, partitions in topics.items():
        if topic != JOURNEYS:
            offsets = tuple(PartitionOffset(topic, number, 0) for number in range(partitions))
            wire.run(Commit(group, offsets, opens_group=True))


def _register(wire: FrameWire) -> None:
    for number in range(VERSIONS):
        wire.run(RegisterSchema(SUBJECT, NewSchema("AVRO", SCHEMA % number)))
    for number in range(SCHEDULES):
        key = f"schedule-{number}"
        wire.run(CreateSchedule(LETTERS, key, every_ms=24 * _HOUR_MS, value=b"again"))
    for number in range(QUERIES):
        wire.run(KeepQueryStart(f"query-{number}", {f"{BIG}/0": 0}, {BIG: 1}, "asked"))


def _key(wire: FrameWire, role: Role) -> str:
    """The text of a key; of one that exists another secret is made."""
    name = f"judge-{role.value}"
    known = {key.name: key.key_id for key in wire.run(ListKeys())}
    made = wire.run(RotateKey(known[name], 0) if name in known else CreateKey(name, role))
    return str(made.text)
