"""The decisions about requests of members: each function reads a `Delivery` and returns records, or refuses."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice

import msgspec
from pyroaring import BitMap64

from ..config import DeliveryConfig, TtlAction
from ..errors import Refused
from ..kernel import Outcome
from ..ports import Entropy
from .lane_turns import LaneTurns
from .machine import Delivery
from .offsets import each_offset, next_of, runs_of
from .records import (
    Absent,
    Acked,
    Buried,
    Cause,
    Committed,
    DeadReason,
    DeliveryRecord,
    Expired,
    Extended,
    Leased,
    Moved,
    Overtaken,
    Released,
    Reopened,
    Retried,
    Rewound,
)
from .retry import Failure, backoff_ms, is_last

NO_SEQUENCE = -1
EXPIRED_LEASE = "visibility timeout"
EXPIRED_MESSAGE = "time to live is over"
MEMBER_GONE = "consumer went away"
# The records of one decision share a batch, so their number and their texts are limited.
LEASE_OFFSETS_MAX = 10_000
ERROR_LENGTH_MAX = 1000


class Choice(msgspec.Struct, frozen=True):
    """What a poll might lease, before the messages themselves are read."""

    offsets: BitMap64
    cursor: int
    # Whose turn it is among the lanes when this was handed out.
    turns: LaneTurns
    is_by_lanes: bool = False


class Undeliverable(msgspec.Struct, frozen=True):
    """Offsets of a choice that must not be leased: past their time to live, or without a message."""

    expired: BitMap64
    absent: BitMap64


class LeaseRequest(msgspec.Struct, frozen=True):
    """The member that polls, how many messages it may get, and for how long."""

    member: str
    room: int
    duration_ms: int


class GrantedLease(msgspec.Struct, frozen=True):
    """Number and offsets of a lease that was decided. Number 0: there was no message."""

    lease: int
    offsets: BitMap64


class AnswerResult(msgspec.Struct, frozen=True):
    """Offsets of an answer: those that were accepted, those acked before, and those that the lease does not hold."""

    done: BitMap64
    repeated: BitMap64
    stale: BitMap64


@dataclass(frozen=True, slots=True)
class FailureRules:
    """What decides about failed messages: the topic's rules, chance, and the next sequence of the outbox."""

    config: DeliveryConfig
    entropy: Entropy
    next_sequence: int
    at_ns: int


class LeaseEnd(msgspec.Struct, frozen=True):
    """How a lease ended without an ack: its number (0: there was none), the reason of a dead letter, and the cause."""

    lease: int
    reason: DeadReason
    error: str
    cause: Cause


Answer = Outcome[DeliveryRecord, AnswerResult]
Records = tuple[DeliveryRecord, ...]


def room_for(delivery: Delivery, member: str, config: DeliveryConfig, *, limit: int) -> int:
    """Returns how many messages a member may get now: its limit, within the limits on messages in flight."""
    leases = delivery.leases
    each = config.max_in_flight_per_consumer - leases.held_by.get(member, 0)
    return min(limit, config.max_in_flight - leases.in_flight, each, LEASE_OFFSETS_MAX)


def choose(delivery: Delivery, *, limit: int, end: int) -> Choice:
    """Returns the next messages: those that are ready again, lowest offset first, then new ones."""
    offsets = BitMap64()
    if delivery.ready:
        offsets = BitMap64(list(islice(each_offset(delivery.ready), limit)))
    stop = max(delivery.cursor, min(end, delivery.cursor + limit - len(offsets)))
    offsets |= BitMap64(range(delivery.cursor, stop))
    return Choice(offsets, stop, delivery.hints.turns)


def lease(
    delivery: Delivery,
    choice: Choice,
    unfit: Undeliverable,
    grant: LeaseRequest,
    failing: FailureRules,
) -> Outcome[DeliveryRecord, GrantedLease]:
    """Lease a choice with one record, and finish what cannot be leased. Returns the lease.

    If the choice is larger than the room, the cursor stays before the first message that is left for later.
    """
    cursor, offsets = choice.cursor, choice.offsets
    records: list[DeliveryRecord] = []
    if unfit.expired or unfit.absent:
        offsets = offsets - unfit.expired - unfit.absent
    if len(offsets) > grant.room:
        taken = BitMap64(list(islice(each_offset(offsets), grant.room)))
        cursor = _first_left(offsets - taken, delivery.cursor, cursor)
        offsets = taken
    if unfit.expired or unfit.absent:
        ripe = unfit if choice.is_by_lanes else _below(unfit, cursor)
        records = _finish_unfit(delivery, ripe, cursor, failing)
    if not offsets:
        return Outcome(GrantedLease(0, offsets), tuple(records))
    number = max(delivery.next_lease, delivery.lease_base)
    runs = runs_of(offsets)
    records.append(
        Leased(delivery.group, number, grant.member, runs, cursor, grant.duration_ms, failing.at_ns)
    )
    return Outcome(GrantedLease(number, offsets), tuple(records))


def _first_left(left: BitMap64, start: int, end: int) -> int:
    """Returns the first offset from `start` on that is left, or `end` if all before it are taken."""
    if left.max() < start:
        return end
    return min(next_of(left, start), end)


def _below(unfit: Undeliverable, cursor: int) -> Undeliverable:
    """Returns what is below the cursor. A later poll decides about the rest."""
    expired, absent = BitMap64(unfit.expired), BitMap64(unfit.absent)
    for offsets in (expired, absent):
        if offsets and offsets.max() >= cursor:
            offsets.remove_range(cursor, offsets.max() + 1)
    return Undeliverable(expired, absent)


def _finish_unfit(
    delivery: Delivery, unfit: Undeliverable, cursor: int, failing: FailureRules
) -> list[DeliveryRecord]:
    """Finish what cannot be leased."""
    expired, absent = unfit.expired, unfit.absent
    records: list[DeliveryRecord] = []
    if failing.config.ttl_action is TtlAction.DEAD_LETTER:
        reason = DeadReason.TTL_EXPIRED
        end = LeaseEnd(0, reason, EXPIRED_MESSAGE, Cause.TTL_OVER)
        records.extend(bury(delivery, expired, failing, end))
    elif expired:
        records.append(Expired(delivery.group, runs_of(expired), cursor))
    # Also with no offsets: it moves the cursor over the dead letters.
    records.append(Absent(delivery.group, runs_of(absent), cursor))
    return records


def _sorted_out(delivery: Delivery, number: int, offsets: BitMap64) -> AnswerResult:
    lease = delivery.leases.by_number.get(number)
    done = BitMap64() if lease is None else offsets & lease.offsets()
    rest = offsets - done
    if not rest:
        return AnswerResult(done, BitMap64(), rest)
    repeated = rest & delivery.acked_recently.of(number)
    return AnswerResult(done, repeated, rest - repeated)


def ack(delivery: Delivery, number: int, offsets: BitMap64) -> Answer:
    """Finish what the lease holds."""
    answered = _sorted_out(delivery, number, offsets)
    if not answered.done:
        return Outcome(answered)
    return Outcome(answered, (Acked(delivery.group, number, runs_of(answered.done)),))


def extend(delivery: Delivery, number: int, offsets: BitMap64, *, duration_ms: int) -> Answer:
    """Set a new deadline, from now, for what the lease holds. Acked offsets are stale."""
    answered = _without_repeats(_sorted_out(delivery, number, offsets))
    if not answered.done:
        return Outcome(answered)
    record = Extended(delivery.group, number, runs_of(answered.done), duration_ms)
    return Outcome(answered, (record,))


def nack(
    delivery: Delivery,
    number: int,
    offsets: BitMap64,
    failing: FailureRules,
    *,
    error: str,
    delay_ms: int | None = None,
) -> Answer:
    """Retry after a backoff, or after the delay asked for. Messages out of attempts become dead letters."""
    answered = _without_repeats(_sorted_out(delivery, number, offsets))
    end = LeaseEnd(number, DeadReason.MAX_RETRIES_EXCEEDED, error, Cause.NACKED)
    records = fail(delivery, answered.done, failing, end, delay_ms=delay_ms)
    return Outcome(answered, tuple(records))


def reject(
    delivery: Delivery, number: int, offsets: BitMap64, failing: FailureRules, *, error: str
) -> Answer:
    """Make dead letters of what the lease holds."""
    answered = _without_repeats(_sorted_out(delivery, number, offsets))
    end = LeaseEnd(number, DeadReason.REJECTED, error, Cause.REJECTED)
    records = bury(delivery, answered.done, failing, end)
    return Outcome(answered, tuple(records))


def _without_repeats(answered: AnswerResult) -> AnswerResult:
    """Returns the result with acked offsets as stale: only an ack may be repeated."""
    if not answered.repeated:
        return answered
    return AnswerResult(answered.done, BitMap64(), answered.stale | answered.repeated)


def fail(
    delivery: Delivery,
    offsets: BitMap64,
    failing: FailureRules,
    end: LeaseEnd,
    *,
    delay_ms: int | None,
) -> list[DeliveryRecord]:
    """Returns retries by their attempts, then the dead letters."""
    lost = [
        one for one in each_offset(offsets) if is_last(delivery.attempts_of(one), failing.config)
    ]
    kept = offsets - BitMap64(lost)
    records: list[DeliveryRecord] = []
    by_attempts = sorted(each_offset(kept), key=delivery.attempts_of)
    for attempts, group in groupby(by_attempts, key=delivery.attempts_of):
        wait_ms = delay_ms
        if wait_ms is None:
            wait_ms = backoff_ms(attempts, failing.config, failing.entropy)
        runs = runs_of(BitMap64(list(group)))
        error = end.error[:ERROR_LENGTH_MAX]
        records.append(Retried(delivery.group, end.lease, runs, wait_ms, error, end.cause))
    return [*records, *bury(delivery, BitMap64(lost), failing, end)]


def bury(
    delivery: Delivery, offsets: BitMap64, failing: FailureRules, end: LeaseEnd
) -> Iterator[DeliveryRecord]:
    error = end.error[:ERROR_LENGTH_MAX]
    for sequence, offset in enumerate(each_offset(offsets), failing.next_sequence):
        where = sequence if failing.config.dlq_enabled else NO_SEQUENCE
        yield Buried(
            delivery.group,
            end.lease,
            offset,
            where,
            end.reason,
            error,
            failing.at_ns,
            end.cause,
        )


def expire_due(delivery: Delivery, failing: FailureRules) -> Records:
    """Fail the lease that expired first, as of the last tick. No records: none has expired.

    One lease at a time, because each dead letter takes a sequence of the outbox: call again while there are records.
    """
    late = delivery.leases.next_late(delivery.now_ns)
    if late is None:
        return ()
    reason, cause = DeadReason.MAX_RETRIES_EXCEEDED, Cause.LEASE_EXPIRED
    end = LeaseEnd(late.lease.number, reason, EXPIRED_LEASE, cause)
    return tuple(fail(delivery, late.offsets, failing, end, delay_ms=None))


def release(delivery: Delivery, member: str, failing: FailureRules) -> Records:
    """Make what a member holds that went away ready again at once.

    Only its oldest message keeps the attempt: that may be the one which killed the member. Out of attempts it becomes a
    dead letter. The member had not begun the others.
    """
    held = [one for one in delivery.leases.by_number.values() if one.member == member]
    if not held:
        return ()
    first = min(held, key=lambda one: one.number)
    oldest: int = first.offsets().min()
    is_lost = is_last(delivery.attempts_of(oldest), failing.config)
    records: list[DeliveryRecord] = []
    for one in held:
        offsets = BitMap64(one.offsets())
        counted = -1 if one is not first or is_lost else oldest
        if one is first and is_lost:
            offsets.discard(oldest)
        if offsets:
            runs = runs_of(offsets)
            records.append(Released(delivery.group, one.number, runs, counted, Cause.MEMBER_GONE))
    lost = BitMap64((oldest,)) if is_lost else BitMap64()
    reason, cause = DeadReason.MAX_RETRIES_EXCEEDED, Cause.MEMBER_GONE
    end = LeaseEnd(first.number, reason, MEMBER_GONE, cause)
    return (*records, *bury(delivery, lost, failing, end))


def commit(delivery: Delivery, offset: int, *, member: str = "", lake: str = "") -> Records:
    """Finish everything below `offset`, on the word of a member or of the archive of a lake, if one is named.

    Below the floor: no change.
    """
    floor = delivery.progress.floor
    if offset <= floor:
        return ()
    return (Committed(delivery.group, offset, floor, member, lake),)


def rewind(delivery: Delivery, offset: int) -> Records:
    ahead = delivery.ahead.max() + 1 if delivery.ahead else 0
    end = max(delivery.cursor, ahead)
    return (Rewound(delivery.group, offset, delivery.progress.floor, end),)


def reopen(delivery: Delivery, offsets: BitMap64) -> Records:
    """Make finished messages ready once more, for this group only. Refused: one is not finished."""
    if open_ones := [one for one in each_offset(offsets) if not delivery.progress.is_finished(one)]:
        raise Refused(f"offset {open_ones[0]} is not finished, so it cannot be reopened")
    return (Reopened(delivery.group, runs_of(offsets)),)


def move(delivery: Delivery, offsets: BitMap64) -> Records:
    """Finish messages that were moved to another partition."""
    return (Moved(delivery.group, runs_of(offsets)),)


def skip(delivery: Delivery, start: int, end: int) -> Records:
    """Finish messages from `start` to `end` that cannot be read. Leased ones stay with their members."""
    cursor = delivery.cursor
    lost = BitMap64(range(max(start, cursor), max(end, cursor))) - delivery.ahead
    queued = delivery.ready | BitMap64(list(delivery.waiting))
    lost |= queued & BitMap64(range(start, end))
    after = max(end, cursor) if start <= cursor else cursor
    return (Absent(delivery.group, runs_of(lost), after, is_lost=True),)


def overtake(delivery: Delivery, start: int) -> Records:
    """Skip what retention removed below `start` and the group had not finished. No records: there is nothing."""
    if delivery.progress.lowest_unfinished() >= start:
        return ()
    return (Overtaken(delivery.group, start, delivery.progress.lowest_unfinished()),)


def history(delivery: Delivery, offset: int, number: int) -> Failure:
    """Returns the deliveries of a dead letter. No attempts: it was never delivered."""
    failure = delivery.failures.get(offset)
    held = delivery.leases.by_number.get(number)
    if failure is not None:
        return failure
    if held is not None:
        return Failure(1, held.at_ns, held.at_ns, held.member, "")
    return Failure(0, 0, 0, "", "")
