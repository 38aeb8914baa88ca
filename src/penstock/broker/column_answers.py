"""Answers to many messages of a few leases, in columns: one command for each lease, and no object for each message."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from pyroaring import BitMap64

from ..codec.answers import Kind, LeaseAnswer
from ..delivery.offsets import each_offset
from ..errors import NotFound, PenstockError, Refused, StaleReceipt, Unavailable
from . import consumption
from .answers import Command, Find
from .giving_back import take_back
from .partition import Now
from .received import Place, write_receipt

_OFFSET_MAX = 1 << 62


class Failure(NamedTuple):
    """A message whose answer was not taken, and why."""

    topic: str
    partition: int
    offset: int
    error: PenstockError


def answer_columns(
    find: Find, answers: Sequence[LeaseAnswer], now: Now
) -> tuple[int, list[Failure]]:
    """Carry out answers; how many messages that was, and those whose answer was not taken."""
    failures = [one for answer in answers for one in _failures(find, answer, now)]
    return sum(len(one.offsets) for one in answers) - len(failures), failures


def _failures(find: Find, answer: LeaseAnswer, now: Now) -> Iterator[Failure]:
    place = answer.topic, answer.partition
    try:
        partition = find(*place)
        offsets = _checked(answer)
        command = _command(answer, now)
        delivery = partition.machine.groups.get(answer.group)
        stale = offsets
        if delivery is not None:
            stale = command(partition, delivery, answer.lease, offsets).stale
    except (Refused, Unavailable) as error:
        for offset in answer.offsets:
            yield Failure(*place, offset, error)
        return
    log = partition.messages
    for offset in each_offset(stale):
        if log.start_offset <= offset < log.end_offset:
            receipt = write_receipt(Place(*place, answer.group), offset, 0, answer.lease)
            yield Failure(*place, offset, StaleReceipt(receipt))
        else:
            yield Failure(*place, offset, NotFound("message", f"{place[0]}/{place[1]}/{offset}"))


def _checked(answer: LeaseAnswer) -> BitMap64:
    if answer.offsets and not 0 <= min(answer.offsets) <= max(answer.offsets) < _OFFSET_MAX:
        raise Refused("an offset is a number from 0 on")
    return BitMap64(answer.offsets)


def _command(answer: LeaseAnswer, now: Now) -> Command:
    match answer.kind:
        case Kind.ACK:
            return partial(consumption.ack, now=now)
        case Kind.NACK:
            return partial(consumption.nack, now=now, error=answer.reason, delay_ms=answer.ms)
        case Kind.REJECT:
            return partial(consumption.reject, now=now, error=answer.reason)
        case Kind.EXTEND:
            return partial(consumption.extend, now=now, duration_ms=answer.ms or 0)
        case Kind.RELEASE:
            return partial(take_back, now=now)
