"""What one group must have done with one partition, computed the slow and simple way.

A book reads the same records as the machine under test and says which promise a record breaks. Every change can be
undone, because a power cut takes back what was not durable.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from pyroaring import BitMap64

from ..api.groups import Mode
from ..config import DeliveryConfig
from ..delivery.commands import EXPIRED_LEASE, MEMBER_GONE
from ..delivery.leases import TransactionId
from ..delivery.machine import Delivery
from ..delivery.offsets import each_offset, offsets_of
from ..delivery.records import (
    Acked,
    Buried,
    Claimed,
    ClaimsEnded,
    Committed,
    DeadReason,
    Disowned,
    Expired,
    Extended,
    Leased,
    Overtaken,
    Released,
    Retried,
    Rewound,
)
from .event import Event
from .schedule import MS
from .violation import Checker, Violation


class MessageStatus(Enum):
    READY = "ready"
    LEASED = "leased"
    WAITING = "waiting"
    ACKED = "acked"
    DEAD = "dead"
    EXPIRED = "expired"
    SKIPPED = "skipped"


FINISHED = frozenset(
    {MessageStatus.ACKED, MessageStatus.DEAD, MessageStatus.EXPIRED, MessageStatus.SKIPPED}
)


class MessageEntry(NamedTuple):
    """One message. `until_ns`: its lease lasts at least so long, or its retry comes not earlier.

    After a restart a lease may last longer than promised: answers are accepted until `latest_ns` at the latest.
    """

    status: MessageStatus = MessageStatus.READY
    attempts: int = 0
    lease: int = 0
    member: str = ""
    until_ns: int = 0
    latest_ns: int = 0
    duration_ms: int = 0
    # Transactions that have answered it and are not over; while there are any the lease has no end.
    claims: frozenset[TransactionId] = frozenset()
    is_disowned: bool = False
    # The one whose commit has answered it.
    answered_by: TransactionId | None = None


UNTOUCHED = MessageEntry()


class GroupBook:
    """All messages of a partition for one group. `expires_at` are pairs of offset and expiry time, 0 for never."""

    def __init__(self, name: str, start: int, rules: DeliveryConfig) -> None:
        self.name, self.rules, self.floor = name, rules, start
        self.entries: dict[int, MessageEntry] = {}
        self.leased: set[int] = set()
        # After a reset a message may be in the queue again and a dead letter as well.
        self.was_reset = False
        self._undo: list[tuple[int, MessageEntry | None]] | None = None
        self.mode = Mode.UNDECIDED
        # Members of an assigned group that lost messages since `OwnerBook.follow` looked last.
        self.taken: set[str] = set()

    def entry(self, offset: int) -> MessageEntry:
        return self.entries.get(offset, UNTOUCHED)

    def first_late(self, true_ns: int) -> int | None:
        """The offset of the first message whose lease may have ended by now, or None."""
        late = (
            one
            for one in self.leased
            if self.entries[one].until_ns <= true_ns and not self.entries[one].claims
        )
        return min(late, default=None)

    def is_new(self, offset: int) -> bool:
        """Whether the group never got the message."""
        return offset >= self.floor and offset not in self.entries

    def is_finished(self, offset: int) -> bool:
        return offset < self.floor or self.entry(offset).status in FINISHED

    def unfinished(self, end: int) -> int:
        return sum(not self.is_finished(offset) for offset in range(self.floor, end))

    def begin(self) -> Callable[[], None]:
        """Record the next changes. Returns a call that takes them back."""
        floor, changes = self.floor, list[tuple[int, MessageEntry | None]]()
        self._undo = changes
        return lambda: self._take_back(floor, changes)

    def _take_back(self, floor: int, changes: list[tuple[int, MessageEntry | None]]) -> None:
        self._undo = None
        for offset, before in reversed(changes):
            if before is None:
                self.entries.pop(offset, None)
                self.leased.discard(offset)
            else:
                self._put(offset, before)
        self.floor = floor

    def _put(self, offset: int, entry: MessageEntry) -> None:
        if self._undo is not None:
            self._undo.append((offset, self.entries.get(offset)))
        self.entries[offset] = entry
        if entry.status is MessageStatus.LEASED:
            self.leased.add(offset)
        else:
            self.leased.discard(offset)

    def _raise_floor(self) -> None:
        while self.entry(self.floor).status in FINISHED:
            self.floor += 1

    def restarted(self, true_ns: int) -> None:
        """Prolong all leases: the node grants them anew at a start."""
        self._undo = None
        for offset in self.leased:
            entry = self.entries[offset]
            latest_ns = max(entry.latest_ns, true_ns + entry.duration_ms * MS)
            self.entries[offset] = entry._replace(latest_ns=latest_ns)

    def lease(self, record: Leased, event: Event, expires_at: Iterable[tuple[int, int]]) -> None:
        if self.mode is Mode.STRICT:
            self._require_order(offsets_of(record.runs))
        for offset, over_ns in expires_at:
            entry = self.entry(offset)
            self._require_free(offset, entry, event)
            if over_ns and over_ns <= event.time.wall_ns:
                raise Violation(Checker.EXPIRY, f"{offset} was handed out after its expiry")
            attempts = entry.attempts + 1
            if 0 <= self.rules.max_retries < attempts - 1:
                raise Violation(
                    Checker.ATTEMPTS, f"{offset} is delivered for the {attempts}th time"
                )
            until_ns = event.time.true_ns + record.duration_ms * MS
            leased = MessageEntry(
                MessageStatus.LEASED,
                attempts,
                record.lease,
                record.member,
                until_ns,
                until_ns,
                record.duration_ms,
            )
            self._put(offset, leased)
        self._require_limits(record.member)

    def _require_order(self, offsets: BitMap64) -> None:
        """Violation: another message is leased, or one in front of these is not finished."""
        if self.leased:
            story = f"{[*each_offset(offsets)]} are handed out while {sorted(self.leased)} are out"
            raise Violation(Checker.STRICT_ORDER, story)
        due = range(self.floor, offsets.max() + 1)
        if passed := [one for one in due if one not in offsets and not self.is_finished(one)]:
            story = f"{[*each_offset(offsets)]} are handed out before {passed}"
            raise Violation(Checker.STRICT_ORDER, story)

    def _require_free(self, offset: int, entry: MessageEntry, event: Event) -> None:
        if entry.status is MessageStatus.LEASED:
            story = (
                f"{offset} is leased to {entry.member} (lease {entry.lease}) and handed out again"
            )
            raise Violation(Checker.LEASE_EXCLUSIVE, story)
        if self.is_finished(offset):
            story = f"{offset} is {entry.status.value} (floor {self.floor}) and handed out again"
            raise Violation(Checker.LEASE_EXCLUSIVE, story)
        # Snapshots keep the rest of a wait in whole milliseconds.
        if entry.status is MessageStatus.WAITING and entry.until_ns > event.time.true_ns + MS:
            early_ms = (entry.until_ns - event.time.true_ns) // MS
            raise Violation(Checker.ATTEMPTS, f"{offset} is retried {early_ms} ms too early")

    def _require_limits(self, member: str) -> None:
        held = sum(self.entries[offset].member == member for offset in self.leased)
        if len(self.leased) > self.rules.max_in_flight:
            raise Violation(Checker.IN_FLIGHT, f"{len(self.leased)} are in flight")
        if held > self.rules.max_in_flight_per_consumer:
            raise Violation(Checker.IN_FLIGHT, f"{member} holds {held}")

    def _held(self, offset: int, lease: int, what: str) -> MessageEntry:
        entry = self.entry(offset)
        if entry.status is not MessageStatus.LEASED or entry.lease != lease:
            story = f"{what} of {offset} under lease {lease}, but it is {entry.status.value} ({entry.lease})"
            raise Violation(Checker.LEASE_EXCLUSIVE, story)
        if entry.claims:
            story = f"{what} of {offset}, which belongs to {sorted(entry.claims)}"
            raise Violation(Checker.LEASE_EXCLUSIVE, story)
        return entry

    def _answered(self, offset: int, lease: int, what: str, event: Event) -> MessageEntry:
        entry = self._held(offset, lease, what)
        if event.time.true_ns >= entry.latest_ns:
            story = f"{what} of {offset} was taken after lease {lease} had expired"
            raise Violation(Checker.LEASE_EXCLUSIVE, story)
        return entry

    def claim(self, record: Claimed, event: Event) -> None:
        key = (record.producer_id, record.number)
        for offset in each_offset(offsets_of(record.runs)):
            entry = self.entry(offset)
            if not entry.claims or entry.lease != record.lease:
                entry = self._answered(offset, record.lease, "claim", event)
            self._put(offset, entry._replace(claims=entry.claims | {key}))

    def end_claims(self, record: ClaimsEnded, event: Event) -> None:
        """A commit answers what it had claimed, and an abort gives it back once no other attempt has it."""
        key = (record.producer_id, record.number)
        until_ns = event.time.true_ns
        for offset in sorted(self.leased):
            entry = self.entries[offset]
            if key not in entry.claims:
                continue
            over_ns = until_ns + entry.duration_ms * MS
            free = entry._replace(claims=frozenset(), until_ns=over_ns, latest_ns=over_ns)
            if record.is_commit:
                self._put(offset, free._replace(answered_by=key, is_disowned=False))
            elif entry.claims != {key}:
                self._put(offset, entry._replace(claims=entry.claims - {key}))
            elif entry.is_disowned:
                given_back = MessageEntry(MessageStatus.READY, entry.attempts, is_disowned=True)
                self._put(offset, given_back)
            else:
                self._put(offset, free)

    def disown(self, record: Disowned, _event: Event) -> None:
        for offset in sorted(self.leased):
            entry = self.entries[offset]
            if entry.claims and entry.member == record.member:
                self._put(offset, entry._replace(is_disowned=True))

    def ack(self, record: Acked, event: Event) -> None:
        for offset in each_offset(offsets_of(record.runs)):
            entry = self._answered(offset, record.lease, "ack", event)
            self._put(offset, entry._replace(status=MessageStatus.ACKED))
        self._raise_floor()

    def extend(self, record: Extended, event: Event) -> None:
        until_ns = event.time.true_ns + record.duration_ms * MS
        for offset in each_offset(offsets_of(record.runs)):
            entry = self._answered(offset, record.lease, "extend", event)
            extended = entry._replace(
                until_ns=until_ns, latest_ns=until_ns, duration_ms=record.duration_ms
            )
            self._put(offset, extended)

    def retry(self, record: Retried, event: Event) -> None:
        for offset in each_offset(offsets_of(record.runs)):
            entry = self._failed(offset, record.lease, record.error, event)
            if 0 <= self.rules.max_retries < entry.attempts:
                story = f"{offset} failed {entry.attempts} times and is tried again"
                raise Violation(Checker.ATTEMPTS, story)
            until_ns = event.time.true_ns + record.delay_ms * MS
            self._put(
                offset, MessageEntry(MessageStatus.WAITING, entry.attempts, until_ns=until_ns)
            )

    def _failed(self, offset: int, lease: int, error: str, event: Event) -> MessageEntry:
        if error != EXPIRED_LEASE:
            return self._answered(offset, lease, "nack", event)
        entry = self._held(offset, lease, "expiry")
        if event.time.true_ns < entry.until_ns:
            early_ms = (entry.until_ns - event.time.true_ns) // MS
            story = f"lease {lease} of {offset} ended {early_ms} ms before its time"
            raise Violation(Checker.LEASE_EXCLUSIVE, story)
        return entry

    def release(self, record: Released, event: Event) -> None:
        for offset in each_offset(offsets_of(record.runs)):
            entry = self._held(offset, record.lease, "release")
            if not self._may_take(offset, entry.member, record, event):
                story = f"{offset} was taken from {entry.member}, which did not leave"
                raise Violation(Checker.LEASE_EXCLUSIVE, story)
            attempts = entry.attempts - (offset != record.counted)
            self._put(offset, MessageEntry(MessageStatus.READY, attempts))

    def _may_take(self, offset: int, member: str, record: Released, event: Event) -> bool:
        """Whether the node may take a message from its member. In an assigned group `OwnerBook` judges that."""
        if self.mode is Mode.STRICT and record.counted == -1 and self._is_held_back(offset):
            return True
        if self.mode.is_assigned:
            self.taken.add(member)
        return self.mode.is_assigned or member == event.leaving

    def _is_held_back(self, offset: int) -> bool:
        before = range(self.floor, offset)
        return any(self.entry(one).status is MessageStatus.WAITING for one in before)

    def bury(self, record: Buried, event: Event, over_ns: int) -> None:
        offset, lease = record.offset, record.lease
        if record.reason is DeadReason.TTL_EXPIRED:
            self._require_over(offset, over_ns, event)
        elif record.reason is DeadReason.REJECTED:
            if not event.rejecting:
                raise Violation(Checker.DLQ_ATOMIC, f"{offset} was not rejected by a client")
            self._answered(offset, lease, "reject", event)
        else:
            entry = self._given_up(offset, record, event)
            if entry.attempts != self.rules.max_retries + 1:
                story = f"{offset} became a dead letter after {entry.attempts} deliveries"
                raise Violation(Checker.ATTEMPTS, story)
        self._put(offset, self.entry(offset)._replace(status=MessageStatus.DEAD))
        self._raise_floor()

    def _given_up(self, offset: int, record: Buried, event: Event) -> MessageEntry:
        given_back = self.entry(offset)
        if record.error == MEMBER_GONE and given_back.is_disowned and not given_back.claims:
            return given_back
        if event.leaving or (self.mode.is_assigned and record.error == MEMBER_GONE):
            entry = self._held(offset, record.lease, "release")
            if self.mode.is_assigned:
                self.taken.add(entry.member)
            return entry
        return self._failed(offset, record.lease, record.error, event)

    def expire(self, record: Expired, event: Event, expires_at: Iterable[tuple[int, int]]) -> None:
        for offset, over_ns in expires_at:
            self._require_over(offset, over_ns, event)
            self._put(offset, self.entry(offset)._replace(status=MessageStatus.EXPIRED))
        self._raise_floor()

    def _require_over(self, offset: int, over_ns: int, event: Event) -> None:
        entry = self.entry(offset)
        if entry.status is MessageStatus.LEASED or self.is_finished(offset):
            story = f"{offset} expired while it was {entry.status.value}"
            raise Violation(Checker.COMMIT_SAFE, story)
        if not 0 < over_ns <= event.time.wall_ns:
            raise Violation(Checker.EXPIRY, f"{offset} expired before its time")

    def overtake(self, record: Overtaken) -> int:
        """Skip what retention removed. Returns how many messages the group never finished."""
        lost = [one for one in range(self.floor, record.offset) if not self.is_finished(one)]
        for offset in lost:
            self._put(offset, self.entry(offset)._replace(status=MessageStatus.SKIPPED))
        self.floor = max(self.floor, record.offset)
        self._raise_floor()
        return len(lost)

    def commit(self, record: Committed, event: Event) -> None:
        if record.offset != event.moving_to:
            raise Violation(
                Checker.COMMIT_SAFE, f"no client committed {record.offset} in {self.name}"
            )
        for offset in range(self.floor, record.offset):
            if not self.is_finished(offset):
                self._put(offset, self.entry(offset)._replace(status=MessageStatus.ACKED, lease=0))
        self.floor = max(self.floor, record.offset)
        self._raise_floor()

    def rewind(self, record: Rewound, event: Event) -> None:
        if record.offset != event.moving_to:
            raise Violation(Checker.COMMIT_SAFE, f"no client reset {self.name} to {record.offset}")
        for offset in [*self.entries]:
            self._put(offset, UNTOUCHED)
        self.floor, self.was_reset = record.offset, True

    def compare_counts(self, delivery: Delivery) -> None:
        """Violation: floor or messages in flight differ from the node's. Cheap enough for every event."""
        if delivery.progress.floor != self.floor:
            story = (
                f"the floor of {self.name} is {delivery.progress.floor}, it should be {self.floor}"
            )
            raise Violation(Checker.COMMIT_SAFE, story)
        if delivery.leases.in_flight != len(self.leased):
            found, expected = delivery.leases.in_flight, len(self.leased)
            story = f"{found} are in flight in {self.name}, it should be {expected}"
            raise Violation(Checker.LEASE_EXCLUSIVE, story)

    def compare(self, delivery: Delivery) -> None:
        """Everything that can be seen from outside."""
        self.compare_counts(delivery)
        finished = {one for one in self.entries if one >= self.floor and self.is_finished(one)}
        if set(each_offset(delivery.progress.finished)) != finished:
            story = f"{self.name} finished {[*each_offset(delivery.progress.finished)]}, not {sorted(finished)}"
            raise Violation(Checker.COMMIT_SAFE, story)
        for key, claims in delivery.leases.claims.items():
            for offset in (one for claim in claims for one in each_offset(claim.offsets)):
                if key not in self.entry(offset).claims:
                    story = (
                        f"{offset} belongs to {key}, and only {self.entry(offset).claims} have it"
                    )
                    raise Violation(Checker.LEASE_EXCLUSIVE, story)
        for lease in delivery.leases.by_number.values():
            for offset in each_offset(lease.offsets()):
                entry = self._held(offset, lease.number, "state")
                if entry.member != lease.member:
                    story = f"{offset} is held by {lease.member}, not by {entry.member}"
                    raise Violation(Checker.LEASE_EXCLUSIVE, story)
        self._compare_attempts(delivery)

    def _compare_attempts(self, delivery: Delivery) -> None:
        for offset, entry in self.entries.items():
            if self.is_finished(offset):
                continue
            found = delivery.failures.get(offset)
            count = found.attempts if found else int(entry.status is MessageStatus.LEASED)
            if count != entry.attempts:
                story = f"{offset} shows {count} attempts in {self.name}, it had {entry.attempts}"
                raise Violation(Checker.ATTEMPTS, story)
            is_open = offset in delivery.ready or offset in delivery.waiting
            was_seen = offset < delivery.cursor or offset in delivery.ahead
            if not is_open and entry.status is not MessageStatus.LEASED and was_seen:
                story = (
                    f"{offset} is {entry.status.value} in {self.name}, and no member will get it"
                )
                raise Violation(Checker.COMMIT_SAFE, story)
