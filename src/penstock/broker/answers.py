"""Answers to many receipts at once, across topics, partitions and groups. Each receipt is answered on its own."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from ..delivery import Answered, Delivery
from ..errors import NotFound, PenstockError, Refused, StaleReceipt, Unavailable
from .handed import Handed
from .partition import Partition
from .received import Place, Receipt, read_receipt

_MS = 1_000_000
Find = Callable[[str, int], Partition]
Command = Callable[[Partition, Delivery, int, BitMap64], Answered]


class Receipted(NamedTuple):
    """A receipt whose answer was taken, and how its group stands on the partition now.

    `waits_ms` is how long a nacked message waits for its retry; None if it does not: it is finished, or still held.
    """

    receipt: str
    topic: str
    partition: int
    offset: int
    attempts: int
    is_repeat: bool
    floor: int
    has_floor_moved: bool
    in_flight: int
    is_finished: bool
    waits_ms: int | None


Result = Receipted | PenstockError


def answer(find: Find, receipts: Sequence[str], command: Command) -> list[Result]:
    """Apply a command to every receipt; one decision for all that belong to the same lease.

    Malformed: Refused. Unknown topic, partition or offset: NotFound. Not the current lease: StaleReceipt. A partition
    that cannot be used: PartitionFaulty.
    """
    results: list[Result | None] = [None] * len(receipts)
    by_lease: dict[tuple[object, int], list[tuple[int, Receipt]]] = {}
    for index, text in enumerate(receipts):
        try:
            receipt = read_receipt(text)
            _require_known(find, receipt)
        except (Refused, Unavailable) as error:
            results[index] = error
            continue
        by_lease.setdefault((receipt.place, receipt.lease), []).append((index, receipt))
    for same in by_lease.values():
        for (index, _), result in zip(
            same, _answer_lease(find, same, receipts, command), strict=True
        ):
            results[index] = result
    return [one for one in results if one is not None]


def _require_known(find: Find, receipt: Receipt) -> None:
    log = find(receipt.place.topic, receipt.place.partition).messages
    if not log.start_offset <= receipt.offset < log.end_offset:
        place = receipt.place
        raise NotFound("message", f"{place.topic}/{place.partition}/{receipt.offset}")


def _answer_lease(
    find: Find,
    same: Sequence[tuple[int, Receipt]],
    receipts: Sequence[str],
    command: Command,
) -> list[Result]:
    """Answers for receipts of one lease."""
    place, lease = same[0][1].place, same[0][1].lease
    partition = find(place.topic, place.partition)
    delivery = partition.machine.groups.get(place.group)
    if delivery is None:
        return [StaleReceipt(receipts[index]) for index, _ in same]
    floor_before = delivery.progress.floor
    try:
        answered = command(partition, delivery, lease, BitMap64([one.offset for _, one in same]))
    except (Refused, Unavailable) as error:
        return [error] * len(same)
    standing = _Standing(partition, delivery, answered, floor_before)
    return [standing.answer_to(receipts[index], receipt) for index, receipt in same]


class _Standing(NamedTuple):
    """How a group stands after a command."""

    partition: Partition
    delivery: Delivery
    answered: Answered
    floor_before: int

    def answer_to(self, text: str, receipt: Receipt) -> Result:
        offset, delivery = receipt.offset, self.delivery
        if offset in self.answered.stale:
            return StaleReceipt(text)
        due_ns, floor = delivery.waiting.get(offset), delivery.progress.floor
        return Receipted(
            text,
            self.partition.topic,
            self.partition.number,
            offset,
            receipt.attempts,
            offset in self.answered.repeated,
            floor,
            floor > self.floor_before,
            delivery.leases.in_flight,
            delivery.progress.is_finished(offset),
            None if due_ns is None else max(0, due_ns - delivery.now_ns) // _MS,
        )


def by_lease(handed: Handed) -> list[tuple[Place, int, BitMap64]]:
    """Messages in hand as offsets of their leases, for the commands of `consumption`."""
    return [(part.place, part.lease, BitMap64(part.offsets)) for part in handed.leased()]
