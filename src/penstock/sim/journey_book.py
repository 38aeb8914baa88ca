"""What the journeys of a partition must tell, found the slow and simple way: by a look at every record there was.

A book has no index and no files. It is told of records as the checkers read them and forgets those that a crash took.
It is compared with the journeys of some messages, at the end and after every start.
"""

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from pyroaring import BitMap64

from ..api.journeys import EventType, Journey, JourneyStatus, Span
from ..broker.journeys import describe
from ..broker.node import Node
from ..broker.partition import Partition
from ..broker.partition.history import told_at_once
from ..broker.partition.records import GroupClosed, GroupOpened, PartitionRecord
from ..delivery.commands import EXPIRED_LEASE, MEMBER_GONE
from ..delivery.offsets import offsets_of
from ..delivery.records import (
    Acked,
    Buried,
    Claimed,
    ClaimsEnded,
    Committed,
    DeadReason,
    Expired,
    Extended,
    Leased,
    Overtaken,
    Released,
    Retried,
    Rewound,
)
from ..transactions.commit_records import NamedStagingsEnded
from ..transactions.records import StagingsEnded
from .group_book import MessageStatus
from .violation import Checker, Violation

if TYPE_CHECKING:
    from .partition_book import PartitionBook

_STATUS = {
    MessageStatus.READY: JourneyStatus.IN_PROGRESS,
    MessageStatus.LEASED: JourneyStatus.IN_PROGRESS,
    MessageStatus.WAITING: JourneyStatus.RETRYING,
    MessageStatus.ACKED: JourneyStatus.COMPLETED,
    MessageStatus.DEAD: JourneyStatus.FAILED,
    MessageStatus.EXPIRED: JourneyStatus.EXPIRED,
    MessageStatus.SKIPPED: JourneyStatus.EXPIRED,
}
_FINISHED = {
    EventType.ACKED,
    EventType.COMMITTED,
    EventType.ROUTED,
    EventType.DROPPED,
    EventType.TTL_EXPIRED,
    EventType.SKIPPED,
}
_SWEEPING = {EventType.COMMITTED, EventType.SKIPPED}


class ToldEvent(NamedTuple):
    """An event as a journey tells it: what happened, in which group, and which member did it or had it."""

    kind: EventType
    group: str
    member: str


# Records that are about the messages of their runs.
_OF_OFFSETS = (Leased, Acked, Retried, Released, Extended, Expired, Claimed, ClaimsEnded)


class _Noted(NamedTuple):
    """A record, the end of the journal after it, and which messages it is about; None: it does not list them."""

    journal_end: int
    record: PartitionRecord
    offsets: BitMap64 | None


class JourneyBook:
    """All records of a partition, with the end of the journal after each."""

    def __init__(self) -> None:
        self._records: list[_Noted] = []

    def add(self, record: PartitionRecord, journal_end: int) -> None:
        runs = offsets_of(record.runs) if isinstance(record, _OF_OFFSETS) else None
        self._records.append(_Noted(journal_end, record, runs))

    def cut(self, journal_end: int) -> None:
        """Forget what a crash took."""
        self._records = [one for one in self._records if one.journal_end <= journal_end]

    def expected(self, offset: int) -> list[ToldEvent]:
        """What the journey of a message has to tell."""
        names: dict[int, str] = {0: ""}
        holders: dict[int, str] = {}
        finished: dict[int, bool] = {}
        told: list[ToldEvent] = []
        for _, record, offsets in self._records:
            if offsets is not None and offset not in offsets:
                continue
            group = record.group
            if isinstance(record, GroupOpened):
                names[group] = record.name
            for kind in _kinds(record, offset, group in finished):
                if kind in _SWEEPING and finished.get(group):
                    continue
                if isinstance(record, Leased):
                    holders[group] = record.member
                told.append(ToldEvent(kind, names[group], _member(record, holders.get(group, ""))))
                if kind is not EventType.TRANSACTION_ABORTED:
                    finished[group] = kind in _FINISHED
                if kind is EventType.REWOUND:
                    finished[group] = isinstance(record, Rewound) and offset < record.offset
        return told


def _member(record: PartitionRecord, holder: str) -> str:
    """Which member an event names: the one that commits, or the one that had the message, unless it was not asked."""
    match record:
        case Committed():
            return record.member
        case Expired() | Overtaken() | Rewound() | GroupClosed() | ClaimsEnded():
            return ""
        case Buried() if record.reason is DeadReason.TTL_EXPIRED:
            return ""
    return holder


def _kinds(record: PartitionRecord, offset: int, is_known: bool) -> Iterator[EventType]:
    """What a record says of a message; nothing if it is about others. One of offsets is about this one."""
    match record:
        case Leased() | Acked() | Retried() | Released() | Extended() | Expired() | Claimed():
            yield _KINDS.get(type(record)) or _failure(record)
        case Buried() if record.offset == offset:
            yield _failure(record)
            yield EventType.ROUTED if record.sequence >= 0 else EventType.DROPPED
        case Committed() if offset < record.offset:
            # What was below the floor before is finished, and a commit says nothing of it.
            if offset >= record.floor:
                yield EventType.COMMITTED
        case Overtaken() if record.floor <= offset < record.offset:
            yield EventType.SKIPPED
        case Rewound() if (
            min(record.offset, record.floor) <= offset < max(record.offset, record.cursor)
        ):
            yield EventType.REWOUND
        case GroupClosed() if is_known:
            yield EventType.GROUP_DELETED
        case ClaimsEnded() if not record.is_commit:
            yield EventType.TRANSACTION_ABORTED
        case StagingsEnded() | NamedStagingsEnded() if any(
            first <= offset < first + count for first, count in record.runs
        ):
            yield EventType.TRANSACTION_COMMITTED


_KINDS = {
    Leased: EventType.FETCHED,
    Acked: EventType.ACKED,
    Released: EventType.RELEASED,
    Extended: EventType.EXTENDED,
    Claimed: EventType.CLAIMED,
    Expired: EventType.TTL_EXPIRED,
}


def _failure(record: PartitionRecord) -> EventType:
    """How a delivery ended, by the words that the group's book knows it by, and not by its cause."""
    assert isinstance(record, Retried | Buried)
    if isinstance(record, Buried) and record.reason is DeadReason.TTL_EXPIRED:
        return EventType.TTL_EXPIRED
    if isinstance(record, Buried) and record.reason is DeadReason.REJECTED:
        return EventType.REJECTED
    if record.error == EXPIRED_LEASE:
        return EventType.VISIBILITY_EXPIRED
    return EventType.RELEASED if record.error == MEMBER_GONE else EventType.NACKED


def compare_journeys(
    node: Node, partition: Partition, book: "PartitionBook", entropy: Random, *, count: int
) -> None:
    """Violation: the journey of one of so many messages is not what the book has."""
    if book.end <= book.start_offset:
        return
    every = range(book.start_offset, book.end)
    for offset in sorted(entropy.sample(every, min(count, len(every)))):
        journey = told_at_once(describe(node, partition.topic, partition.number, offset))
        _compare(partition, book, offset, journey)


def _is_of_records(span: Span) -> bool:
    """Whether an event is one that the book looks for: a group's, or the end of a transaction."""
    return span.group != "" or span.event_type is EventType.TRANSACTION_COMMITTED


def _compare(partition: Partition, book: "PartitionBook", offset: int, found: Journey) -> None:
    if found.gaps:
        return  # Damage, which other checkers judge.
    here = (partition.topic, partition.number, offset)
    told = [
        ToldEvent(one.event_type, one.group, one.consumer)
        for one in found.spans
        if (one.topic, one.partition, one.offset) == here and _is_of_records(one)
    ]
    expected = book.journeys.expected(offset)
    if told != expected:
        story = f"{book.name}: the journey of {offset} tells {told}, it should be {expected}"
        raise Violation(Checker.JOURNEY, story)
    if (found.topic, found.partition, found.offset) != here:
        return
    statuses = {one.group: one.status for one in found.groups}
    for group in book.groups.values():
        status = _STATUS[group.entry(offset).status]
        # A reset makes the book forget what a message was before.
        is_touched = offset in group.entries and not group.was_reset
        if is_touched and group.name in statuses and statuses[group.name] is not status:
            story = f"{book.name}: {offset} is {statuses[group.name].value} in {group.name}, not {status.value}"
            raise Violation(Checker.JOURNEY, story)
