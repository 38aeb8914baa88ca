"""The end of transactions where their stagings are: published, or dropped, once.

A published batch says in its head which staging it was, so that a restart in the middle goes on with the others. The
record that ends the transaction here comes last, in one batch with the note that the letter came and with what the
transaction has answered.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from pyroaring import BitMap64

from ...codec import Encoded, Head, Origin
from ...codec.edit import dense
from ...codec.head import with_origin
from ...delivery import Delivery, claims
from ...delivery.image import in_pieces
from ...delivery.records import Buried
from ...errors import Damaged, DamagedFile, NoSpace
from ...transactions import Coordinator
from ...transactions.coordinator import Producer
from ...transactions.records import Place, StagingsEnded, TransactionConcluded
from ...transactions.stagings import Staged, Staging, TransactionKey, runs_of
from .consumption import failing_of, keep_order
from .machine import PartitionMachine
from .outbox import Decision
from .partition import Now, Partition
from .records import Arrived, CommitNoted, PartitionRecord

_NOTHING = Staged()
# What is read of the staging log, and written to the messages, in one go.
_BYTES_AT_ONCE = 1 << 20


class DelaysUnsynced(Exception):  # A letter that comes again after the next sync, and no failure.
    """Delayed messages of a transaction are scheduled, and not durable yet."""


def apply_decisions(
    source: Partition, destination: Partition, letters: Iterable[Decision], now: Now
) -> None:
    """Publish what transactions have staged here, or drop it. NoSpace, Damaged, DelaysUnsynced: the rest comes again.

    What many have staged is published with one write, and they end in one batch of records. Whatever goes wrong with
    one, those before it have ended.
    """
    ready: list[tuple[Decision, Staged]] = []
    unpublished: list[Staging] = []
    failure: Damaged | NoSpace | None = None
    for letter in letters:
        key = TransactionKey(letter.producer_id, letter.number)
        staged = destination.machine.stagings.open.get(key, _NOTHING)
        if letter.is_commit:
            if staged.message_count != letter.message_count:
                failure = _incomplete(destination, letter, staged)
                break
            unpublished += staged.unpublished()
        ready.append((letter, staged))
    try:
        publish_stagings(destination, unpublished, now)
    except (Damaged, NoSpace) as error:
        failure = error.fresh()
    _end_published(source, destination, ready, now, is_all=failure is None)
    if failure is not None:
        raise failure.fresh()


def _incomplete(destination: Partition, letter: Decision, staged: Staged) -> DamagedFile:
    reason = (
        f"transaction {letter.number} of producer {letter.producer_id} is committed with "
        f"{letter.message_count} messages, and {staged.message_count} are there"
    )
    return DamagedFile(destination.staging.directory, reason)


def _end_published(
    source: Partition,
    destination: Partition,
    decisions: Iterable[tuple[Decision, Staged]],
    now: Now,
    *,
    is_all: bool,
) -> None:
    """Record the end of transactions; not `is_all`: up to the first one of which something is not published.

    DelaysUnsynced: those before it have ended.
    """
    ended: list[PartitionRecord] = []
    where, last = source.identity.as_source, 0

    def record() -> None:
        # A letter counts as arrived when one behind it has.
        if ended:
            destination.record((Arrived(0, where, last), *ended), now)
            ended.clear()

    try:
        for letter, staged in decisions:
            key, is_commit = TransactionKey(letter.producer_id, letter.number), letter.is_commit
            if is_commit:
                if not is_all and staged.unpublished():
                    break
                require_durable_delays(destination, (staged,))
            if staged.groups:
                # What its answers come to rests on all that was recorded before.
                record()
                arrived = Arrived(0, where, letter.sequence)
                _end(destination, key, now, arrived, is_commit=is_commit)
            else:
                ended.append(_ended(staged, key, is_commit=is_commit))
                last = letter.sequence
    except DelaysUnsynced:
        record()
        raise
    record()


def is_kept(partition: Partition, staged: Staged) -> bool:
    """Whether no power cut and no other leader takes what was staged and answered here; a decision waits for that."""
    return (
        staged.end <= partition.staging.committed_end
        and staged.answered_at <= partition.journal.log.committed_end
    )


def answered_count(partition: Partition, key: TransactionKey) -> int:
    """How many messages belong to a transaction or a staging here because it has answered them."""
    return sum(len(offsets) for _, offsets in answered_offsets(partition, key))


def answered_offsets(partition: Partition, key: TransactionKey) -> Iterator[tuple[int, BitMap64]]:
    """Numbers of groups, and messages that a transaction or a staging has answered for them."""
    for delivery in partition.machine.groups.values():
        for one in delivery.leases.claims.get(key, ()):
            yield delivery.group, one.offsets


def _ended(staged: Staged, key: TransactionKey, *, is_commit: bool) -> StagingsEnded:
    return StagingsEnded(0, *key, is_commit, runs_of((staged,)) if is_commit else ())


def drop(partition: Partition, key: TransactionKey, now: Now) -> None:
    """Let go of what a transaction has here that no coordinator knows: it was never decided, and never will be."""
    _end(partition, key, now, is_commit=False)


def _end(
    partition: Partition,
    key: TransactionKey,
    now: Now,
    *notes: PartitionRecord,
    is_commit: bool,
) -> None:
    """Record the end of a transaction here with all that its answers come to: one batch, so all of it or nothing."""
    staged = partition.machine.stagings.open.get(key, _NOTHING)
    ended = _ended(staged, key, is_commit=is_commit)
    record_ends(partition, (*notes, ended), ((key, is_commit),), now)


def record_ends(
    partition: Partition,
    notes: Iterable[PartitionRecord],
    ends: Iterable[tuple[TransactionKey, bool]],
    now: Now,
) -> None:
    """Record notes and, in the same batch, what the answers of transactions come to: which, and whether it commits."""
    machine = partition.machine
    records = [*notes]
    failing = failing_of(partition, now)
    touched: dict[int, Delivery] = {}
    aborted: set[TransactionKey] = set()
    for key, is_commit in ends:
        staged = machine.stagings.open.get(key, _NOTHING)
        for group in sorted(staged.groups & machine.groups.keys()):
            delivery = touched[group] = machine.groups[group]
            if is_commit:
                records.extend(_noted(machine, delivery, key))
            ended = claims.end(delivery, key, failing, is_commit=is_commit, aborted=aborted)
            letters = sum(isinstance(one, Buried) and one.sequence >= 0 for one in ended)
            failing = replace(failing, next_sequence=failing.next_sequence + letters)
            records.extend(ended)
        if not is_commit:
            aborted.add(key)
    partition.record(records, now)
    for delivery in touched.values():
        keep_order(partition, delivery, now)


def _noted(
    machine: PartitionMachine, delivery: Delivery, key: TransactionKey
) -> Iterator[CommitNoted]:
    """The text that a client's commit came with, if it is another one than the last."""
    committed = delivery.commits.get(key)
    note = None if committed is None else committed.note
    if note is not None and machine.notes.get(delivery.group) != note:
        yield CommitNoted(delivery.group, note)


def publish_stagings(partition: Partition, stagings: Sequence[Staging], now: Now) -> None:
    """Append batches of the staging log to the messages, in this order, bodies unchanged.

    DamagedBatch: those before it are there. NoSpace: some are, and in this order.
    """
    for some in in_pieces(stagings, attrgetter("length"), bytes_max=_BYTES_AT_ONCE):
        batches: list[Encoded] = []
        damage: Damaged | None = None
        try:
            for one in _read(partition, some):
                batches.append(one)  # noqa: PERF402 - One that cannot be read leaves those before it.
        except Damaged as error:
            damage = error.fresh()
        for origin, group in groupby(batches, key=attrgetter("head.origin")):
            if origin is Origin.DELAY:
                for one in group:
                    partition.schedule_staged(one, now)
            else:
                partition.append_staged([*group], now)
        if damage is not None:
            raise damage.fresh()


def _read(partition: Partition, stagings: Sequence[Staging]) -> Iterator[Encoded]:
    """Batches of the staging log as they are published, in this order; what lies together there is read in one go."""
    log = partition.staging.log
    assert log is not None, "there is a staging, so there is a log"
    wanted = {one.offset: one for one in stagings}
    found: dict[int, Encoded] = {}
    for first in stagings:
        if first.offset not in found:
            size, following = 0, wanted.get(first.offset)
            while following is not None:
                size += following.length
                following = wanted.get(following.offset + following.message_count)
            run, position = log.read(first.offset, bytes_max=size), 0
            for head in run.heads:
                offset = first.offset if position == 0 else head.base_offset
                found[offset] = _as_published(
                    run.data[position : position + head.length], head, offset
                )
                position += head.length
        yield found.pop(first.offset)


def _as_published(batch: memoryview, stored: Head, offset: int) -> Encoded:
    """Returns a staged batch to publish. Its origin is the place in the staging log; there are no idempotency keys."""
    encoded = dense(batch, stored)
    head = with_origin(encoded.head, stored.epoch, offset)
    return Encoded(head, encoded.body, has_idempotency_keys=False)


def require_durable_delays(partition: Partition, staged: Iterable[Staged]) -> None:
    """Let delayed messages of these fire when they are due. DelaysUnsynced: a power cut, here or on a follower, could
    take them.

    The record that ends a transaction says that all of it was published, so they have to be durable before it is
    written: the kernel writes the pages of two logs in any order.
    """
    if not partition.machine.has_delay_log:
        return
    end = max((one.delays_end for one in staged), default=0)
    if partition.delayed.committed_end < end:
        raise DelaysUnsynced
    partition.machine.delays.release(end)
    partition.changes.touched[partition, 0] = None


def conclusions(
    coordinator: Coordinator,
    arrived: set[int],
    find: Callable[[Decision], Partition | None],
) -> Iterator[TransactionConcluded]:
    """Records for the decisions that are applied everywhere once these letters have arrived."""
    producers = {
        one.producer_id: one
        for sequence in arrived
        if (one := coordinator.waits_for(sequence)) is not None
    }
    for producer in producers.values():
        if producer.letters <= arrived:
            places = tuple(places_of(producer, find)) if producer.state.is_commit else ()
            yield TransactionConcluded(0, producer.producer_id, producer.number, places)


def places_of(producer: Producer, find: Callable[[Decision], Partition | None]) -> Iterable[Place]:
    """Where the messages of a transaction are, as the partitions that published them know it."""
    for topic_id, number in producer.participants:
        letter = Decision(0, producer.producer_id, producer.number, topic_id, number, True, 0)
        partition = find(letter)
        ended = None
        if partition is not None:
            ended = partition.machine.stagings.ended.get(producer.producer_id)
        if ended is not None and ended.number == producer.number:
            yield from ((topic_id, number, first, count) for first, count in ended.runs)
