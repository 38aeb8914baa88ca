"""Carries letters from the outbox of one partition to where they belong, one step at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from typing import cast

from pyroaring import BitMap64

from ...codec import Marks, Origin
from ...codec.columns import columns_of
from ...config import LimitsConfig
from ...delivery.commands import reopen
from ...delivery.image import in_pieces
from ...errors import Damaged, NotFound, PartitionFaulty
from ...model import Message
from .dead_letters import REDRIVE_GROUP, as_dead_letter, as_redriven, index_of
from .named_staging import apply_named_decision, named_conclusions
from .outbox import DECISIONS, Burial, Channel, Decision, Letter, NamedDecision, Redrive, Sent
from .partition import Now, Partition
from .publishing import encode_for, size_of
from .records import Arrived, Forwarded, PartitionRecord, Returned
from .staging import DelaysUnsynced, apply_decisions, conclusions

Resolve = Callable[[Letter], Partition | None]
"""The partition that a letter goes to; None if there is no such place any more. PartitionFaulty: not now."""

# A message was within its limits when it was published, and comes with a note about its death now. Nothing that is
# on its way may be refused.
NO_LIMITS = LimitsConfig(
    value_bytes_max=1 << 31,
    key_bytes_max=1 << 31,
    headers_bytes_max=1 << 31,
    batch_bytes_max=1 << 31,
)
# Bounds how long one step keeps the partitions busy, and the size of a batch.
_LETTERS_A_STEP = 1000
_BATCH_BYTES = 1 << 20


def step(source: Partition, resolve: Resolve, now: Now) -> bool:
    """Send letters whose intent is committed, and let go of those whose arrival is. True: something moved."""
    resolve = _remembering(resolve)
    records: list[PartitionRecord] = [*_arrived(source, resolve)]
    due = list(islice(_due(source), _LETTERS_A_STEP))
    has_moved = False
    for destination, letters in _by_destination(due, resolve).items():
        if isinstance(destination, PartitionFaulty):
            continue  # They stay in the outbox until the partition can take them.
        if destination is None:
            records.extend(_returned(source, letters))
        else:
            try:
                records.extend(_send(source, destination, letters, now))
            except (Damaged, DelaysUnsynced):
                # What a transaction staged there cannot be read, or what it delays is not durable: those behind it must
                # not arrive before it.
                continue
        has_moved = True
    done = {one.sequence for one in records if isinstance(one, Forwarded)}
    find = partial(_found, resolve)
    machine, ended = source.machine, source.changes.ended
    concluded = [*conclusions(machine.coordinator, done, find)]
    named = [*named_conclusions(machine.commit_names, done, find)]
    source.record((*records, *concluded, *named), now)
    ended.update(one.producer_id for one in concluded)
    ended.update(machine.commit_names.by_id[one.name_id].name for one in named)
    return has_moved or bool(records)  # What is concluded has a letter that was done.


def _due(source: Partition) -> Iterator[Letter]:
    """Letters that may leave: their intent is committed, so no consumer can lease them here any more.

    Durable here is not enough where others have these logs: one of them may lose its power, keep the letter and lose
    the intent, and lead. Intents from before the start are committed with all that the log had then.
    """
    outbox, log = source.machine.outbox, source.journal.log
    committed_end, begun_at = log.committed_end, log.reign_start
    for sequence, letter in outbox.pending.items():
        if outbox.recorded_at.get(sequence, begun_at) > committed_end:
            return
        if sequence not in outbox.sent:
            yield letter


def _by_destination(
    letters: Sequence[Letter], resolve: Resolve
) -> dict[Partition | PartitionFaulty | None, list[Letter]]:
    """The letters for each partition, in the order of their sequences."""
    found: dict[Partition | PartitionFaulty | None, list[Letter]] = {}
    for letter in letters:
        found.setdefault(_destination(letter, resolve), []).append(letter)
    return found


def _remembering(resolve: Resolve) -> Resolve:
    """Looks for the partition of many decisions once."""
    known: dict[tuple[int, int], Partition | None] = {}

    def find(letter: Letter) -> Partition | None:
        if not isinstance(letter, DECISIONS):
            return resolve(letter)
        place = letter.topic_id, letter.partition
        if place not in known:
            known[place] = resolve(letter)
        return known[place]

    return find


def _destination(letter: Letter, resolve: Resolve) -> Partition | PartitionFaulty | None:
    try:
        return resolve(letter)
    except PartitionFaulty as error:
        return error.fresh()


def _found(resolve: Resolve, letter: Decision | NamedDecision) -> Partition | None:
    """Where a letter went; None also for a partition that cannot be asked any more."""
    found = _destination(letter, resolve)
    return None if isinstance(found, PartitionFaulty) else found


def _channel_of(letter: Letter) -> Channel:
    is_record = isinstance(letter, DECISIONS) or (
        isinstance(letter, Redrive) and letter.group != ""
    )
    return Channel.STATE if is_record else Channel.MESSAGES


def _send(
    source: Partition, destination: Partition, letters: Sequence[Letter], now: Now
) -> list[PartitionRecord]:
    """Hand letters over, those that are there already excepted; records for those that cannot be."""
    where, outbox = source.identity.as_source, source.machine.outbox
    refused: list[Letter] = []
    for channel, group in groupby(letters, key=_channel_of):
        run = list(group)
        arrived = destination.machine.arrived[channel].get(where, 0)
        fresh = [letter for letter in run if letter.sequence > arrived]
        is_message = channel is Channel.MESSAGES
        places: dict[int, int] = {}
        try:
            if is_message:
                refused += _append(source, destination, fresh, places, now)
            else:
                refused += _take_effect(source, destination, fresh, now)
        finally:
            # Also if one of them could not be taken: those before it were.
            arrived = destination.machine.arrived[channel].get(where, 0)
            log = destination.messages if is_message else destination.journal.log
            sent = Sent(destination.identity, channel, log.end_offset)
            for one in run:
                if one.sequence <= arrived and one not in refused:
                    place = places.get(one.sequence)
                    outbox.sent[one.sequence] = (
                        sent if place is None else sent._replace(offset=place)
                    )
    return _returned(source, refused)


def _append(
    source: Partition,
    destination: Partition,
    letters: Sequence[Letter],
    places: dict[int, int],
    now: Now,
) -> list[Letter]:
    """Append letters as messages, and note their offsets in `places`. Returns the letters that are refused.

    A batch has the sequence of its last letter, so that it is appended whole or not at all.
    """
    refused: list[Letter] = []
    pairs = _with_messages(source, letters, refused)
    for piece in in_pieces(pairs, lambda pair: size_of(pair[1]), bytes_max=_BATCH_BYTES):
        marks = Marks(
            origin=Origin.OUTBOX,
            origin_source=source.identity.as_source,
            origin_sequence=piece[-1][0].sequence,
        )
        columns = columns_of([message for _, message in piece])
        encoded = encode_for(destination, columns, now, limits=NO_LIMITS, marks=marks)
        first = destination.messages.end_offset
        destination.append(encoded, now)
        places.update((letter.sequence, first + at) for at, (letter, _) in enumerate(piece))
    return refused


def _with_messages(
    source: Partition, letters: Sequence[Letter], refused: list[Letter]
) -> Iterator[tuple[Letter, Message]]:
    """Letters with their payload. A redriven one that cannot be read goes nowhere."""
    for letter in letters:
        if isinstance(letter, Burial):
            yield letter, as_dead_letter(source, letter)
            continue
        assert isinstance(letter, Redrive), "a decision goes as a record"
        try:
            yield letter, as_redriven(source, letter)
        except (Damaged, NotFound):
            refused.append(letter)


def _take_effect(
    source: Partition, destination: Partition, letters: Sequence[Letter], now: Now
) -> list[Letter]:
    """Record what letters ask for, in one batch with the note that they came. Returns the letters that are refused.

    A transaction ends here; or one group alone gets its old message once more.
    """
    refused: list[Letter] = []
    for kind, group in groupby(letters, key=type):
        if kind is Decision:
            apply_decisions(source, destination, cast("Iterable[Decision]", group), now)
        else:
            refused += _take_effect_each(source, destination, group, now)
    return refused


def _take_effect_each(
    source: Partition, destination: Partition, letters: Iterable[Letter], now: Now
) -> list[Letter]:
    refused: list[Letter] = []
    for letter in letters:
        if isinstance(letter, NamedDecision):
            apply_named_decision(source, destination, letter, now)
            continue
        assert isinstance(letter, Redrive), "a dead letter goes as a message"
        if not can_reopen(destination, letter):
            refused.append(letter)
            continue
        arrived = Arrived(0, source.identity.as_source, letter.sequence)
        offsets = BitMap64((letter.original_offset,))
        destination.record((arrived, *reopen(destination.group(letter.group), offsets)), now)
    return refused


def can_reopen(destination: Partition, letter: Redrive) -> bool:
    """Whether the message is still there, and the group is there and has finished it."""
    number = destination.machine.numbers.get(letter.group)
    offset, log = letter.original_offset, destination.messages
    if number is None or not log.start_offset <= offset < log.end_offset:
        return False
    if not destination.machine.groups[number].progress.is_finished(offset):
        return False
    return index_of(destination.cache.at(offset), offset) is not None


def _returned(source: Partition, letters: Sequence[Letter]) -> list[PartitionRecord]:
    """No partition can take these: they are dead letters again; and what a decision was about went with its topic."""
    return [
        Forwarded(0, letter.sequence)
        if isinstance(letter, DECISIONS)
        else Returned(source.machine.numbers[REDRIVE_GROUP], letter.sequence)
        for letter in letters
    ]


def _arrived(source: Partition, resolve: Resolve) -> list[Forwarded]:
    """Records for the letters that no power cut and no change of leader takes from their destination."""
    done: list[Forwarded] = []
    outbox = source.machine.outbox
    for sequence, sent in [*outbox.sent.items()]:
        letter = outbox.pending[sequence]
        destination = _destination(letter, resolve)
        if isinstance(destination, PartitionFaulty):
            continue
        if destination is None or destination.identity != sent.destination:
            del outbox.sent[
                sequence
            ]  # Taken by a topic that is gone: the one of today knows nothing of it.
            continue
        is_message = sent.channel is Channel.MESSAGES
        log = destination.messages if is_message else destination.journal.log
        if log.committed_end >= sent.committed_at:
            done.append(Forwarded(0, sequence, sent.offset))
    return done
