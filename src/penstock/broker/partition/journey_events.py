"""What the records of a partition say of one message, as events of its journey."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...api.journeys import EventType
from ...delivery.commands import EXPIRED_LEASE
from ...delivery.delay_records import DelayCancelled, DelayMoved, DelaysLost
from ...delivery.records import (
    Absent,
    Acked,
    AckedLate,
    Buried,
    Cause,
    Claimed,
    ClaimsEnded,
    Committed,
    Expired,
    Extended,
    Leased,
    Overtaken,
    Released,
    Reopened,
    Retried,
    Rewound,
)
from ...journeys.index import GROUPS
from ...journeys.story import Event
from ...transactions.commit_records import NamedStagingsEnded
from ...transactions.names import STAGING_ID_FIRST, staging_text
from ...transactions.records import StagingsEnded
from .history import Entry, Told
from .partition import Partition
from .records import Arrived, GroupClosed, GroupOpened, Redriven, Returned

_ENDS: Mapping[Cause, EventType] = {
    Cause.NACKED: EventType.NACKED,
    Cause.LEASE_EXPIRED: EventType.VISIBILITY_EXPIRED,
    Cause.MEMBER_GONE: EventType.RELEASED,
    Cause.REJECTED: EventType.REJECTED,
    Cause.TTL_OVER: EventType.TTL_EXPIRED,
}


def events_of(entry: Entry, offset: int, group: str) -> Iterator[Event]:
    """The events that a record is for the message at `offset`; `group` is the name of the record's group."""
    tell = _TELL.get(type(entry.record))
    if tell is not None:
        for event in tell(entry, offset):
            yield event if event.group == "" and _is_alone(event) else event._replace(group=group)


def _is_alone(event: Event) -> bool:
    """Whether an event is not a group's: what our own group does with dead letters is the administrator's doing."""
    return event.kind in {
        EventType.REDRIVEN,
        EventType.RETURNED,
        EventType.RESCHEDULED,
        EventType.CANCELED,
        EventType.DELAY_LOST,
        EventType.TRANSACTION_COMMITTED,
    }


def _leased(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, Leased)
    timeout = {"visibility_timeout_ms": record.duration_ms}
    yield Event(
        entry.at_ns,
        EventType.FETCHED,
        consumer=record.member,
        lease=record.lease,
        attributes=timeout,
    )


def _acked(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, Acked)
    yield Event(entry.at_ns, EventType.ACKED, lease=record.lease)


def _claimed(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, Claimed)
    answer = _claimant(record) | {"answer": record.answer.name.lower()}
    yield Event(entry.at_ns, EventType.CLAIMED, lease=record.lease, attributes=answer)


def _claimant(record: Claimed | ClaimsEnded) -> dict[str, str | int | bool]:
    """What answered a message: a transaction, or a staging of a named commit."""
    if record.producer_id >= STAGING_ID_FIRST:
        return {"staging": staging_text(record.producer_id)}
    return {"transaction_id": f"{record.producer_id}-{record.number}"}


def _claims_ended(entry: Entry, _offset: int) -> Iterator[Event]:
    """The end of an answer that never counts. Of a commit, the records behind this one are told."""
    record = entry.record
    assert isinstance(record, ClaimsEnded)
    if not record.is_commit:
        yield Event(entry.at_ns, EventType.TRANSACTION_ABORTED, attributes=_claimant(record))


def _acked_late(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, AckedLate)
    late = {"late": True}
    yield Event(entry.at_ns, EventType.ACKED, consumer=record.member, attributes=late)


def _retried(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, Retried)
    waits = {"retry_in_ms": record.delay_ms}
    yield Event(
        entry.at_ns,
        _end_of(record),
        error=record.error,
        lease=record.lease,
        attributes=waits,
    )


def _end_of(record: Retried | Buried) -> EventType:
    """How the delivery ended. Records of version 1 do not say; only an expired lease has that text."""
    guessed = Cause.LEASE_EXPIRED if record.error == EXPIRED_LEASE else Cause.NACKED
    return _ENDS[guessed if record.cause is Cause.UNKNOWN else record.cause]


def _released(entry: Entry, offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, Released)
    why: dict[str, str | int | bool] = {
        "cause": record.cause.name.lower(),
        "counted": record.counted == offset,
    }
    yield Event(entry.at_ns, EventType.RELEASED, lease=record.lease, attributes=why)


def _extended(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, Extended)
    timeout = {"visibility_timeout_ms": record.duration_ms}
    yield Event(entry.at_ns, EventType.EXTENDED, lease=record.lease, attributes=timeout)


def _buried(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, Buried)
    counted = {"counted": True} if record.cause is Cause.MEMBER_GONE else {}
    yield Event(
        entry.at_ns,
        _end_of(record),
        error=record.error,
        lease=record.lease,
        attributes=counted,
    )
    is_kept = record.sequence >= 0
    yield Event(
        entry.at_ns,
        EventType.ROUTED if is_kept else EventType.DROPPED,
        error=record.error,
        lease=record.lease,
        attributes={"reason": record.reason.name},
    )


def _expired(entry: Entry, _offset: int) -> Iterator[Event]:
    yield Event(entry.at_ns, EventType.TTL_EXPIRED)


def _committed(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, Committed)
    up_to: dict[str, str | int | bool] = {"offset": record.offset}
    if record.lake:
        where = up_to | {"lake": record.lake}
        yield Event(entry.at_ns, EventType.ARCHIVED, consumer=record.member, attributes=where)
        return
    yield Event(entry.at_ns, EventType.COMMITTED, consumer=record.member, attributes=up_to)


def _overtaken(entry: Entry, _offset: int) -> Iterator[Event]:
    yield Event(entry.at_ns, EventType.SKIPPED, attributes={"cause": "retention"})


def _absent(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, Absent)
    cause = "damaged" if record.is_lost else "compacted"
    yield Event(entry.at_ns, EventType.SKIPPED, attributes={"cause": cause})


def _rewound(entry: Entry, offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, Rewound)
    moved = {"offset": record.offset, "skipped": offset < record.offset}
    yield Event(entry.at_ns, EventType.REWOUND, attributes=moved)


def _reopened(entry: Entry, _offset: int) -> Iterator[Event]:
    by_letter = any(isinstance(one, Arrived) for one in entry.batch)
    cause = {"cause": "redriven"} if by_letter else {}
    yield Event(entry.at_ns, EventType.REOPENED, attributes=cause)


def _redriven(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, Redriven)
    letter = record.letter
    target: dict[str, str | int | bool] = {"topic": letter.topic, "partition": letter.partition}
    if letter.group:
        target |= {"group": letter.group, "offset": letter.original_offset}
    yield Event(entry.at_ns, EventType.REDRIVEN, attributes=target)


def _returned(entry: Entry, _offset: int) -> Iterator[Event]:
    yield Event(entry.at_ns, EventType.RETURNED)


def _closed(entry: Entry, _offset: int) -> Iterator[Event]:
    yield Event(entry.at_ns, EventType.GROUP_DELETED)


def _delay_moved(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, DelayMoved)
    due = {"deliver_at_ns": record.due_ns}
    yield Event(entry.at_ns, EventType.RESCHEDULED, attributes=due)


def _delay_cancelled(entry: Entry, _offset: int) -> Iterator[Event]:
    yield Event(entry.at_ns, EventType.CANCELED)


def _delays_lost(entry: Entry, _offset: int) -> Iterator[Event]:
    yield Event(entry.at_ns, EventType.DELAY_LOST, error="damaged")


def _stagings_ended(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, StagingsEnded)
    which = {"transaction_id": f"{record.producer_id}-{record.number}"}
    yield Event(entry.at_ns, EventType.TRANSACTION_COMMITTED, attributes=which)


def _named_stagings_ended(entry: Entry, _offset: int) -> Iterator[Event]:
    record = entry.record
    assert isinstance(record, NamedStagingsEnded)
    which: dict[str, str | int | bool] = {"commit": record.name, "sequence": record.sequence}
    yield Event(entry.at_ns, EventType.TRANSACTION_COMMITTED, attributes=which)


_TELL: dict[type, Callable[[Entry, int], Iterator[Event]]] = {
    Leased: _leased,
    Acked: _acked,
    Claimed: _claimed,
    AckedLate: _acked_late,
    Retried: _retried,
    Released: _released,
    Extended: _extended,
    Buried: _buried,
    Expired: _expired,
    Committed: _committed,
    Overtaken: _overtaken,
    Absent: _absent,
    Rewound: _rewound,
    Reopened: _reopened,
    Redriven: _redriven,
    Returned: _returned,
    GroupClosed: _closed,
    DelayMoved: _delay_moved,
    DelayCancelled: _delay_cancelled,
    DelaysLost: _delays_lost,
    StagingsEnded: _stagings_ended,
    NamedStagingsEnded: _named_stagings_ended,
    ClaimsEnded: _claims_ended,
}


def group_names(partition: Partition, numbers: set[int]) -> Told[dict[int, str]]:
    """The names of groups, also of those that are gone, as far as the history knows them."""
    known = partition.machine.names
    names = {number: known[number] for number in numbers & known.keys()}
    unknown = numbers - names.keys() - {0}
    if unknown:
        for entry in partition.history.about(*(GROUPS + number for number in unknown)):
            yield 1
            record: Any = entry.record if isinstance(entry, Entry) else None
            if isinstance(record, GroupOpened | GroupClosed) and record.name:
                names[record.group] = record.name
    return {number: names.get(number, f"group {number}") for number in numbers}
