"""A node on a simulated disk, with a clock that a test moves, and ways to stop it."""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from penstock.api.answers import Answer, Kind, LeaseOutcome, ReleaseMember, answers_of
from penstock.api.command import Command
from penstock.api.consume import Poll
from penstock.api.dead_letters import BrowseDeadLetters
from penstock.api.fetch import Fetch, FetchReply
from penstock.api.groups import (
    Commit,
    DescribeLag,
    DescribeLanes,
    Move,
    OpenGroup,
    PartitionLag,
    PartitionLanes,
    PartitionOffset,
    ResetGroup,
)
from penstock.api.leased import LeasedMessages
from penstock.api.principals import LOCAL
from penstock.api.publish import Delayed, Publish, Schedule
from penstock.api.receipts import Receipt, read_receipt
from penstock.api.start import EARLIEST, Start
from penstock.api.topics import (
    AddPartitions,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    ListTopics,
    PartitionFacts,
    SweepTopics,
    Swept,
)
from penstock.broker import Node, Now, Received
from penstock.broker.topics import settings_of
from penstock.codec import batches_in, decode_messages
from penstock.config import LimitsConfig, TopicConfig
from penstock.errors import NotFound, PenstockError, StaleReceipt
from penstock.model import Message
from penstock.sim import CrashKind, CrashStates, Model, SimDisk, Tree, check_crashes
from penstock.sim.operations import EMPTY

MS = 1_000_000
R = TypeVar("R")
HOUR_MS = 3600 * 1000
WALL_NS = 1_700_000_000_000_000_000
TOPIC, GROUP = "orders", "billing"


class Answered(NamedTuple):
    """A receipt whose answer was taken."""

    is_repeat: bool
    floor: int
    has_floor_moved: bool
    in_flight: int
    retry_in_ms: int | None
    is_finished: bool


def result_of(text: str, receipt: Receipt, outcome: LeaseOutcome | PenstockError):
    if isinstance(outcome, PenstockError):
        return outcome
    offset = receipt.offset
    if offset in outcome.stale:
        return StaleReceipt(text)
    if offset in outcome.missing:
        return NotFound("message", offset)
    return Answered(
        offset in outcome.repeated,
        outcome.floor,
        outcome.has_floor_moved,
        outcome.in_flight,
        outcome.retry_in_ms.get(offset),
        offset in outcome.finished,
    )


class World:
    """One node through all its lives. Every time is in milliseconds."""

    def __init__(self, disk: SimDisk | None = None, **options: object) -> None:
        self.disk = disk or SimDisk()
        self.entropy = random.Random(7)
        self.wall_ns, self.monotonic_ns = WALL_NS, 0
        self.options = options
        self.node = self._open()

    def _open(self) -> Node:
        return Node(self.disk, now=self.now(), entropy=self.entropy, **self.options)

    def now(self, ms: float = 0) -> Now:
        """The time, after some of it has passed."""
        self.wall_ns += int(ms * MS)
        self.monotonic_ns += int(ms * MS)
        return Now(self.wall_ns, self.monotonic_ns)

    def wait(self, ms: float) -> None:
        self.now(ms)
        self.node.tick(self.now())

    def topic(self, partitions: int = 1, name: str = TOPIC, **settings: object) -> None:
        self.execute(CreateTopic(name, partitions, settings_of(TopicConfig(**settings))))

    def configure(self, name: str = TOPIC, **changes: object) -> None:
        self.execute(ConfigureTopic(name, changes))

    def grow(self, total: int, name: str = TOPIC) -> None:
        self.execute(AddPartitions(name, total))

    def delete(self, name: str = TOPIC) -> None:
        self.execute(DeleteTopic(name))

    def topics(self) -> list[str]:
        return self.execute(ListTopics())

    def describe(self, name: str = TOPIC) -> tuple[PartitionFacts, ...]:
        return self.execute(DescribeTopic(name)).partitions

    def sweep(self) -> dict[str, Swept]:
        return self.execute(SweepTopics())

    def group(self, name: str = GROUP, topic: str = TOPIC, **options: object) -> None:
        self.execute(OpenGroup(name, (topic,), **options))

    def lag(self, group: str = GROUP) -> list[PartitionLag]:
        return self.execute(DescribeLag(group)).partitions

    def lanes(self, group: str = GROUP) -> list[PartitionLanes]:
        return self.execute(DescribeLanes(topic=TOPIC, group=group))[TOPIC].partitions

    def commit(self, group: str, offset: int, partition: int = 0) -> bool:
        return self.execute(Commit(group, (PartitionOffset(TOPIC, partition, offset),)))

    def reset(self, to: Start, group: str = GROUP, *, is_forced: bool = False) -> list[Move]:
        reset = ResetGroup(group, topic=TOPIC, to=to, is_forced=is_forced)
        return self.execute(reset)[TOPIC]

    def publish(self, *values: bytes | Message, topic: str = TOPIC, **options: object):
        messages = [one if isinstance(one, Message) else Message(one) for one in values]
        return self.execute(Publish(topic, messages, **options))

    def schedule(self, delayed: Sequence[Delayed], after_ms: int = 0, **options: object):
        self.now(after_ms)
        return self.execute(Schedule(TOPIC, delayed, **options))

    def poll(
        self,
        limit: int = 100,
        *,
        member: str = "m",
        group: str = GROUP,
        ms: int = 30_000,
        **options,
    ) -> LeasedMessages:
        topic = options.get("topic", TOPIC)
        return self.execute(Poll(topic, group, member, limit, ms))

    def execute(self, command: Command[R]) -> R:
        return self.node.execute(command, LOCAL, self.now()).outcome()

    def answer(self, kind: Kind, receipts: Sequence[str], reason: str = "", ms: int | None = None):
        """What came of each receipt: an `Answered`, or an error."""
        read = [read_receipt(one) for one in receipts]
        leases = answers_of(read, kind, reason, ms)
        said = Answer([*leases.values()])
        outcomes = dict(zip(leases, self.execute(said), strict=True))
        return [
            result_of(text, one, outcomes[one.place, one.lease])
            for text, one in zip(receipts, read, strict=True)
        ]

    def ack(self, *received: Received):
        return self.answer(Kind.ACK, [one.receipt for one in received])

    def nack(self, *received: Received, error: str = "", delay_ms: int | None = None):
        return self.answer(Kind.NACK, [one.receipt for one in received], error, delay_ms)

    def reject(self, *received: Received, error: str = ""):
        return self.answer(Kind.REJECT, [one.receipt for one in received], error)

    def extend(self, *received: Received, ms: int):
        return self.answer(Kind.EXTEND, [one.receipt for one in received], ms=ms)

    def release(self, member: str = "m", group: str = GROUP, topic: str = TOPIC) -> None:
        self.execute(ReleaseMember(topic, group, member))

    def fetch(self, start: Start = EARLIEST, partition: int = 0, **options: object) -> FetchReply:
        return self.execute(Fetch(TOPIC, partition, start, **options))

    def sync(self) -> None:
        plans = self.node.plan_sync()
        for _, plan in plans:
            plan.run()
        self.node.synced(plans, self.now())

    def settle(self) -> None:
        """Sync and pump until everything is where it belongs."""
        for _ in range(20):
            self.sync()
            if not self.node.pump(self.now()):
                return
        raise AssertionError("letters never stop moving")

    def restart(self) -> None:
        """Stop properly and start again."""
        self.node.close()
        self.open_on(SimDisk(self.disk.tree()))

    def take_snapshots(self) -> None:
        """Have everything in snapshots, so that the next start reads no message."""
        for partition in self.node.partitions():
            partition.take_snapshot()

    def kill(self) -> None:
        """End the process; the operating system still writes everything out."""
        self.open_on(SimDisk(self.disk.tree()))

    def lose_unsynced(self) -> None:
        """Pull the plug; only what was synced is left."""
        self.open_on(only_durable(self.disk))

    def open_on(self, disk: SimDisk) -> None:
        self.disk.power_off()
        self.disk, self.monotonic_ns = disk, 0
        self.node = self._open()

    def letters(self, topic: str = TOPIC):
        return self.execute(BrowseDeadLetters(topic)).letters

    def drain(self, *, group: str = GROUP, rounds: int = 30, topic: str = TOPIC) -> list[Received]:
        """Everything that a group can get now, acked."""
        found: list[Received] = []
        for _ in range(rounds):
            got = self.poll(group=group, topic=topic)
            if not got:
                return found
            self.ack(*got)
            found += got
        raise AssertionError("it never ends")


def only_durable(disk: SimDisk) -> SimDisk:
    states = CrashStates(disk, Model.STRICT, entropy=random.Random(1), kinds=[CrashKind.DURABLE])
    *_, last = states
    return last.disk()


def messages_of(fetched: FetchReply) -> list[Message]:
    """The messages of stored batches from the offset on that was asked for."""
    found = [
        message
        for head, batch in batches_in(fetched.data, seed=fetched.seed)
        for message in decode_messages(batch, head)
    ]
    return [one for one in found if one.offset >= fetched.offset]


def values(received: Sequence[Received | Message]) -> list[bytes | None]:
    return [one.value for one in received]


SMALL = LimitsConfig(
    value_bytes_max=100, key_bytes_max=20, headers_bytes_max=50, batch_bytes_max=1000
)


PLAIN = (CrashKind.ALL, CrashKind.DURABLE)
MIXED = (*PLAIN, CrashKind.SUBSETS)


def pull_the_plug(
    scenario: Callable[[SimDisk], None],
    check: Callable[[SimDisk, tuple[object, ...]], None],
    effort: Callable[..., int],
    *,
    kinds: Sequence[CrashKind] = PLAIN,
    start: Tree = EMPTY,
    is_long: bool = False,
) -> int:
    """Check the states that a power cut may leave: `kinds` always, with more effort samples of every damage.

    A sample loses, tears and zeroes some of what was not synced. Each damage of each write alone takes minutes: in
    torture only, as are the samples of a scenario that `is_long`.
    """
    tier = effort(check=0, test=0 if is_long else 1, torture=2)
    counts = check_crashes(
        scenario,
        check,
        entropy=random.Random(1),
        models=tuple(Model) if tier == 2 else (Model.STRICT,),
        kinds=(kinds, MIXED, tuple(CrashKind))[tier],
        subsets=(1, 3, 20)[tier],
        start=start,
    )
    return counts.distinct
