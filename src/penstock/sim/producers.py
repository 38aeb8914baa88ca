"""Senders: plain ones that may repeat themselves, ones with idempotency keys, and ones that count."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from ..api.publish import Publish, PublishBatch, Published
from ..codec import Marks, encode_messages
from ..errors import OutOfSequence, PartlyPublished, Unavailable
from ..model import Message, Priority
from .place import Place
from .schedule import SECOND
from .shell import Shell, Waiting
from .terms import Terms
from .violation import Checker, Violation

ANY = -1
"""In place of a partition: each message goes where its key says."""


class Kind(Enum):
    PLAIN = "plain"
    KEYED = "keyed"
    COUNTED = "counted"


@dataclass(slots=True, eq=False)
class Batch:
    """Messages that are sent together, again and again until somebody says that they are there."""

    messages: list[Message]
    partition: int
    first_sequence: int
    # The life of the node in which it was sent last, -1 if that has to happen again.
    sent_in: int = -1

    @property
    def values(self) -> frozenset[bytes]:
        return frozenset(one.value or b"" for one in self.messages)


@dataclass(slots=True, eq=False)
class Producer:
    """Sends to one topic. `is_stopping`: finishes what it has begun, and begins nothing."""

    name: str
    kind: Kind
    topic: str
    producer_id: int
    place: Place
    terms: Terms
    outstanding: list[Batch] = field(default_factory=list)
    is_stopping: bool = False
    epoch: int = 0
    acked: int = 0
    repeated: int = 0
    _sequences: dict[int, int] = field(default_factory=dict)
    _made: int = 0

    def wake(self) -> None:
        place = self.place
        place.wake_later(100 if self.is_stopping else 1200, self)
        shell = place.shell
        if shell is None:
            return
        waiting = [one for one in self.outstanding if one.sent_in != place.life]
        is_impatient = bool(self.outstanding) and place.entropy.random() < 0.3
        if waiting or is_impatient:
            self._send_again(shell)
        elif not self.is_stopping and len(self.outstanding) < self._window():
            self._begin(shell)

    def _window(self) -> int:
        return 3 if self.kind is Kind.COUNTED else 1

    def _send_again(self, shell: Shell) -> None:
        """All of them in their order: one that is missing would make the next one a gap."""
        if self.kind is Kind.PLAIN and self.place.entropy.random() < 0.5:
            self.outstanding.clear()
            return
        for batch in [*self.outstanding]:
            if self.place.shell is not shell:
                return
            self._send(shell, batch)
            if batch.sent_in != self.place.life:
                return

    def _begin(self, shell: Shell) -> None:
        entropy = self.place.entropy
        partitions = shell.node.topic(self.topic).partitions
        partition = entropy.randrange(len(partitions))
        if self.kind is Kind.KEYED:
            partition = ANY
        elif self.kind is Kind.COUNTED:
            # Sequences count per partition, and a window spans one.
            partition = self.producer_id % len(partitions)
        if self.kind is Kind.COUNTED and not self.outstanding and entropy.random() < 0.1:
            self._begin_epoch(shell, partition)
            return
        messages = [self._message(entropy.randrange(200)) for _ in range(entropy.randint(1, 4))]
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = first + len(messages)
        batch = Batch(messages, partition, first)
        self.outstanding.append(batch)
        self._send(shell, batch)

    def _begin_epoch(self, shell: Shell, partition: int) -> None:
        """Be replaced by a successor, and let the one before try once more: it has to be refused."""
        self.epoch += 1
        self._sequences.clear()
        first = self._message(0)
        self._sequences[partition] = 1
        batch = Batch([first], partition, 0)
        self.outstanding.append(batch)
        self._send(shell, batch)
        if self.place.shell is shell and batch.sent_in == self.place.life:
            self._send_as_zombie(shell, partition)

    def _send_as_zombie(self, shell: Shell, partition: int) -> None:
        marks = Marks(producer_id=self.producer_id, producer_epoch=self.epoch - 1, first_sequence=0)
        message = Message(b"zombie of %s" % self.name.encode())
        batch = encode_messages([message], marks=marks).to_bytes()

        def call() -> None:
            try:
                shell.execute(PublishBatch(self.topic, partition, batch))
            except (OutOfSequence, Unavailable):
                return
            raise Violation(Checker.NO_DUP, f"{self.name}: epoch {self.epoch - 1} was not fenced")

        self.place.act(self.place.new_scene(f"{self.name} sends in an old epoch"), call)

    def _message(self, size: int) -> Message:
        self._made += 1
        value = b"%s %d " % (self.name.encode(), self._made) + b"x" * size
        entropy, expires_at = self.place.entropy, None
        if self.terms.ttl_one_in and entropy.randint(1, self.terms.ttl_one_in) == 1:
            wall_ns = self.place.new_scene("").moment.wall_ns
            expires_at = wall_ns + entropy.randint(1, 8) * SECOND
        key = value if self.kind is Kind.KEYED else None
        priority = (self._made * 7 + self.producer_id) % len(Priority)
        return Message(
            value,
            key=value[-3:],
            expires_at=expires_at,
            idempotency_key=key,
            priority=priority if self.terms.has_priorities else Priority.NORMAL,
        )

    def _send(self, shell: Shell, batch: Batch) -> None:
        what = (
            f"{self.name} sends {len(batch.messages)} to {batch.partition} ({batch.first_sequence})"
        )
        # Now and then twice at once, as clients do that were too quick to give up on the first try.
        is_hasty = self.kind is not Kind.PLAIN and self.place.entropy.random() < 0.15
        for _ in range(1 + is_hasty):
            if self.place.shell is shell:
                scene = replace(self.place.new_scene(what), values=batch.values)
                self.place.act(scene, lambda: self._publish(shell, batch))

    def _publish(self, shell: Shell, batch: Batch) -> None:
        try:
            results = self._store(shell, batch)
        except PartlyPublished:
            batch.sent_in = -1
            self.place.note("stored in part")
            return
        except Unavailable as error:
            batch.sent_in = -1
            self.place.note(f"refused: {error.code}")
            # Refused is refused: nothing of it may be there.
            self.place.scene = replace(self.place.scene, values=frozenset())
            return
        except OutOfSequence as error:
            self._start_over(error)
            return
        batch.sent_in = self.place.life
        self._await_reply(shell, batch, results)

    def _store(self, shell: Shell, batch: Batch) -> Sequence[Published]:
        if self.kind is not Kind.COUNTED:
            where = None if batch.partition == ANY else batch.partition
            return shell.execute(Publish(self.topic, batch.messages, where))
        marks = Marks(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            first_sequence=batch.first_sequence,
        )
        encoded = encode_messages(batch.messages, marks=marks)
        command = PublishBatch(self.topic, batch.partition, encoded.to_bytes())
        return shell.execute(command).stored

    def _start_over(self, error: OutOfSequence) -> None:
        """Right only if the disk has lost what it had called durable."""
        if not self.place.books.is_forgiving:
            story = f"{self.name} was refused, and lost nothing: {error}"
            raise Violation(Checker.NO_DUP, story)
        self.epoch += 1
        self._sequences.clear()
        self.outstanding.clear()

    def _await_reply(self, shell: Shell, batch: Batch, results: Sequence[Published]) -> None:
        """The reply waits for every partition that the batch went to."""
        self.place.books.follow(shell.node, self.place.scene)
        if any(one.is_duplicate for one in results):
            self.repeated += 1
            self.place.notice("duplicate")
        if self.kind is Kind.PLAIN and self.place.entropy.random() < 0.3:
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
            target = shell.node.partition(self.topic, number)
            shell.hold(target, Waiting(end, 0, partial(arrived, number)))

    def _replied(self, batch: Batch, results: Sequence[Published], *, is_durable: bool) -> None:
        books = self.place.books
        if is_durable:
            for one in results:
                promises = books.by_place[self.topic, one.partition].promises
                promises.messages = max(promises.messages, one.offset + 1)
        self.place.notice("replied")
        for message, one in zip(batch.messages, results, strict=True):
            books.expect(books.by_place[self.topic, one.partition], message, one.offset)
        if self.place.entropy.random() < 0.15:
            batch.sent_in = -1  # The reply is lost, and nobody but us knows that all is well.
            return
        if batch in self.outstanding:
            self.outstanding.remove(batch)
            self.acked += len(batch.messages)
