"""Dead letters: browsed, counted, and sent back to their topic or only to the group that failed."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from pyroaring import BitMap64

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
from ...model import Message
from ..partition import Now, Partition
from ..partition.changes import Handler
from ..partition.dead_letters import REDRIVE_GROUP, dead_letter_topic, dead_letters_in, message_at
from ..partition.forwarding import can_reopen
from ..partition.outbox import Redrive
from ..partition.partitioner import partition_of
from ..partition.records import Redriven
from ..partition.slots import Partitions

if TYPE_CHECKING:
    from ..node import Node

# The edits of letters on their way rest in snapshots, so their sum is bounded: the rest waits for another call.
_EDIT_BYTES_MAX = 1 << 20
_PENDING_EDIT_BYTES_MAX = 4 << 20
_RECORDS_A_BATCH = 1000


def browse(node: "Node", command: BrowseDeadLetters, _now: Now) -> DeadLetterPage:
    found: list[DeadLetter] = []
    first, offset = command.cursor
    for partition in _partitions(node, command.topic)[first:]:
        start = offset if partition.number == first else 0
        for letter in dead_letters_in(partition, start):
            if not command.selection.takes(letter):
                continue
            if len(found) == command.limit:
                return DeadLetterPage(found, (letter.partition, letter.offset))
            found.append(letter)
    return DeadLetterPage(found)


def count(node: "Node", command: CountDeadLetters, _now: Now) -> list[DeadLetterCount]:
    counts: dict[str, DeadLetterCount] = {}
    for partition in _partitions(node, command.topic):
        for letter in filter(command.selection.takes, dead_letters_in(partition)):
            value, died_ns = _value_of(letter, command.by), letter.provenance.dlq_timestamp
            known = counts.get(value, DeadLetterCount(value, 0, died_ns, died_ns))
            counts[value] = DeadLetterCount(
                value,
                known.count + 1,
                min(known.first_ns, died_ns),
                max(known.last_ns, died_ns),
            )
    return sorted(counts.values(), key=lambda one: (-one.count, one.value))


def _value_of(letter: DeadLetter, by: GroupBy) -> str:
    match by:
        case GroupBy.REASON:
            return letter.provenance.dlq_reason
        case GroupBy.ERROR:
            return first_line(letter.provenance.last_error)
        case GroupBy.CONSUMER:
            return letter.provenance.last_consumer


def redrive(node: "Node", command: RedriveDeadLetters, now: Now) -> RedriveReply:
    """Record for each letter that it goes back; from then on it is not listed. `forwarding` takes it there, once."""
    partitions = _partitions(node, command.topic)
    if not partitions:
        return RedriveReply()
    _check(command, node.limits)
    matched = redriven = 0
    failed: list[tuple[int, int, str]] = []
    places: list[tuple[int, int]] = []
    for partition in partitions:
        letters: list[Redrive] = []
        for letter in islice(_selected(partition, command.selection), command.limit - matched):
            matched += 1
            targets = node.topic(letter.provenance.original_topic).partitions
            back = _way_back(letter, targets, command)
            if reason := _obstacle(targets, back, now):
                failed.append((letter.partition, letter.offset, reason))
            else:
                letters.append(back)
        if command.is_dry_run:
            redriven += len(letters)
            places += [(partition.number, one.offset) for one in letters]
            continue
        letters = _within_edit_bytes(partition, letters)
        for first in range(0, len(letters), _RECORDS_A_BATCH):
            some = letters[first : first + _RECORDS_A_BATCH]
            try:
                _record(partition, some, now)
            except NoSpace as error:
                # An error only while nothing is on its way yet; else the rest counts as failed.
                if not redriven:
                    raise
                failed += [(partition.number, one.offset, str(error)) for one in letters[first:]]
                break
            redriven += len(some)
    return RedriveReply(matched, redriven, failed, places)


def discard(node: "Node", command: DiscardDeadLetters, now: Now) -> DiscardReply:
    """Finish letters for the group that lists them. No outbox takes them anywhere."""
    if command.limit < 1:
        raise Refused(f"limit must be above 0, got {command.limit}")
    matched = discarded = 0
    for partition in _partitions(node, command.topic):
        letters = islice(_selected(partition, command.selection), command.limit - matched)
        offsets = BitMap64(one.offset for one in letters)
        matched += len(offsets)
        if offsets and not command.is_dry_run:
            partition.record([AckedLate(_listing_group(partition, now), runs_of(offsets))], now)
            discarded += len(offsets)
    return DiscardReply(matched, discarded)


def _partitions(node: "Node", topic: str) -> Partitions:
    """The partitions of the dead-letter topic of a topic, which may have none. NotFound: there is no such topic."""
    node.topic(topic)
    found = node.open.get(dead_letter_topic(topic))
    return Partitions() if found is None else found.partitions


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


def _selected(partition: Partition, selection: Selection) -> Iterator[DeadLetter]:
    start = 0
    if selection.offsets is not None:
        own = (offset for number, offset in selection.offsets if number == partition.number)
        start = min(own, default=int(partition.messages.end_offset))
    return filter(selection.takes, dead_letters_in(partition, start))


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
