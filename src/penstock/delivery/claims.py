"""Answers inside of transactions: what they claim, and what becomes of that when the transaction ends.

Each function reads a `Delivery` and returns records. From the claim on, the messages have no deadline and belong to the
transaction; nothing of the answer has happened before its commit.
"""

from collections.abc import Collection
from dataclasses import replace

from pyroaring import BitMap64

from ..kernel import Outcome
from .commands import (
    MEMBER_GONE,
    Answer,
    AnswerResult,
    FailureRules,
    LeaseEnd,
    Records,
    bury,
    commit,
    fail,
    rewind,
)
from .leases import Claim, TransactionId
from .machine import Delivery
from .offsets import each_offset, runs_of
from .records import (
    Acked,
    Buried,
    Cause,
    Claimed,
    ClaimKind,
    ClaimsEnded,
    CommitClaimed,
    DeadReason,
    DeliveryRecord,
    Disowned,
)
from .retry import is_last


def claim(
    delivery: Delivery,
    transaction: TransactionId,
    answer: Claim,
    siblings: Collection[TransactionId] = (),
) -> Answer:
    """Claim what the lease holds of the offsets; `repeated` has this transaction claimed before, in the same way.

    What one of the siblings has claimed of this lease may be claimed once more: at most one of them is committed.
    """
    done = answer.offsets & delivery.leases.holding(answer.number)
    repeated, mine = BitMap64(), BitMap64()
    for one in delivery.leases.claims.get(transaction, ()):
        if one.number == answer.number:
            mine |= one.offsets
            if one.kind is answer.kind:
                repeated |= answer.offsets & one.offsets
    for sibling in siblings:
        for one in delivery.leases.claims.get(sibling, ()):
            if one.number == answer.number:
                done |= answer.offsets & one.offsets
    done -= mine
    answered = AnswerResult(done, repeated, answer.offsets - done - repeated)
    if not done:
        return Outcome(answered)
    record = Claimed(
        delivery.group,
        *transaction,
        answer.kind,
        answer.number,
        runs_of(done),
        answer.error,
        answer.delay_ms,
    )
    return Outcome(answered, (record,))


def claim_below(
    delivery: Delivery, transaction: TransactionId, offset: int, *, member: str, note: str | None
) -> Records:
    """Claim everything below an offset. No records: the transaction has done that."""
    record = CommitClaimed(delivery.group, *transaction, offset, member, note)
    if delivery.commits.get(transaction) == record:
        return ()
    records: list[DeliveryRecord] = [record]
    for lease in delivery.leases.by_number.values():
        below = BitMap64(lease.offsets())
        below.remove_range(offset, max(offset, below.max() + 1))
        if below:
            runs = runs_of(below)
            kind = ClaimKind.COMMIT
            records.append(Claimed(delivery.group, *transaction, kind, lease.number, runs))
    return tuple(records)


def end(
    delivery: Delivery,
    transaction: TransactionId,
    failing: FailureRules,
    *,
    is_commit: bool,
    aborted: Collection[TransactionId] = (),
) -> Records:
    """Carry out the answers of a transaction that was committed, or give back what it had claimed.

    `aborted` are transactions that end in the same batch of records, before this one.
    """
    claimed = BitMap64()
    if not is_commit:
        for one in delivery.leases.claims.get(transaction, ()):
            claimed |= one.offsets
    ended = ClaimsEnded(delivery.group, *transaction, is_commit, runs_of(claimed))
    records: list[DeliveryRecord] = [ended]
    if not is_commit:
        records.extend(_given_up(delivery, transaction, failing, aborted))
    if is_commit:
        for one in delivery.leases.claims.get(transaction, ()):
            answered = _answered(delivery, one, failing)
            letters = sum(isinstance(each, Buried) and each.sequence >= 0 for each in answered)
            failing = replace(failing, next_sequence=failing.next_sequence + letters)
            records.extend(answered)
        committed = delivery.commits.get(transaction)
        if committed is not None:
            records.extend(_moved(delivery, committed))
    return tuple(records)


def _given_up(
    delivery: Delivery,
    transaction: TransactionId,
    failing: FailureRules,
    aborted: Collection[TransactionId],
) -> Records:
    """Dead letters: messages of a member that went away, which have no attempt left and come back to no other one."""
    claims = delivery.leases.claims
    elsewhere = BitMap64()
    for key, some in claims.items():
        if key != transaction and key not in aborted:
            for one in some:
                elsewhere |= one.offsets
    records: list[DeliveryRecord] = []
    for one in claims.get(transaction, ()):
        if not one.is_disowned:
            continue
        lost = BitMap64(
            offset
            for offset in each_offset(one.offsets - elsewhere)
            if is_last(delivery.attempts_of(offset), failing.config)
        )
        reason, cause = DeadReason.MAX_RETRIES_EXCEEDED, Cause.MEMBER_GONE
        records.extend(
            bury(delivery, lost, failing, LeaseEnd(one.number, reason, MEMBER_GONE, cause))
        )
        letters = len(lost) if failing.config.dlq_enabled else 0
        failing = replace(failing, next_sequence=failing.next_sequence + letters)
    return tuple(records)


def _answered(delivery: Delivery, claimed: Claim, failing: FailureRules) -> Records:
    number, offsets = claimed.number, claimed.offsets
    match claimed.kind:
        case ClaimKind.ACK:
            return (Acked(delivery.group, number, runs_of(offsets)),)
        case ClaimKind.NACK:
            failed = LeaseEnd(number, DeadReason.MAX_RETRIES_EXCEEDED, claimed.error, Cause.NACKED)
            delay_ms = None if claimed.delay_ms < 0 else claimed.delay_ms
            return tuple(fail(delivery, offsets, failing, failed, delay_ms=delay_ms))
        case ClaimKind.REJECT:
            rejected = LeaseEnd(number, DeadReason.REJECTED, claimed.error, Cause.REJECTED)
            return tuple(bury(delivery, offsets, failing, rejected))
        case ClaimKind.COMMIT:
            return ()


def _moved(delivery: Delivery, committed: CommitClaimed) -> Records:
    is_back = committed.offset < delivery.progress.floor
    if is_back and committed.note is not None:
        return rewind(delivery, committed.offset)
    return commit(delivery, committed.offset, member=committed.member)


def disown(delivery: Delivery, member: str) -> Records:
    """A member went away: what it had in transactions does not come back to it."""
    claims = (one for some in delivery.leases.claims.values() for one in some)
    if any(one.member == member and not one.is_disowned for one in claims):
        return (Disowned(delivery.group, member),)
    return ()
