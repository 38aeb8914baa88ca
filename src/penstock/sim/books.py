"""The books of all partitions, and the promises that span partitions: each message has one home."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from ..api.dead_letters import DEAD_LETTER_SUFFIX, split_headers
from ..api.received import Received
from ..broker.node import Node
from ..broker.partition import Partition
from ..broker.partition.records import Forwarded
from ..delivery.offsets import offsets_of
from ..delivery.records import Buried, ClaimsEnded, Leased
from ..model import Message, TopicPartition
from ..schedules import is_schedule
from ..transactions.commit_records import NamedStagingsDecided
from ..transactions.records import TransactionDecided
from .answers import Receipts, check_delivery
from .delay_book import DelayBook
from .driver import name_of
from .event import Event, EventTime
from .group_book import MessageStatus
from .journey_book import compare_journeys
from .partition_book import PartitionBook, StoredMessage
from .schedule_book import check_occurrence
from .transaction_book import INPUT_GROUP, InputPlace, TransactionBook
from .violation import Checker, Violation

# How many of a partition's messages have their journey compared. One takes 10 ms: all of them would double a run.
_JOURNEYS_AT_A_START = 3
_JOURNEYS_AT_REST = 30


@dataclass(slots=True)
class Sightings:
    """Where each value was stored, so that a second copy is noticed."""

    offsets: dict[bytes, list[tuple[TopicPartition, int]]] = field(default_factory=dict)

    def add(
        self, value: bytes, partition: TopicPartition, offset: int
    ) -> list[tuple[TopicPartition, int]]:
        """Returns the copies that were there before."""
        known = self.offsets.setdefault(value, [])
        before = list(known)
        known.append((partition, offset))
        return before

    def cut(self, partition: TopicPartition, end: int) -> None:
        """Forget the copies from `end` on, which a crash took."""
        for known in self.offsets.values():
            known[:] = [one for one in known if one[0] != partition or one[1] < end]


@dataclass(frozen=True, slots=True)
class UnservedPartitions:
    """Partitions that the node does not serve, or did not before its last start; and the last event in which it did."""

    partitions: frozenset[TopicPartition]
    event: Event


ALL_SERVED = UnservedPartitions(frozenset(), Event(EventTime(0, 0)))


class Books:
    """Everything that must be true of a node. `notice` is called with the moments that faults are aimed at."""

    def __init__(self, notice: Callable[[str], None], *, is_disk_honest: bool) -> None:
        self.by_partition: dict[TopicPartition, PartitionBook] = {}
        self.by_source: dict[int, PartitionBook] = {}
        self.sightings = Sightings()
        self.receipts = Receipts()
        self.transactions = TransactionBook(
            lambda value: self.sightings.offsets.get(value, []), self._is_scheduled, self._input
        )
        self.notice, self.is_disk_honest = notice, is_disk_honest
        # A disk that lied may have lost a letter and kept the record that it arrived.
        self.is_forgiving = False
        self.messages_seen = self.records_seen = 0
        self.wall_ns = 0
        # Of its own: which journeys are looked at changes nothing of the run.
        self._entropy = Random(1)  # noqa: S311  # A simulation has to be repeatable.

    def _is_scheduled(self, value: bytes) -> bool:
        return any(
            one.value == value
            for book in self.by_partition.values()
            for one in book.delays.entries.values()
        )

    def _input(self, place: InputPlace) -> tuple[bool, bool]:
        """Whether the group of transactions has finished a message, and whether one of them has acked it."""
        book = self.by_partition[place[0]]
        group = next((one for one in book.groups.values() if one.name == INPUT_GROUP), None)
        if group is None:
            return False, False
        entry = group.entry(place[1])
        is_acked = entry.status is MessageStatus.ACKED and entry.answered_by is not None
        return group.is_finished(place[1]), is_acked

    def _durable_to(self, source: int) -> int:
        return self.by_source[source].durable_to

    def follow(self, node: Node, event: Event) -> None:
        """Read what is new in every log, and compare the node with the books."""
        self.wall_ns = event.time.wall_ns
        touched = []
        for partition in node.partitions():
            book = self._book(partition)
            if not self._is_read(partition, book):
                self._follow(partition, book, event)
            if book.durable_to < book.journal_end and not partition.is_dirty:
                book.synced(book.journal_end)
            if book.touched:
                touched.append((partition, book))
        for partition, book in touched:
            book.compare_touched(partition)

    def _is_read(self, partition: Partition, book: PartitionBook) -> bool:
        messages = partition.messages
        return (
            messages.end_offset == book.end
            and messages.start_offset == book.start_offset
            and partition.journal.log.end_offset == book.journal_end
            and partition.delayed.end_offset == book.delays.end
        )

    def _book(self, partition: Partition) -> PartitionBook:
        name = name_of(partition)
        book = self.by_partition.get(name)
        if book is None:
            source = partition.identity.as_source
            book = PartitionBook(
                str(name),
                source,
                partition.rules,
                partition.config.keep_unread,
                self.is_disk_honest,
                DelayBook(str(name), partition.config.dedup_window_ms * 1_000_000),
                self.transactions,
            )
            self.by_partition[name] = self.by_source[source] = book
        return book

    def _follow(self, partition: Partition, book: PartitionBook, event: Event) -> None:
        messages, journal = partition.messages, partition.journal.log
        if messages.end_offset < book.end or journal.end_offset < book.journal_end:
            raise Violation(Checker.NO_ACKED_LOSS, f"{book.name} became shorter")
        if book.delays.read(partition, event, partial(self._check_committed, book)):
            self.notice("intent")
        if messages.end_offset > book.end:
            segments = len(messages.segments)
            for offset, stored in book.read_messages(messages):
                self.messages_seen += 1
                self._check_stored(book, partition, offset, stored, event)
            if segments > 1 and messages.segments[-1].base_offset >= book.end - len(event.values):
                self.notice("rolled")
        if messages.start_offset != book.start_offset:
            book.start_offset = messages.start_offset
            book.require_pinned()
            self.notice("retained")
        if journal.end_offset > book.journal_end:
            for record, journal_end in book.read_journal(journal):
                self.records_seen += 1
                book.apply(record, journal_end, event)
                match record:
                    case Buried():
                        self.notice("intent")
                    case Forwarded():
                        if record.sequence in book.forwarded:
                            self._require_copy(book, record.sequence)
                        book.done_end = journal_end
                        self.notice("done")
                    case TransactionDecided() | NamedStagingsDecided():
                        self.notice("intent")
                    case ClaimsEnded() if record.is_commit:
                        key = (record.producer_id, record.number)
                        self.transactions.require_decided(book.name, key, self._durable_to)
                        self.notice("forwarded")
                    case Leased():
                        # After a crash another message may stand at the offset of one that was not durable.
                        is_durable = offsets_of(record.runs).max() < messages.durable_end
                        self.notice("leased" if is_durable else "leased unsynced")

    def _check_committed(self, book: PartitionBook, key: tuple[int, int], value: bytes) -> None:
        self.transactions.published(book.name, key, value, self._durable_to)

    def _check_stored(
        self,
        book: PartitionBook,
        partition: Partition,
        offset: int,
        stored: StoredMessage,
        event: Event,
    ) -> None:
        if is_schedule(stored.source):
            check_occurrence(partition, book.stored[:offset], stored, event)
            self.notice("forwarded")
            return
        if stored.source:
            self._check_copy(book, partition, offset, stored)
            self.notice("forwarded")
            return
        if stored.delay_id >= 0:
            book.delays.fired(stored.delay_id, offset, stored.message, event)
            # After a crash the id of a delay that was not durable may be given to another one.
            is_durable = stored.delay_id < partition.delayed.durable_end
            self.notice("forwarded" if is_durable else "leased unsynced")
            return
        value = stored.message.value or b""
        if stored.transaction is not None:
            self._check_committed(book, stored.transaction, value)
            self.notice("forwarded")
            if before := self.sightings.add(value, name_of(partition), offset):
                story = f"{book.name}: {value!r} is published twice, first at {before}"
                raise Violation(Checker.TRANSACTION, story)
            return
        if value not in event.values:
            raise Violation(
                Checker.NO_PHANTOM, f"{book.name}: no client sent {value!r} now ({offset})"
            )
        before = self.sightings.add(value, name_of(partition), offset)
        if before and not value.startswith(b"plain"):
            self._check_repeat(book, partition, stored, before[-1])

    def _check_repeat(
        self,
        book: PartitionBook,
        partition: Partition,
        stored: StoredMessage,
        first: tuple[TopicPartition, int],
    ) -> None:
        """Violation, unless the message has an idempotency key whose window is over by the times in the log."""
        earlier = self.by_partition[first[0]].stored[first[1]]
        window_ns = partition.config.dedup_window_ms * 1_000_000
        is_over = stored.append_time - earlier.append_time > window_ns
        if stored.message.idempotency_key is None or not is_over:
            story = f"{book.name}: {stored.message.value!r} is stored twice, first at {first}"
            raise Violation(Checker.NO_DUP, story)

    def _check_copy(
        self, book: PartitionBook, partition: Partition, offset: int, stored: StoredMessage
    ) -> None:
        source = self.by_source.get(stored.source)
        _, note = split_headers(stored.message.headers)
        if source is None or note is None:
            raise Violation(Checker.DLQ_ATOMIC, f"{book.name}: {offset} comes from nowhere")
        sequences = source.sequences_of(note.group, note.original_offset)
        sequence = next((one for one in sequences if (source.source, one) not in book.copies), None)
        if sequence is None:
            story = f"{book.name}: {offset} is a copy that {source.name} did not send: {note}"
            raise Violation(Checker.DLQ_ATOMIC, story)
        key, intent = (source.source, sequence), source.pending[sequence]
        if intent.journal_end > source.durable_to:
            story = f"{book.name}: letter {key} was copied before its intent was durable"
            raise Violation(Checker.DLQ_ATOMIC, story)
        book.copies[key] = offset
        original = source.stored[intent.offset].message
        facts = (original.value, original.key, intent.attempts)
        told = (stored.message.value, stored.message.key, note.delivery_attempts)
        if told != facts:
            story = f"{book.name}: letter {key} tells {told}, the truth is {facts}"
            raise Violation(Checker.DLQ_ATOMIC, story)

    def _require_copy(self, source: PartitionBook, sequence: int) -> None:
        box = self._letter_box(source)
        offset = None if box is None else box.copies.get((source.source, sequence))
        if box is None or offset is None:
            if self.is_forgiving:
                return
            story = f"{source.name}: letter {sequence} is done, but was not stored"
            raise Violation(Checker.DLQ_ATOMIC, story)

    def _letter_box(self, source: PartitionBook) -> PartitionBook | None:
        topic, _, number = source.name.rpartition("/")
        return self.by_partition.get(TopicPartition(topic + DEAD_LETTER_SUFFIX, int(number)))

    def expect(self, book: PartitionBook, message: Message, offset: int) -> None:
        """Violation: the message that a producer was told to be at this offset is not there."""
        if offset >= book.end or book.stored[offset].message.value != message.value:
            story = f"{book.name}: {message.value!r} was said to be at {offset}"
            raise Violation(Checker.NO_ACKED_LOSS, story)

    def check_received(
        self, member: str, partition: Partition, received: Sequence[Received], event: Event
    ) -> None:
        """Take note that a member got these messages. Violation: it may not hold one, or got another value."""
        book = self._book(partition)
        for one in received:
            group = book.groups[one.place.group]
            check_delivery(one, group.entry(one.offset), member, event)
            if book.stored[one.offset].message.value != one.value:
                story = f"{book.name}: {one.value!r} was delivered as offset {one.offset}"
                raise Violation(Checker.OFFSET_UNIQUE, story)
            self.receipts.add(one, group.name)

    def restarted(
        self,
        node: Node,
        crashed_in: Event,
        event: Event,
        *,
        unserved: UnservedPartitions,
        is_forgiven: bool,
    ) -> None:
        """Cut every book back to what is left, read on if more is there, and compare everything."""
        self.is_forgiving = self.is_forgiving or is_forgiven
        self.receipts.highest.clear()
        partitions = list(node.partitions())
        known = {name_of(one) for one in partitions}
        if missing := sorted(set(self.by_partition) - known - unserved.partitions):
            raise Violation(Checker.NO_ACKED_LOSS, f"partitions are gone: {missing}")
        for partition in partitions:
            book = self._book(partition)
            book.cut_back(partition, is_forgiven=is_forgiven)
            self.sightings.cut(name_of(partition), book.end)
        for partition in partitions:
            # The last call before a crash may have written more than the books have read.
            is_back = name_of(partition) in unserved.partitions
            last = unserved.event if is_back else crashed_in
            self._follow(partition, self._book(partition), last)
        for partition in partitions:
            book = self._book(partition)
            book.restarted(partition, event.time.true_ns)
            book.require_unborn()
            book.compare(partition)
        self.require_one_home()
        if not self.is_forgiving:
            self.transactions.require_whole()
        self._compare_journeys(node, _JOURNEYS_AT_A_START)

    def compare(self, node: Node) -> None:
        for partition in node.partitions():
            self._book(partition).compare(partition)
        self.require_one_home()
        if not self.is_forgiving:
            self.transactions.require_whole()
        self._compare_journeys(node, _JOURNEYS_AT_REST)

    def _compare_journeys(self, node: Node, count: int) -> None:
        for partition in node.partitions():
            compare_journeys(node, partition, self._book(partition), self._entropy, count=count)

    def require_one_home(self) -> None:
        """Violation: a message is in the queue and in the dead letters, or a dead letter has no copy."""
        if self.is_forgiving:
            return
        for box in self.by_partition.values():
            for (number, sequence), offset in box.copies.items():
                source = self.by_source[number]
                intent = source.pending.get(sequence) or source.forwarded.get(sequence)
                if intent is None:
                    story = f"{box.name}: {offset} is a copy of what {source.name} never gave up"
                    raise Violation(Checker.DLQ_ATOMIC, story)
                status = source.groups[intent.group].entry(intent.offset).status
                if status is not MessageStatus.DEAD and not source.groups[intent.group].was_reset:
                    story = f"{source.name}: {intent.offset} is {status.value} and a dead letter"
                    raise Violation(Checker.DLQ_ATOMIC, story)
        for source in self.by_partition.values():
            for sequence in source.forwarded:
                self._require_copy(source, sequence)

    def plan_reported(self, partition: Partition, journal_end: int) -> None:
        book = self._book(partition)
        before = book.durable_to
        book.synced(journal_end)
        if before < book.done_end <= book.durable_to:
            self.notice("done synced")

    def unfinished(self) -> list[str]:
        """Returns what still has to happen before everything is at rest."""
        found = []
        for book in self.by_partition.values():
            if book.pending:
                found.append(f"{book.name}: letters {sorted(book.pending)} are on their way")
            if book.decisions:
                found.append(f"{book.name}: decisions {sorted(book.decisions)} are on their way")
            if overdue := book.delays.overdue(self.wall_ns):
                found.append(f"{book.name}: delays {overdue} are overdue")
            found += [
                f"{book.name}: {group.name} has {count} to do from {group.floor} on"
                for group in book.groups.values()
                if (count := group.unfinished(book.end))
            ]
        return found
