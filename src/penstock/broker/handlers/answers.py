"""Answers for messages that consumers hold: one decision for each lease."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from pyroaring import BitMap64

from ...api.answers import (
    Answer,
    AnswerOffset,
    Kind,
    LeaseAnswer,
    LeaseOutcome,
    OffsetKind,
    ReleaseMember,
    TakeBack,
)
from ...api.command import Command
from ...api.dead_letters import DEAD_LETTER_SUFFIX
from ...delivery import AnswerResult, Delivery, offset_answers
from ...delivery.offsets import each_offset
from ...errors import OffsetOutOfRange, PenstockError, Refused, Unavailable
from ..groups import existing
from ..partition import Now, Partition, consumption
from ..partition.changes import Handler
from ..partition.release import give_back_all, release, take_back

if TYPE_CHECKING:
    from ..node import Node

_MS = 1_000_000
_OFFSET_MAX = 1 << 62
_FINISHING = frozenset({Kind.NACK, Kind.REJECT, Kind.RELEASE})


def answer(node: "Node", command: Answer, now: Now) -> list[LeaseOutcome | PenstockError]:
    """An outcome for each answer. Refused, Unavailable instead of one: that lease is as it was."""
    return list(map(partial(_outcome, node, now), command.answers))


def _outcome(node: "Node", now: Now, said: LeaseAnswer) -> LeaseOutcome | PenstockError:
    try:
        partition = node.partition(said.topic, said.partition)
        offsets = checked_offsets(said.offsets)
        delivery = partition.machine.groups.get(said.group)
        if delivery is None:
            return _with_stale(partition, offsets, LeaseOutcome())
        wrong = miscounted(delivery, said) if said.attempts else None
        if wrong:
            offsets -= wrong
            if not offsets:
                return _with_stale(partition, wrong, LeaseOutcome())
        floor = delivery.progress.floor
        held = (partition, delivery, said.lease, offsets, now)
        match said.kind:
            case Kind.ACK:
                answered = consumption.ack(*held)
            case Kind.NACK:
                answered = consumption.nack(*held, error=said.reason, delay_ms=said.ms)
            case Kind.REJECT:
                answered = consumption.reject(*held, error=said.reason)
            case Kind.EXTEND:
                answered = consumption.extend(*held, duration_ms=said.ms or 0)
            case _:  # Kind.RELEASE
                answered = take_back(*held)
    except (Refused, Unavailable) as error:
        return error.fresh()
    is_finishing = said.kind in _FINISHING
    outcome = LeaseOutcome(
        floor=delivery.progress.floor,
        has_floor_moved=delivery.progress.floor > floor,
        in_flight=delivery.leases.in_flight,
        repeated=frozenset(each_offset(answered.repeated)) if answered.repeated else frozenset(),
        retry_in_ms=_retries(delivery, answered) if is_finishing else {},
        finished=_finished(delivery, answered) if is_finishing else frozenset(),
        given_up=_given_up(partition) if is_finishing else "dlq",
    )
    stale = answered.stale | wrong if wrong else answered.stale
    return _with_stale(partition, stale, outcome) if stale else outcome


def miscounted(delivery: Delivery, said: LeaseAnswer) -> BitMap64 | None:
    """Messages of the lease that were delivered another number of times than their receipts count."""
    if not said.attempts:
        return None
    held = delivery.leases.holding(said.lease)
    return BitMap64(
        [
            offset
            for offset, attempts in zip(said.offsets, said.attempts, strict=False)
            if offset in held and attempts != delivery.attempts_of(offset)
        ]
    )


def _given_up(partition: Partition) -> str:
    if partition.rules.dlq_enabled:
        return "dlq"
    return "kept" if partition.topic.endswith(DEAD_LETTER_SUFFIX) else "dropped"


def checked_offsets(given: Sequence[int]) -> BitMap64:
    try:
        offsets = BitMap64(given)
    except OverflowError:
        raise Refused("an offset is a number from 0 on") from None
    if offsets and offsets.max() >= _OFFSET_MAX:
        raise Refused("an offset is a number from 0 on")
    return offsets


def _with_stale(partition: Partition, stale: BitMap64, outcome: LeaseOutcome) -> LeaseOutcome:
    """An outcome with the offsets that are not held: those that the log has, and those that it does not."""
    log = partition.messages
    known = BitMap64(stale)
    known.remove_range(0, log.start_offset)
    if known and known.max() >= log.end_offset:
        known.remove_range(log.end_offset, known.max() + 1)
    return msgspec.structs.replace(
        outcome, stale=frozenset(each_offset(known)), missing=frozenset(each_offset(stale - known))
    )


def _retries(delivery: Delivery, answered: AnswerResult) -> dict[int, int]:
    waiting = delivery.waiting
    return {
        offset: max(0, waiting[offset] - delivery.now_ns) // _MS
        for offset in each_offset(answered.done | answered.repeated)
        if offset in waiting
    }


def _finished(delivery: Delivery, answered: AnswerResult) -> frozenset[int]:
    done = each_offset(answered.done | answered.repeated)
    return frozenset(filter(delivery.progress.is_finished, done))


def answer_offset(node: "Node", command: AnswerOffset, now: Now) -> None:
    """Finish a message, or give it back as failed. Late is not wrong while no other member holds it."""
    partition = node.partition(command.topic, command.partition)
    log, offset = partition.messages, command.offset
    if not log.start_offset <= offset < log.end_offset:
        raise OffsetOutOfRange(offset, start=log.start_offset, end=log.end_offset)
    delivery = partition.group(command.group)
    consumption.settle(partition, delivery, now)
    owner = command.owner
    match command.kind:
        case OffsetKind.ACK:
            partition.record(offset_answers.ack(delivery, offset, member=owner), now)
        case OffsetKind.ACK_UP_TO:
            partition.record(offset_answers.ack_up_to(delivery, offset, member=owner), now)
        case OffsetKind.NACK:
            lease = offset_answers.held(delivery, offset, member=owner).number
            offsets = BitMap64((offset,))
            consumption.nack(partition, delivery, lease, offsets, now, error=command.reason)


def release_member(node: "Node", command: ReleaseMember, now: Now) -> None:
    node.pollers.forget(command.topic, command.group, command.member)
    for partition, delivery in existing(node.topic(command.topic).partitions, command.group):
        if command.is_unseen:
            give_back_all(partition, delivery, command.member, now)
        else:
            release(partition, delivery, command.member, now)


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    Answer: answer,
    TakeBack: answer,
    AnswerOffset: answer_offset,
    ReleaseMember: release_member,
}
