"""What there is on a broker before a request comes that changes it: made anew for each request, under new names."""

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

from penstock.api.answers import Answer, Kind, LeaseAnswer, answers_of
from penstock.api.command import Command
from penstock.api.commits import OpenStaging, StageNamed, StageNamedAnswers, StagingRef
from penstock.api.consume import Poll
from penstock.api.groups import Mode, OpenGroup
from penstock.api.keys import CreateKey
from penstock.api.members import JoinGroup, PollMember
from penstock.api.principals import Role
from penstock.api.publish import Delayed, Publish, Schedule
from penstock.api.queries import KeepQueryStart
from penstock.api.receipts import read_receipt
from penstock.api.schedules import CreateSchedule
from penstock.api.schemas import Level, NewSchema, RegisterSchema, SetCompatibility, SetMode
from penstock.api.schemas import Mode as SchemaMode
from penstock.api.topics import CreateTopic
from penstock.api.transactions import InitProducer, ListTransactions, ProducerSession, Stage
from penstock.codec import Columns, Marks, encode
from penstock.codec.head import NO_MARKS
from penstock.model import Message
from penstock.runtime.threads import ThreadDriver

R = TypeVar("R")
GROUP, MEMBER, WRITER, KEY = "group", "member", "writer", "again"
PARTITIONS = 2
LEASE_MS = 60_000
SCHEMA = NewSchema("AVRO", '{"type":"record","name":"R","fields":[]}')


class Leased(NamedTuple):
    """Two messages of each partition of a topic, leased."""

    topic: str
    receipts: list[str]

    def answers(self, kind: Kind, ms: int | None = None) -> list[LeaseAnswer]:
        reason = "poison" if kind is Kind.REJECT else ""
        read = map(read_receipt, self.receipts)
        return [*answers_of(read, kind, reason, ms).values()]


class Staging(NamedTuple):
    name: str
    topic: str
    id: str
    refs: Sequence[StagingRef]


class Scene:
    """Of one broker."""

    def __init__(self, driver: ThreadDriver) -> None:
        self._driver, self._numbers = driver, count()

    def run(self, command: Command[R]) -> R:
        return self._driver.execute(command)

    def name(self) -> str:
        return f"name-{next(self._numbers)}"

    @property
    def due_ns(self) -> int:
        return self._driver.clock.now_ns() + 3600 * 1_000_000_000

    def topic(self, partitions: int = PARTITIONS, **settings: Any) -> str:
        name = self.name()
        self.run(CreateTopic(name, partitions, settings))
        return name

    def filled(self, **settings: Any) -> str:
        """A topic with two messages in each partition."""
        topic = self.topic(**settings)
        for partition in range(PARTITIONS):
            self.run(Publish(topic, [Message(b"v"), Message(b"w")], partition))
        return topic

    def grouped(self) -> str:
        topic = self.filled()
        self.run(OpenGroup(GROUP, (topic,)))
        return topic

    def leased(self, **settings: Any) -> Leased:
        topic = self.filled(**settings)
        messages = self.run(Poll(topic, GROUP, MEMBER, 10, LEASE_MS))
        assert len(messages) == 2 * PARTITIONS
        return Leased(topic, [message.receipt for message in messages])

    def dead(self) -> str:
        """A topic with two dead letters of each partition."""
        leased = self.leased()
        self.run(Answer(leased.answers(Kind.REJECT)))
        self._driver.settle()
        return leased.topic

    def delayed(self) -> str:
        topic = self.topic()
        self.run(Schedule(topic, [Delayed(Message(b"later"), self.due_ns, b"k")], 1))
        return topic

    def recurring(self) -> str:
        topic = self.topic()
        self.run(CreateSchedule(topic, KEY, every_ms=3_600_000, value=b"again"))
        return topic

    def session(self) -> ProducerSession:
        return self.run(InitProducer(self.name()))

    def staged(self) -> tuple[ProducerSession, str]:
        """A session with an open transaction in both partitions of a topic."""
        session, topic = self.session(), self.topic()
        for partition in range(PARTITIONS):
            self.run(Stage(*session, topic, [Message(b"v")], partition))
        return session, topic

    def transaction(self) -> str:
        """The id of an open one."""
        (producer_id, _), _ = self.staged()
        transactions = self.run(ListTransactions())
        return next(one.transaction_id for one in transactions if one.producer_id == producer_id)

    def batch(self, session: ProducerSession | None = None, sequence: int = 0) -> bytes:
        columns = Columns(values=[b"a", b"b"], timestamps=1)
        marks = NO_MARKS
        if session is not None:
            marks = Marks(False, *session, first_sequence=sequence)
        return encode(columns, marks=marks).to_bytes()

    def opened(self) -> Staging:
        name, topic = self.name(), self.topic()
        return Staging(name, topic, self.run(OpenStaging(name, 1, WRITER)), ())

    def complete(self) -> Staging:
        """A staging with a message in each partition, and dead letters of those of another topic."""
        name, topic, staging, _ = self.opened()
        for partition in range(PARTITIONS):
            self.run(StageNamed(staging, topic, [Message(b"v")], partition, 0))
        rejects = self.leased().answers(Kind.REJECT)
        self.run(StageNamedAnswers(staging, rejects))
        return Staging(name, topic, staging, [StagingRef(staging, PARTITIONS)])

    def joined(self) -> tuple[str, str]:
        """A group with a member of its own that has polled, and its topic."""
        group, topic = self.name(), self.filled()
        self.run(JoinGroup(group, MEMBER, (topic,), session_ms=60_000, mode=Mode.RELAXED))
        assert self.run(PollMember(group, MEMBER, 10))
        return group, topic

    def key(self) -> str:
        return self.run(CreateKey(self.name(), Role.READONLY)).key.key_id

    def subject(self, setting: Level | SchemaMode | None = None) -> str:
        subject = self.name()
        self.run(RegisterSchema(subject, SCHEMA))
        if isinstance(setting, Level):
            self.run(SetCompatibility(subject, setting))
        elif setting is not None:
            self.run(SetMode(subject, setting))
        return subject

    def query(self) -> str:
        start = self.start()
        self.run(start)
        return start.query

    def start(self) -> KeepQueryStart:
        return KeepQueryStart(self.name(), {f"{self.topic()}/1": 0}, {}, "asked")
