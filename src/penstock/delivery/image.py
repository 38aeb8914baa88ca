"""Converts a delivery to records of a snapshot, and back. Records are small, so that a batch can hold many of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from pyroaring import BitMap64

from .leases import Claim, Term
from .offsets import offsets_of, runs_in_pieces, runs_of
from .progress import Progress
from .records import (
    AckedImage,
    ClaimImage,
    DeliveryRecord,
    FailureImage,
    FailuresImage,
    GroupImage,
    LeaseImage,
    OffsetsImage,
    OffsetsKind,
    ReleasedImage,
)
from .retry import Failure

if TYPE_CHECKING:
    from .machine import Delivery

Item = TypeVar("Item")
_MS = 1_000_000
# A snapshot puts up to a thousand records into a batch, which may be 16 MiB.
PIECE_BYTES = 8192
_FAILURE_BYTES = 64


def in_pieces(
    items: Iterable[Item], size_of: Callable[[Item], int], *, bytes_max: int = PIECE_BYTES
) -> Iterator[tuple[Item, ...]]:
    """Yields items in tuples of about so many bytes; a larger item is alone."""
    piece: list[Item] = []
    size = 0
    for item in items:
        if piece and size + size_of(item) > bytes_max:
            yield tuple(piece)
            piece, size = [], 0
        piece.append(item)
        size += size_of(item)
    if piece:
        yield tuple(piece)


def records_of(delivery: "Delivery") -> Iterator[DeliveryRecord]:
    group, progress = delivery.group, delivery.progress
    yield GroupImage(
        group,
        progress.floor,
        delivery.cursor,
        delivery.next_lease,
        delivery.active_at_ns,
        delivery.expired_count,
        delivery.dead_count,
        delivery.skipped_count,
    )
    yield from _offsets(group, OffsetsKind.FINISHED, progress.finished)
    yield from _offsets(group, OffsetsKind.READY, delivery.ready)
    yield from _offsets(group, OffsetsKind.REOPENED, progress.reopened)
    yield from _offsets(group, OffsetsKind.AHEAD, delivery.ahead)
    for lease in delivery.leases.by_number.values():
        for term in lease.terms:
            runs = runs_of(term.offsets)
            yield LeaseImage(group, lease.number, lease.member, runs, term.duration_ms, lease.at_ns)
    for piece in in_pieces(
        _failures(delivery), lambda one: _FAILURE_BYTES + len(one.member) + len(one.error)
    ):
        yield FailuresImage(group, piece)
    for number, runs in delivery.acked_recently.entries():
        yield AckedImage(group, number, runs)
    for member, released in delivery.released.items():
        for runs in runs_in_pieces(released):
            yield ReleasedImage(group, member, runs)
    for (producer_id, number), claims in delivery.leases.claims.items():
        for one in claims:
            yield ClaimImage(
                group,
                producer_id,
                number,
                one.kind,
                one.number,
                one.member,
                one.at_ns,
                one.duration_ms,
                runs_of(one.offsets),
                one.error,
                one.delay_ms,
                one.is_disowned,
            )
    yield from delivery.commits.values()


def _offsets(group: int, kind: OffsetsKind, offsets: BitMap64) -> Iterator[DeliveryRecord]:
    for runs in runs_in_pieces(offsets):
        yield OffsetsImage(group, kind, runs)


def _failures(delivery: "Delivery") -> Iterator[FailureImage]:
    for offset, failure in delivery.failures.items():
        due_ns = delivery.waiting.get(offset)
        wait_ms = -1 if due_ns is None else max(0, due_ns - delivery.now_ns) // _MS
        yield FailureImage(
            offset,
            failure.attempts,
            failure.first_delivery_ns,
            failure.last_delivery_ns,
            failure.member,
            failure.error,
            wait_ms,
        )


def restore(delivery: "Delivery", record: GroupImage) -> None:
    delivery.progress = Progress(record.floor)
    delivery.cursor, delivery.next_lease = record.cursor, record.next_lease
    delivery.active_at_ns = record.active_at_ns
    delivery.expired_count, delivery.dead_count = record.expired_count, record.dead_count
    delivery.skipped_count = record.skipped_count


def restore_offsets(delivery: "Delivery", record: OffsetsImage) -> None:
    offsets = offsets_of(record.runs)
    match record.offsets_are:
        case OffsetsKind.FINISHED:
            delivery.progress.finished |= offsets
        case OffsetsKind.READY:
            delivery.ready |= offsets
        case OffsetsKind.REOPENED:
            delivery.progress.reopened |= offsets
        case OffsetsKind.AHEAD:
            delivery.ahead |= offsets


def restore_lease(delivery: "Delivery", record: LeaseImage) -> None:
    """Grant a lease for its full duration again: the time of the restart is not known."""
    deadline_ns = delivery.now_ns + record.duration_ms * _MS
    term = Term(deadline_ns, record.duration_ms, offsets_of(record.runs))
    delivery.leases.grant(record.lease, record.member, record.at_ns, term)


def restore_failures(delivery: "Delivery", record: FailuresImage) -> None:
    for failed in record.failures:
        delivery.failures[failed.offset] = Failure(
            failed.attempts,
            failed.first_delivery_ns,
            failed.last_delivery_ns,
            failed.member,
            failed.error,
        )
        if failed.wait_ms >= 0:
            delivery.wait(failed.offset, delivery.now_ns + failed.wait_ms * _MS)


def restore_acked(delivery: "Delivery", record: AckedImage) -> None:
    delivery.acked_recently.add(record.lease, record.runs)


def restore_released(delivery: "Delivery", record: ReleasedImage) -> None:
    known = delivery.released.get(record.member, BitMap64())
    delivery.released[record.member] = known | offsets_of(record.runs)


def restore_claim(delivery: "Delivery", record: ClaimImage) -> None:
    claim = Claim(
        record.answer,
        record.lease,
        record.member,
        record.at_ns,
        record.duration_ms,
        offsets_of(record.runs),
        record.error,
        record.delay_ms,
        record.is_disowned,
    )
    delivery.leases.claim((record.producer_id, record.number), claim)
