"""Dead letters: browsed, counted, and sent back to their topic or only to the group that failed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from pyroaring import BitMap64

from ...api.bounds import PAGE_BYTES_MAX
from ...api.command import Command
from ...api.dead_letters import (
    BrowseDeadLetters,
    CountDeadLetters,
    DeadLetter,
    DeadLetterCount,
    DeadLetterPage,
    DiscardDeadLetters,
    DiscardReply,
    GroupBy,
    RedriveDeadLetters,
    RedriveReply,
    Selection,
    Target,
    first_line,
)
from ...codec import encode_messages
from ...config import LimitsConfig
from ...delivery.offsets import runs_of
from ...delivery.records import AckedLate
from ...errors import NoSpace, PartitionFaulty, Refused, TooLarge
from ...model import Message, content_bytes
from ..partition import Now, Partition
from ..partition.changes import Handler
from ..partition.dead_letters import (
    REDRIVE_GROUP,
    dead_letter_topic,
    dead_letters_in,
    is_listed,
    message_at,
)
from ..partition.forwarding import can_reopen
from ..partition.outbox import Redrive
from ..partition.partitioner import partition_of
from ..partition.records import Redriven
from ..walks import Slices, is_open, partitions_in

if TYPE_CHECKING:
    from ..node import Node

# The edits of letters on their way rest in snapshots, so their sum is bounded: the rest waits for another call.
_EDIT_BYTES_MAX = 1 << 20
_PENDING_EDIT_BYTES_MAX = 4 << 20
# So many letters are recorded at once: about a millisecond.
_LETTERS_A_BATCH = 50


def browse(node: "Node", command: BrowseDeadLetters, _now: Now) -> Slices[DeadLetterPage]:
    page: list[DeadLetter] = []
    size = 0
    first, offset = command.cursor
    for partition in partitions_in(node, _dead_letter_topic(node, command.topic)):
        if partition.number < first:
            yield 1
            continue
        start = offset if partition.number == first else 0
        for letter in dead_letters_in(partition, start):
            if letter is not None and command.selection.takes(letter):
                message = letter.message
                size += content_bytes(message.key, message.value, message.headers)
                if len(page) == command.limit or (page and size > PAGE_BYTES_MAX):
                    return DeadLetterPage(page, (letter.partition, letter.offset))
                page.append(letter)
            yield 1
            if not is_open(node, partition):
                break
    return DeadLetterPage(page)


def count(node: "Node", command: CountDeadLetters, _now: Now) -> Slices[list[DeadLetterCount]]:
    counts: dict[str, DeadLetterCount] = {}
    for partition in partitions_in(node, _dead_letter_topic(node, command.topic)):
        for letter in dead_letters_in(partition):
            if letter is not None and command.selection.takes(letter):
                _add(counts, _value_of(letter, command.by), letter.provenance.dlq_timestamp)
            yield 1
            if not is_open(node, partition):
                break
    return sorted(counts.values(), key=lambda count: (-count.count, count.value))


def _add(counts: dict[str, DeadLetterCount], value: str, died_ns: int) -> None:
    known = counts.get(value, DeadLetterCount(value, 0, died_ns, died_ns))
    counts[value] = DeadLetterCount(
        value, known.count + 1, min(known.first_ns, died_ns), max(known.last_ns, died_ns)
    )


def _value_of(letter: DeadLetter, by: GroupBy) -> str:
    match by:
        case GroupBy.REASON:
            return letter.provenance.dlq_reason
        case GroupBy.ERROR:
            return first_line(letter.provenance.last_error)
        case GroupBy.CONSUMER:
            return letter.provenance.last_consumer


def redrive(node: "Node", command: RedriveDeadLetters, now: Now) -> Slices[RedriveReply]:
    topics = _dead_letter_topic(node, command.topic)
    if topics:
        _check(command, node.limits)
    redriving = _Redriving(command)
    for partition in partitions_in(node, topics):
        for letter in _selected(partition, command.selection):
            if redriving.matched >= command.limit:
                break
            if letter is not None:
                redriving.add(node, letter, now)
            if len(redriving.ready) >= _LETTERS_A_BATCH:
                redriving.record(partition, now)
            now = yield 1
            if not is_open(node, partition):
                redriving.ready.clear()
                break
        redriving.record(partition, now)
    return redriving.reply()


class _Redriving:
    """What a redrive has done so far. Letters that were looked at are recorded a batch at a time."""

    def __init__(self, command: RedriveDeadLetters) -> None:
        self._command = command
        self.matched = self._redriven = 0
        self.ready: list[Redrive] = []
        self._failed: list[tuple[int, int, str]] = []
        self._places: list[tuple[int, int]] = []

    def add(self, node: "Node", letter: DeadLetter, now: Now) -> None:
        self.matched += 1
        targets = node.topic(letter.provenance.original_topic).partitions
        back = _way_back(letter, targets, self._command)
        if reason := _obstacle(targets, back, now):
            self._failed.append((letter.partition, letter.offset, reason))
        else:
            self.ready.append(back)

    def record(self, partition: Partition, now: Now) -> None:
        """Record for each letter that it goes back; from then on it is not listed. `forwarding` takes it there, once.

        A letter that another command has redriven since it was looked at is left to that one.
        """
        letters = [letter for letter in self.ready if is_listed(partition, letter.offset)]
        self.matched -= len(self.ready) - len(letters)
        self.ready.clear()
        if self._command.is_dry_run:
            self._redriven += len(letters)
            self._places += [(partition.number, letter.offset) for letter in letters]
        elif letters := _within_edit_bytes(partition, letters):
            try:
                _record(partition, letters, now)
            except NoSpace as error:
                # An error only while nothing is on its way yet; else the rest counts as failed.
                if not self._redriven:
                    raise
                self._failed += [
                    (partition.number, letter.offset, str(error)) for letter in letters
                ]
            else:
                self._redriven += len(letters)

    def reply(self) -> RedriveReply:
        return RedriveReply(self.matched, self._redriven, self._failed, self._places)


def discard(node: "Node", command: DiscardDeadLetters, now: Now) -> Slices[DiscardReply]:
    """Finish letters for the group that lists them. No outbox takes them anywhere."""
    if command.limit < 1:
        raise Refused(f"limit must be above 0, got {command.limit}")
    matched = discarded = 0
    for partition in partitions_in(node, _dead_letter_topic(node, command.topic)):
        offsets: list[int] = []
        for letter in _selected(partition, command.selection):
            if matched >= command.limit:
                break
            if letter is not None:
                offsets.append(letter.offset)
                matched += 1
            if len(offsets) >= _LETTERS_A_BATCH:
                discarded += _discarded(partition, command, offsets, now)
                offsets.clear()
            now = yield 1
            if not is_open(node, partition):
                offsets.clear()
                break
        discarded += _discarded(partition, command, offsets, now)
    return DiscardReply(matched, discarded)


def _discarded(
    partition: Partition, command: DiscardDeadLetters, offsets: Sequence[int], now: Now
) -> int:
    """How many of these letters are finished now, and were not redriven before."""
    listed = BitMap64(offset for offset in offsets if is_listed(partition, offset))
    if command.is_dry_run or not listed:
        return 0
    partition.record([AckedLate(_listing_group(partition, now), runs_of(listed))], now)
    return len(listed)


def _dead_letter_topic(node: "Node", topic: str) -> list[str]:
    """The dead-letter topic of a topic, if there is one. NotFound: there is no such topic."""
    node.topic(topic)
    name = dead_letter_topic(topic)
    return [name] if name in node.open else []


def _check(command: RedriveDeadLetters, limits: LimitsConfig) -> None:
    edit = command.edit
    if command.limit < 1:
        raise Refused(f"limit must be above 0, got {command.limit}")
    if edit is None:
        return
    if command.target is Target.GROUP:
        raise Refused("a group gets its old message once more, which cannot be edited")
    if edit.size > _EDIT_BYTES_MAX:
        raise TooLarge("edit in bytes", found=edit.size, limit=_EDIT_BYTES_MAX)
    encode_messages([Message(edit.value, edit.key, edit.headers or ())], limits=limits)


def _selected(partition: Partition, selection: Selection) -> Iterator[DeadLetter | None]:
    """For each offset its dead letter, if it is one that is meant."""
    start = 0
    if selection.offsets is not None:
        own = (offset for number, offset in selection.offsets if number == partition.number)
        start = min(own, default=int(partition.messages.end_offset))
    return (
        letter if letter is not None and selection.takes(letter) else None
        for letter in dead_letters_in(partition, start)
    )


def _way_back(
    letter: DeadLetter, originals: Sequence[Partition], command: RedriveDeadLetters
) -> Redrive:
    """Where a letter goes. Without another key a message goes back to the partition that it came from."""
    died, edit = letter.provenance, command.edit
    number, group = died.original_partition, ""
    if command.target is Target.GROUP:
        group = died.group
    elif edit is not None and edit.is_key_set and edit.key is not None:
        number = partition_of(edit.key, len(originals))
    topic, offset = died.original_topic, died.original_offset
    return Redrive(0, letter.offset, topic, number, group, offset, edit)


def _obstacle(targets: Sequence[Partition], letter: Redrive, now: Now) -> str:
    """Why a letter cannot go; empty if it can. A topic takes every message, a group only what it can get."""
    try:
        destination = targets[letter.partition]
    except PartitionFaulty as error:
        return str(error)
    if not letter.group:
        return ""
    if not can_reopen(destination, letter):
        return "the message or the group is gone, or the group has not finished it"
    expires_at = message_at(destination, letter.original_offset).expires_at
    if expires_at is not None and expires_at <= now.wall_ns:
        return "its time to live is over, so the group would not get it"
    return ""


def _within_edit_bytes(partition: Partition, letters: list[Redrive]) -> list[Redrive]:
    if not letters or letters[0].edit is None:
        return letters
    room = _PENDING_EDIT_BYTES_MAX - partition.machine.outbox.edit_bytes()
    return letters[: max(0, room // max(1, letters[0].edit.size))]


def _listing_group(partition: Partition, now: Now) -> int:
    """The number of the group whose unfinished messages are the dead letters that are listed."""
    return partition.open_group(REDRIVE_GROUP, partition.messages.start_offset, now).group


def _record(partition: Partition, letters: Sequence[Redrive], now: Now) -> None:
    group = _listing_group(partition, now)
    sequence = partition.machine.outbox.next_sequence
    partition.record(
        [
            Redriven(group, msgspec.structs.replace(letter, sequence=sequence + place))
            for place, letter in enumerate(letters)
        ],
        now,
    )


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    BrowseDeadLetters: browse,
    CountDeadLetters: count,
    RedriveDeadLetters: redrive,
    DiscardDeadLetters: discard,
}
