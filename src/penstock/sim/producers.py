"""Producers: plain ones that may send twice, ones with idempotency keys, and ones with sequence numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from msgspec import structs

from ..api.publish import Publish, PublishBatch, Published, PublishRecords
from ..codec import Marks, encode_messages
from ..codec.decode import open_body
from ..codec.kafka_writer import kafka_batch_of
from ..errors import OutOfSequence, PartlyPublished, Unavailable
from ..model import Message, Priority, TopicPartition
from .client import WorldView
from .driver import PendingReply, SimDriver
from .parameters import Parameters
from .schedule import SECOND
from .violation import Checker, Violation

_RECORD_TIME_NS = 1_700_000_000 * SECOND
ANY = -1
"""In place of a partition: each message goes where its key says."""


class ProducerKind(Enum):
    PLAIN = "plain"
    KEYED = "keyed"
    COUNTED = "counted"


@dataclass(slots=True, eq=False)
class Batch:
    """Messages that are sent together until the node acknowledges them."""

    messages: list[Message]
    partition: int
    first_sequence: int
    # The life of the node in which it was sent last, -1 if that has to happen again.
    sent_in: int = -1

    @property
    def values(self) -> frozenset[bytes]:
        return frozenset(one.value or b"" for one in self.messages)

    @property
    def is_for_kafka(self) -> bool:
        """Whether a Kafka client sends it: every second batch of what such a client can say."""
        return bool(self.first_sequence % 2) and all(
            one.expires_at is None and one.priority == Priority.NORMAL for one in self.messages
        )


def record_batch(messages: Sequence[Message], marks: Marks) -> bytes:
    """Returns messages as a Kafka producer sends them, all at one time."""
    timed = [structs.replace(one, timestamp=_RECORD_TIME_NS) for one in messages]
    encoded = encode_messages(timed, marks=marks)
    return kafka_batch_of(encoded.head, open_body(encoded.whole_body(), encoded.head, start=0))


@dataclass(slots=True, eq=False)
class Producer:
    """Sends to one topic. `is_stopping`: repeats what has no reply yet, and sends nothing new."""

    name: str
    kind: ProducerKind
    topic: str
    producer_id: int
    world: WorldView
    parameters: Parameters
    outstanding: list[Batch] = field(default_factory=list)
    is_stopping: bool = False
    epoch: int = 0
    acked: int = 0
    repeated: int = 0
    _sequences: dict[int, int] = field(default_factory=dict)
    _made: int = 0

    def wake(self) -> None:
        world = self.world
        world.wake_later(100 if self.is_stopping else 1200, self)
        driver = world.driver
        if driver is None:
            return
        waiting = [one for one in self.outstanding if one.sent_in != world.life]
        is_impatient = bool(self.outstanding) and world.entropy.random() < 0.3
        window = 3 if self.kind is ProducerKind.COUNTED else 1
        if waiting or is_impatient:
            self._send_again(driver)
        elif not self.is_stopping and len(self.outstanding) < window:
            self._begin(driver)

    def _send_again(self, driver: SimDriver) -> None:
        """Send all batches without a reply in their order, so that sequences have no gap."""
        if self.kind is ProducerKind.PLAIN and self.world.entropy.random() < 0.5:
            self.outstanding.clear()
            return
        for batch in [*self.outstanding]:
            if self.world.driver is not driver:
                return
            self._send(driver, batch)
            if batch.sent_in != self.world.life:
                return

    def _begin(self, driver: SimDriver) -> None:
        entropy = self.world.entropy
        partitions = driver.node.topic(self.topic).partitions
        partition = entropy.randrange(len(partitions))
        if self.kind is ProducerKind.KEYED:
            partition = ANY
        elif self.kind is ProducerKind.COUNTED:
            # Sequences count per partition, and a window spans one.
            partition = self.producer_id % len(partitions)
        if self.kind is ProducerKind.COUNTED and not self.outstanding and entropy.random() < 0.1:
            self._begin_epoch(driver, partition)
            return
        messages = [self._message(entropy.randrange(200)) for _ in range(entropy.randint(1, 4))]
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = first + len(messages)
        batch = Batch(messages, partition, first)
        self.outstanding.append(batch)
        self._send(driver, batch)

    def _begin_epoch(self, driver: SimDriver, partition: int) -> None:
        """Begin a new producer epoch, and send once more in the old one. Violation: the node accepts that."""
        self.epoch += 1
        self._sequences.clear()
        first = self._message(0)
        self._sequences[partition] = 1
        batch = Batch([first], partition, 0)
        self.outstanding.append(batch)
        self._send(driver, batch)
        if self.world.driver is driver and batch.sent_in == self.world.life:
            self._send_as_zombie(driver, partition)

    def _send_as_zombie(self, driver: SimDriver, partition: int) -> None:
        marks = Marks(producer_id=self.producer_id, producer_epoch=self.epoch - 1, first_sequence=0)
        message = Message(b"zombie of %s" % self.name.encode())
        batch = encode_messages([message], marks=marks).to_bytes()

        def call() -> None:
            try:
                driver.execute(PublishBatch(self.topic, partition, batch))
            except (OutOfSequence, Unavailable):
                return
            raise Violation(Checker.NO_DUP, f"{self.name}: epoch {self.epoch - 1} was not fenced")

        self.world.act(self.world.new_event(f"{self.name} sends in an old epoch"), call)

    def _message(self, size: int) -> Message:
        self._made += 1
        value = b"%s %d " % (self.name.encode(), self._made) + b"x" * size
        entropy, expires_at = self.world.entropy, None
        if self.parameters.ttl_one_in and entropy.randint(1, self.parameters.ttl_one_in) == 1:
            wall_ns = self.world.new_event("").time.wall_ns
            expires_at = wall_ns + entropy.randint(1, 8) * SECOND
        key = value if self.kind is ProducerKind.KEYED else None
        priority = (self._made * 7 + self.producer_id) % len(Priority)
        return Message(
            value,
            key=value[-3:],
            expires_at=expires_at,
            idempotency_key=key,
            priority=priority if self.parameters.has_priorities else Priority.NORMAL,
        )

    def _send(self, driver: SimDriver, batch: Batch) -> None:
        what = (
            f"{self.name} sends {len(batch.messages)} to {batch.partition} ({batch.first_sequence})"
        )
        # Now and then twice at once, as a client does whose timeout is too short.
        is_hasty = self.kind is not ProducerKind.PLAIN and self.world.entropy.random() < 0.15
        for _ in range(1 + is_hasty):
            if self.world.driver is driver:
                event = replace(self.world.new_event(what), values=batch.values)
                self.world.act(event, lambda: self._publish(driver, batch))

    def _publish(self, driver: SimDriver, batch: Batch) -> None:
        try:
            results = self._store(driver, batch)
        except PartlyPublished:
            batch.sent_in = -1
            self.world.note("stored in part")
            return
        except Unavailable as error:
            batch.sent_in = -1
            self.world.note(f"refused: {error.code}")
            # Nothing of a refused batch may be stored.
            self.world.event = replace(self.world.event, values=frozenset())
            return
        except OutOfSequence as error:
            self._start_over(error)
            return
        batch.sent_in = self.world.life
        self._await_reply(driver, batch, results)

    def _store(self, driver: SimDriver, batch: Batch) -> Sequence[Published]:
        if self.kind is not ProducerKind.COUNTED:
            where = None if batch.partition == ANY else batch.partition
            return driver.execute(Publish(self.topic, batch.messages, where))
        marks = Marks(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            first_sequence=batch.first_sequence,
        )
        if batch.is_for_kafka:
            records = record_batch(batch.messages, marks)
            return driver.execute(PublishRecords(self.topic, batch.partition, records)).stored
        encoded = encode_messages(batch.messages, marks=marks)
        command = PublishBatch(self.topic, batch.partition, encoded.to_bytes())
        return driver.execute(command).stored

    def _start_over(self, error: OutOfSequence) -> None:
        """Begin a new epoch after OutOfSequence. Violation: the disk has not lost anything durable."""
        if not self.world.books.is_forgiving:
            story = f"{self.name} was refused, and lost nothing: {error}"
            raise Violation(Checker.NO_DUP, story)
        self.epoch += 1
        self._sequences.clear()
        self.outstanding.clear()

    def _await_reply(self, driver: SimDriver, batch: Batch, results: Sequence[Published]) -> None:
        """Hold the reply until every partition that the batch went to is durable."""
        self.world.books.follow(driver.node, self.world.event)
        if any(one.is_duplicate for one in results):
            self.repeated += 1
            self.world.notice("duplicate")
        if self.kind is ProducerKind.PLAIN and self.world.entropy.random() < 0.3:
            self._replied(batch, results, is_durable=False)
            return
        durable_at: dict[int, int] = {}
        for one in results:
            durable_at[one.partition] = max(one.durable_at, durable_at.get(one.partition, 0))
        missing = set(durable_at)

        def arrived(number: int) -> None:
            missing.discard(number)
            if not missing:
                self._replied(batch, results, is_durable=True)

        for number, end in durable_at.items():
            target = driver.node.partition(self.topic, number)
            driver.hold(target, PendingReply(end, 0, partial(arrived, number)))

    def _replied(self, batch: Batch, results: Sequence[Published], *, is_durable: bool) -> None:
        books = self.world.books
        if is_durable:
            for one in results:
                promises = books.by_partition[TopicPartition(self.topic, one.partition)].promises
                promises.messages = max(promises.messages, one.offset + 1)
        self.world.notice("replied")
        for message, one in zip(batch.messages, results, strict=True):
            books.expect(
                books.by_partition[TopicPartition(self.topic, one.partition)], message, one.offset
            )
        if self.world.entropy.random() < 0.15:
            batch.sent_in = -1  # The reply is lost, so the producer sends again.
            return
        if batch in self.outstanding:
            self.outstanding.remove(batch)
            self.acked += len(batch.messages)
