"""The state of one group on one partition. Only `apply` changes it, except that time passes with `tick`.

Deadlines and due retries are not journaled: they follow from the records. A restart grants every lease its full
duration again.

An offset at or above `cursor` was never leased, unless it is in `ahead`: messages of a higher priority pass others. Any
other offset that is not finished is in exactly one of `leases`, its claims, `ready` and `waiting`.
"""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any

from pyroaring import BitMap64

from . import image
from .acked_leases import AckedLeases
from .lane_turns import Hints
from .leases import Claim, Lease, Leases, Term, TransactionId
from .offsets import each_offset, first_missing, known_among, offsets_of
from .progress import Progress
from .records import (
    Absent,
    Acked,
    AckedImage,
    AckedLate,
    Buried,
    Claimed,
    ClaimImage,
    ClaimsEnded,
    CommitClaimed,
    Committed,
    DeliveryRecord,
    Disowned,
    Expired,
    Extended,
    FailuresImage,
    GroupImage,
    Leased,
    LeaseImage,
    Moved,
    OffsetsImage,
    Overtaken,
    Released,
    ReleasedImage,
    Reopened,
    Retried,
    Rewound,
)
from .retry import Failure

_MS = 1_000_000


class Delivery:
    """Floor, leases, retries and history. Time is monotonic nanoseconds, as of the last `tick`.

    The partition sets what is not in the records: `lease_base`, the least number of a new lease; `active_at_ns`, the
    wall time of the last request; `is_strict`, whether a failed message holds back those behind it; and `hints`.
    """

    def __init__(self, group: int, start: int, *, now_ns: int) -> None:
        self.group, self.now_ns = group, now_ns
        self.progress = Progress(start)
        self.cursor = start
        self.leases = Leases()
        self.next_lease = 1
        self.lease_base = 1
        self.active_at_ns = 0
        self.is_strict = False
        self.ready = BitMap64()
        self.ahead = BitMap64()
        self.hints = Hints()
        self.waiting: dict[int, int] = {}
        self._retries: list[tuple[int, int]] = []
        self.failures: dict[int, Failure] = {}
        # What members released without an answer, and no other member has got since.
        self.released: dict[str, BitMap64] = {}
        self.acked_recently = AckedLeases()
        # Offsets that open transactions commit here. While there are any, nothing more is leased.
        self.commits: dict[TransactionId, CommitClaimed] = {}
        self.expired_count = self.dead_count = self.skipped_count = 0

    def tick(self, now_ns: int) -> bool:
        """Have retries that are due be ready; whether there were any. A clock that goes back is ignored."""
        self.now_ns = max(self.now_ns, now_ns)
        has_due = False
        while self._retries and self._retries[0][0] <= self.now_ns:
            due_ns, offset = heappop(self._retries)
            if self.waiting.get(offset) == due_ns:
                del self.waiting[offset]
                self.ready.add(offset)
                has_due = True
        return has_due

    def next_due_ns(self) -> float:
        """When something happens by itself, or infinity."""
        while self._retries and self.waiting.get(self._retries[0][1]) != self._retries[0][0]:
            heappop(self._retries)
        retry_ns = self._retries[0][0] if self._retries else float("inf")
        return min(retry_ns, self.leases.next_deadline_ns())

    def unseen_below(self, end: int) -> int:
        """Returns how many offsets below the end of the log were never leased."""
        return max(0, end - self.cursor - len(self.ahead))

    def attempts_of(self, offset: int) -> int:
        """Returns the deliveries so far of a message that is leased or failed before."""
        failure = self.failures.get(offset)
        return 1 if failure is None else failure.attempts

    def last_member(self, offset: int) -> str | None:
        """Returns the member that had a message which waits now, or None if it was never leased."""
        for member, offsets in self.released.items():
            if offset in offsets:
                return member
        failure = self.failures.get(offset)
        return None if failure is None else failure.member

    def first_unseen(self) -> int:
        """Returns the first offset that was never leased; it may be the end of the log."""
        return first_missing(self.ahead, self.cursor)

    def apply(self, record: DeliveryRecord, now_ns: int = 0) -> None:
        """Follow a decision, made at a time; in a replay no time passes."""
        self.now_ns = max(self.now_ns, now_ns)
        _APPLY[type(record)](self, record)

    def snapshot(self) -> Iterable[DeliveryRecord]:
        return image.records_of(self)

    def wait(self, offset: int, due_ns: int) -> None:
        """Make a message ready again at a time."""
        self.waiting[offset] = due_ns
        heappush(self._retries, (due_ns, offset))

    def _leased(self, record: Leased) -> None:
        offsets = offsets_of(record.runs)
        deadline_ns = self.now_ns + record.duration_ms * _MS
        term = Term(deadline_ns, record.duration_ms, offsets)
        self.leases.grant(record.lease, record.member, record.at_ns, term)
        if self.failures:
            self._count_attempts(record, offsets)
        if self.released:
            self._forget_released(offsets)
        self.ready -= offsets
        self._pass(offsets, record.cursor)
        self.next_lease = record.lease + 1
        self.active_at_ns = max(self.active_at_ns, record.at_ns)

    def _count_attempts(self, record: Leased, offsets: BitMap64) -> None:
        # Not only ready ones: in a replay no time passes, so a retry may still be in `waiting`.
        for offset in known_among(self.failures, offsets):
            failure = self.failures[offset]
            failure.attempts += 1
            failure.last_delivery_ns, failure.member = record.at_ns, record.member
            self.waiting.pop(offset, None)

    def _acked(self, record: Acked) -> None:
        offsets = offsets_of(record.runs)
        self.leases.take(record.lease, offsets)
        self._finish(offsets)
        self.acked_recently.add(record.lease, record.runs)

    def _pass(self, offsets: BitMap64, cursor: int) -> None:
        """Set the cursor, and add offsets beyond it to `ahead`."""
        self.cursor = cursor
        if self.ahead:
            self.ahead.remove_range(0, cursor)
        if offsets and offsets.max() >= cursor and not self._is_passed(offsets, cursor):
            beyond = BitMap64(offsets)
            beyond.remove_range(0, cursor)
            self.ahead |= beyond

    def _is_passed(self, offsets: BitMap64, cursor: int) -> bool:
        """Whether all of them are below the cursor or in `ahead`, as leased ones are."""
        behind = offsets.range_cardinality(0, cursor)
        known: int = behind + offsets.intersection_cardinality(self.ahead)
        return known == len(offsets)

    def _finish(self, offsets: BitMap64) -> None:
        self.progress.finish(offsets)
        self._pass(offsets, max(self.cursor, self.progress.floor))
        if self.failures:
            self._forget_failures(offsets)
        if self.released:
            self._forget_released(offsets)

    def _forget_released(self, offsets: BitMap64) -> None:
        left = ((member, given - offsets) for member, given in self.released.items())
        self.released = {member: given for member, given in left if given}

    def _forget_failures(self, offsets: BitMap64) -> None:
        for offset in known_among(self.failures, offsets):
            del self.failures[offset]

    def _retried(self, record: Retried) -> None:
        offsets = offsets_of(record.runs)
        lease = self.leases.take(record.lease, offsets)
        due_ns = self.now_ns + record.delay_ms * _MS
        for offset in each_offset(offsets):
            self._failure(offset, lease).error = record.error
            self.wait(offset, due_ns)

    def _failure(self, offset: int, lease: Lease) -> Failure:
        """Returns the history of a message that fails now; makes it for the first failure."""
        if offset not in self.failures:
            self.failures[offset] = Failure(1, lease.at_ns, lease.at_ns, lease.member, "")
        return self.failures[offset]

    def _released(self, record: Released) -> None:
        offsets = offsets_of(record.runs)
        lease = self.leases.take(record.lease, offsets)
        self.ready |= offsets
        self.released[lease.member] = self.released.get(lease.member, BitMap64()) | offsets
        if record.counted >= 0:
            self._failure(record.counted, lease)
        for offset in known_among(self.failures, offsets):
            if offset != record.counted:
                self.failures[offset].attempts -= 1
                assert self.failures[offset].attempts > 0, "it failed before, so it was delivered"

    def _extended(self, record: Extended) -> None:
        deadline_ns = self.now_ns + record.duration_ms * _MS
        term = Term(deadline_ns, record.duration_ms, offsets_of(record.runs))
        self.leases.extend(record.lease, term)

    def _buried(self, record: Buried) -> None:
        offsets = BitMap64((record.offset,))
        if record.lease in self.leases.by_number:
            self.leases.take(record.lease, offsets)
        self._leave_queue(offsets)
        self._finish(offsets)
        self.dead_count += 1

    def _leave_queue(self, offsets: BitMap64) -> None:
        self.ready -= offsets
        for offset in known_among(self.waiting, offsets):
            del self.waiting[offset]

    def _expired(self, record: Expired) -> None:
        offsets = offsets_of(record.runs)
        self.expired_count += len(offsets)
        self._drop(offsets, record.cursor)

    def _absent(self, record: Absent) -> None:
        offsets = offsets_of(record.runs)
        self.skipped_count += len(offsets) if record.is_lost else 0
        self._drop(offsets, record.cursor)

    def _moved(self, record: Moved) -> None:
        offsets = offsets_of(record.runs)
        self._drop(offsets, self.cursor)

    def _acked_late(self, record: AckedLate) -> None:
        self._drop(offsets_of(record.runs), self.cursor)

    def _drop(self, offsets: BitMap64, cursor: int) -> None:
        self._leave_queue(offsets)
        self._finish(offsets)
        self._pass(offsets, max(self.cursor, cursor))

    def _committed(self, record: Committed) -> None:
        self._finish_below(record.offset)

    def _overtaken(self, record: Overtaken) -> None:
        self.skipped_count += self.progress.unfinished_below(record.offset)
        gone = self.progress.close_below(record.offset)
        self._leave_everything(gone)
        self._finish_below(record.offset)

    def _finish_below(self, offset: int) -> None:
        below = BitMap64(range(self.progress.floor, max(offset, self.progress.floor)))
        self._leave_everything(below)
        self.progress.finish_below(offset)
        self._pass(below, max(self.cursor, self.progress.floor))

    def _leave_everything(self, offsets: BitMap64) -> None:
        for lease in [*self.leases.by_number.values()]:
            if held := lease.offsets() & offsets:
                self.leases.take(lease.number, held)
        if self.leases.claims:
            self.leases.drop_claimed(offsets)
        self._leave_queue(offsets)
        self._forget_failures(offsets)
        self._forget_released(offsets)

    def _rewound(self, record: Rewound) -> None:
        self.progress = Progress(record.offset)
        self.cursor = record.offset
        self.leases = Leases(lowered=self.leases.lowered | self.leases.held_by.keys())
        self.ready, self.ahead = BitMap64(), BitMap64()
        self.hints = Hints()
        self.waiting, self._retries, self.failures, self.released = {}, [], {}, {}
        self.acked_recently.clear()
        self.commits = {}

    def _claimed(self, record: Claimed) -> None:
        offsets = offsets_of(record.runs)
        lease = self.leases.by_number.get(record.lease)
        held = self.leases.holding(record.lease) & offsets
        # Messages that no lease holds are with another attempt of the same commit.
        other = self.leases.claim_of(record.lease, offsets) if held != offsets else None
        if lease is not None:
            source: Lease | Claim = lease
            duration_ms = max(one.duration_ms for one in lease.terms)
        else:
            assert other is not None, "a claim is on messages of a lease, or of another claim"
            source, duration_ms = other, other.duration_ms
        if held:
            self.leases.take(record.lease, held)
        claim = Claim(
            record.answer,
            record.lease,
            source.member,
            source.at_ns,
            duration_ms,
            offsets,
            record.error,
            record.delay_ms,
            is_disowned=other is not None and other.is_disowned,
        )
        self.leases.claim((record.producer_id, record.number), claim)

    def _commit_claimed(self, record: CommitClaimed) -> None:
        self.commits[record.producer_id, record.number] = record

    def _claims_ended(self, record: ClaimsEnded) -> None:
        transaction = (record.producer_id, record.number)
        self.commits.pop(transaction, None)
        for one in self.leases.end_claims(transaction, is_commit=record.is_commit):
            if one.is_disowned and not record.is_commit:
                self._return(one)
                continue
            term = Term(self.now_ns + one.duration_ms * _MS, one.duration_ms, one.offsets)
            self.leases.grant(one.number, one.member, one.at_ns, term)

    def _return(self, claim: Claim) -> None:
        """Make ready what a member had that went away. It had begun with them, so each attempt counts."""
        self.ready |= claim.offsets
        lease = Lease(claim.number, claim.member, claim.at_ns, [])
        for offset in each_offset(claim.offsets):
            self._failure(offset, lease)

    def _disowned(self, record: Disowned) -> None:
        for claims in self.leases.claims.values():
            for one in claims:
                one.is_disowned |= one.member == record.member

    def _reopened(self, record: Reopened) -> None:
        offsets = offsets_of(record.runs)
        self.progress.reopen(offsets)
        self.ready |= offsets


_APPLY: dict[type, Callable[[Delivery, Any], None]] = {
    Leased: Delivery._leased,
    Acked: Delivery._acked,
    Retried: Delivery._retried,
    Released: Delivery._released,
    Extended: Delivery._extended,
    Buried: Delivery._buried,
    Expired: Delivery._expired,
    Committed: Delivery._committed,
    Rewound: Delivery._rewound,
    Reopened: Delivery._reopened,
    Overtaken: Delivery._overtaken,
    Absent: Delivery._absent,
    Moved: Delivery._moved,
    AckedLate: Delivery._acked_late,
    Claimed: Delivery._claimed,
    CommitClaimed: Delivery._commit_claimed,
    ClaimsEnded: Delivery._claims_ended,
    Disowned: Delivery._disowned,
    ClaimImage: image.restore_claim,
    GroupImage: image.restore,
    OffsetsImage: image.restore_offsets,
    LeaseImage: image.restore_lease,
    FailuresImage: image.restore_failures,
    AckedImage: image.restore_acked,
    ReleasedImage: image.restore_released,
}
