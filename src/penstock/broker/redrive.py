"""Looking at dead letters and sending them back: to their topic, or only to the group that failed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import msgspec

from ..codec import encode_messages
from ..errors import NoSpace, PartitionFaulty, Refused, TooLarge
from ..model import Message
from .forwarding import can_reopen
from .letters import REDRIVE_GROUP, DeadLetter, letters_in, message_at
from .outbox import Edit, Redrive
from .partition import Now, Partition
from .partitioner import partition_of
from .records import Redriven

LETTERS_A_CALL = 10_000
# The edits of letters on their way rest in snapshots, so their sum is bounded: the rest waits for another call.
_EDIT_BYTES_MAX = 1 << 20
_PENDING_EDIT_BYTES_MAX = 4 << 20
_RECORDS_A_BATCH = 1000


class Target(Enum):
    """Who gets a redriven dead letter."""

    TOPIC = "topic"
    GROUP = "group"


class GroupBy(Enum):
    """What dead letters are counted by."""

    REASON = "reason"
    ERROR = "error"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead letters are meant: all, or those for which every condition that is given holds."""

    is_all: bool = False
    reason: str | None = None
    group: str | None = None
    error: str | None = None
    offsets: frozenset[tuple[int, int]] | None = None
    before_ns: int | None = None
    after_ns: int | None = None

    def __post_init__(self) -> None:
        conditions = (self.reason, self.group, self.error, self.offsets)
        times = (self.before_ns, self.after_ns)
        if not self.is_all and all(one is None for one in (*conditions, *times)):
            raise Refused("say which dead letters: a filter, or all of them")

    def start_in(self, partition: Partition) -> int:
        """The first offset of a partition that can be meant."""
        if self.offsets is None:
            return 0
        mine = (offset for number, offset in self.offsets if number == partition.number)
        return min(mine, default=partition.messages.end_offset)

    def takes(self, letter: DeadLetter) -> bool:
        story, place = letter.provenance, (letter.partition, letter.offset)
        return (
            (self.reason is None or story.dlq_reason == self.reason)
            and (self.group is None or story.group == self.group)
            and (self.error is None or story.last_error == self.error)
            and (self.offsets is None or place in self.offsets)
            and (self.before_ns is None or story.dlq_timestamp < self.before_ns)
            and (self.after_ns is None or story.dlq_timestamp > self.after_ns)
        )


ALL = Selection(is_all=True)


@dataclass(frozen=True, slots=True)
class LetterCount:
    """How many dead letters share a reason, an error or a consumer, and when the first and last of them died."""

    value: str
    count: int
    first_ns: int
    last_ns: int


class Page(NamedTuple):
    """Some dead letters, and where the next ones begin; None: these were the last."""

    letters: list[DeadLetter]
    cursor: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which letters to send back, to whom, and what to change in them."""

    selection: Selection
    target: Target = Target.TOPIC
    edit: Edit | None = None
    limit: int = LETTERS_A_CALL
    is_dry_run: bool = False


@dataclass(slots=True)
class RedriveAnswer:
    """How many letters were meant, how many are on their way, and why others cannot go: (partition, offset, reason).

    `places` are those that can go, (partition, offset) each, as a dry run finds them.
    """

    matched: int = 0
    redriven: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)
    failed: list[tuple[int, int, str]] = field(default_factory=list)


def browse(
    partitions: Sequence[Partition],
    selection: Selection,
    *,
    limit: int,
    cursor: tuple[int, int] = (0, 0),
) -> Page:
    """Dead letters partition by partition, oldest first."""
    found: list[DeadLetter] = []
    for letter in _from(partitions, cursor):
        if not selection.takes(letter):
            continue
        if len(found) == limit:
            return Page(found, (letter.partition, letter.offset))
        found.append(letter)
    return Page(found, None)


def _from(partitions: Sequence[Partition], cursor: tuple[int, int]) -> Iterator[DeadLetter]:
    first, offset = cursor
    for partition in partitions[first:]:
        yield from letters_in(partition, offset if partition.number == first else 0)


def count_by(
    partitions: Sequence[Partition], selection: Selection, by: GroupBy
) -> list[LetterCount]:
    """The most frequent first."""
    counts: dict[str, LetterCount] = {}
    for letter in _from(partitions, (0, 0)):
        if selection.takes(letter):
            value, died_ns = _value_of(letter, by), letter.provenance.dlq_timestamp
            known = counts.get(value, LetterCount(value, 0, died_ns, died_ns))
            counts[value] = LetterCount(
                value,
                known.count + 1,
                min(known.first_ns, died_ns),
                max(known.last_ns, died_ns),
            )
    return sorted(counts.values(), key=lambda one: (-one.count, one.value))


def _value_of(letter: DeadLetter, by: GroupBy) -> str:
    story = letter.provenance
    match by:
        case GroupBy.REASON:
            return story.dlq_reason
        case GroupBy.ERROR:
            return story.last_error
        case GroupBy.CONSUMER:
            return story.last_consumer


Originals = Callable[[str], Sequence[Partition]]
"""The partitions of a topic; NotFound if it is gone."""


def redrive(
    partitions: Sequence[Partition], originals: Originals, order: Order, now: Now
) -> RedriveAnswer:
    """Record for each letter that it goes back; from then on it is not listed. `forwarding` takes it there, once."""
    for partition in partitions:
        _check(partition, order)
    answer = RedriveAnswer()
    for partition in partitions:
        letters: list[Redrive] = []
        for letter in letters_in(partition, order.selection.start_in(partition)):
            if answer.matched >= order.limit:
                break
            if not order.selection.takes(letter):
                continue
            answer.matched += 1
            targets = originals(letter.provenance.original_topic)
            back = _way_back(letter, targets, order)
            if reason := _obstacle(targets, back, now):
                answer.failed.append((letter.partition, letter.offset, reason))
            else:
                letters.append(back)
        if order.is_dry_run:
            answer.redriven += len(letters)
            answer.places += [(partition.number, one.offset) for one in letters]
        else:
            _record(partition, _within_edit_bytes(partition, letters), answer, now)
    return answer


def _check(partition: Partition, order: Order) -> None:
    edit = order.edit
    if order.limit < 1:
        raise Refused(f"limit must be above 0, got {order.limit}")
    if edit is None:
        return
    if order.target is Target.GROUP:
        raise Refused("a group gets its old message once more, which cannot be edited")
    if edit.size > _EDIT_BYTES_MAX:
        raise TooLarge("edit in bytes", found=edit.size, limit=_EDIT_BYTES_MAX)
    message = Message(edit.value, edit.key, edit.headers or ())
    encode_messages([message], limits=partition.limits)


def _way_back(letter: DeadLetter, originals: Sequence[Partition], order: Order) -> Redrive:
    """Where a letter goes. Without another key a message goes back to the partition that it came from."""
    story, edit = letter.provenance, order.edit
    number, group = story.original_partition, ""
    if order.target is Target.GROUP:
        group = story.group
    elif edit is not None and edit.is_key_set and edit.key is not None:
        number = partition_of(edit.key, len(originals))
    topic, offset = story.original_topic, story.original_offset
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


def _record(
    partition: Partition, letters: Sequence[Redrive], answer: RedriveAnswer, now: Now
) -> None:
    """A full disk is an error only if nothing is on its way yet; else the rest counts as failed."""
    for first in range(0, len(letters), _RECORDS_A_BATCH):
        piece = letters[first : first + _RECORDS_A_BATCH]
        try:
            _record_some(partition, piece, now)
        except NoSpace as error:
            if not answer.redriven:
                raise
            rest = letters[first:]
            answer.failed += [(partition.number, one.offset, str(error)) for one in rest]
            return
        answer.redriven += len(piece)


def _record_some(partition: Partition, letters: Sequence[Redrive], now: Now) -> None:
    group = partition.open_group(REDRIVE_GROUP, partition.messages.start_offset, now).group
    sequence = partition.machine.outbox.next_sequence
    partition.record(
        [
            Redriven(group, msgspec.structs.replace(letter, sequence=sequence + place))
            for place, letter in enumerate(letters)
        ],
        now,
    )
