"""What a partition holds for transactions: stagings, whose answers there are, and how the last of each producer ended.

A staging is a batch in the staging log. It is known by the head of that batch, and, once it is published, by the head
of the batch among the messages, so that neither is journaled.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyroaring import BitMap64

from ..codec import Head
from ..errors import TransactionEnded
from .commit_records import NamedStagingsEnded
from .records import StagedTransaction, StagingRecord, StagingsCovered, StagingsEnded

# Of producers whose last transaction is remembered, oldest forgotten first. A coordinator asks for the last of each
# only until it has heard of it.
_ENDED_MAX = 10_000
_PER_RECORD = 1000
# Stagings of named commits that ended here, oldest forgotten first. Those that a start finds again after that are
# unknown to their coordinator, and dropped.
_NAMED_ENDED_MAX = 10_000
NAMED_NUMBER = 1


class Staging(NamedTuple):
    """A batch in the staging log."""

    offset: int
    message_count: int
    length: int


class TransactionKey(NamedTuple):
    """Which transaction: numbers of a producer's grow by one."""

    producer_id: int
    number: int


@dataclass(slots=True)
class Staged:
    """What one open transaction has here."""

    stagings: dict[int, Staging] = field(default_factory=dict)
    # Of those that are among the messages already: their offset there; the complement of that in the delay log if they
    # went there. Only between a decision and its end.
    published: dict[int, int] = field(default_factory=dict)
    # Groups of which it holds answers or offsets; what they are is in their deliveries.
    groups: set[int] = field(default_factory=set)
    # How far the state log has to be durable for these; soft, because what a start finds is durable.
    answered_at: int = 0

    @property
    def message_count(self) -> int:
        return sum([one.message_count for one in self.stagings.values()])

    @property
    def end(self) -> int:
        """The first offset behind the last staging."""
        last = max(self.stagings, default=None)
        return 0 if last is None else last + self.stagings[last].message_count

    @property
    def delays_end(self) -> int:
        """The first id behind the last delayed message that was scheduled."""
        return max(
            (
                ~base + self.stagings[offset].message_count
                for offset, base in self.published.items()
                if base < 0
            ),
            default=0,
        )

    def unpublished(self) -> list[Staging]:
        return [
            one for offset, one in sorted(self.stagings.items()) if offset not in self.published
        ]


def runs_of(some: Iterable[Staged]) -> tuple[tuple[int, int], ...]:
    """Where published messages are, in the order of the log; what follows each other is one run.

    Delayed ones have no place among the messages yet.
    """
    places = [
        (base, one.stagings[offset].message_count)
        for one in some
        for offset, base in one.published.items()
        if base >= 0
    ]
    found: list[tuple[int, int]] = []
    for base, count in sorted(places):
        if found and sum(found[-1]) == base:
            found[-1] = found[-1][0], found[-1][1] + count
        else:
            found.append((base, count))
    return tuple(found)


class Stagings:
    """The machine. `staged` and `published` take what the logs show, `apply` takes journal records."""

    def __init__(self) -> None:
        self.open: dict[TransactionKey, Staged] = {}
        self.ended: OrderedDict[int, StagingsEnded] = OrderedDict()
        # How the last commit of each name ended here, by the name's id; and ids of stagings of names that are over.
        self.names_ended: OrderedDict[int, NamedStagingsEnded] = OrderedDict()
        self._named_over: OrderedDict[int, None] = OrderedDict()
        # Offsets in the staging log that are needed.
        self.live = BitMap64()
        self.bytes = 0
        self.covered = 0
        self.count_from_here()

    def count_from_here(self) -> None:
        """Count anew how many messages were published, and how many were dropped."""
        self.published_count = self.dropped_count = 0

    def is_over(self, key: TransactionKey) -> bool:
        """Whether this transaction ended here; a later one of its producer says so, too."""
        last = self.ended.get(key.producer_id)
        is_known = last is not None and last.number >= key.number
        return is_known or key.producer_id in self._named_over

    def require_open(self, head: Head) -> None:
        """TransactionEnded: what is staged now would never be published."""
        if self.is_over(TransactionKey(head.producer_id, head.transaction_id)):
            raise TransactionEnded(head.producer_id, "over", "this partition has recorded its end")

    def staged(self, head: Head) -> None:
        """Take note of a batch of the staging log."""
        key = TransactionKey(head.producer_id, head.transaction_id)
        self.covered = head.next_offset
        if head.message_count and not self.is_over(key):
            self._add(key, Staging(head.base_offset, head.message_count, head.length))

    def _of(self, key: TransactionKey) -> Staged:
        """What an open transaction has here, from now on if there was nothing."""
        found = self.open.get(key)
        if found is None:
            found = self.open[key] = Staged()
        return found

    def _add(self, key: TransactionKey, staging: Staging) -> None:
        self._of(key).stagings[staging.offset] = staging
        self.live.add_range(staging.offset, staging.offset + staging.message_count)
        self.bytes += staging.length

    def published(self, head: Head) -> None:
        """Take note of a batch among the messages that was a staging; after a start it comes before the staging."""
        key = TransactionKey(head.producer_id, head.transaction_id)
        if not self.is_over(key):
            self._of(key).published[head.origin_sequence] = head.base_offset

    def scheduled(self, head: Head) -> None:
        """Take note of a batch of the delay log that was a staging; as `published`."""
        key = TransactionKey(head.producer_id, head.transaction_id)
        if not self.is_over(key):
            self._of(key).published[head.origin_sequence] = ~head.base_offset

    def answered(self, key: TransactionKey, group: int) -> None:
        """Take note of an answer, or of offsets, that a transaction holds of a group."""
        self._of(key).groups.add(group)

    def apply(self, record: StagingRecord | NamedStagingsEnded) -> None:
        _APPLY[type(record)](self, record)

    def _ended(self, record: StagingsEnded) -> None:
        self.ended[record.producer_id] = record
        self.ended.move_to_end(record.producer_id)
        if len(self.ended) > _ENDED_MAX:
            self.ended.popitem(last=False)
        key = TransactionKey(record.producer_id, record.number)
        self._remove(key, is_published=record.is_commit)

    def _remove(self, key: TransactionKey, *, is_published: bool) -> None:
        over = self.open.pop(key, None)
        if over is None:
            return
        if is_published:
            self.published_count += over.message_count
        else:
            self.dropped_count += over.message_count
        for staging in over.stagings.values():
            self.live.remove_range(staging.offset, staging.offset + staging.message_count)
            self.bytes -= staging.length

    def _named_ended(self, record: NamedStagingsEnded) -> None:
        if record.sequence >= 0:
            # Which stagings they were is of no use later.
            kept = NamedStagingsEnded(0, record.name_id, record.sequence, (), (), record.runs)
            self.names_ended[record.name_id] = kept
            self.names_ended.move_to_end(record.name_id)
            if len(self.names_ended) > _ENDED_MAX:
                self.names_ended.popitem(last=False)
        for some, is_published in ((record.published, True), (record.dropped, False)):
            for staging_id in some:
                self._remove(TransactionKey(staging_id, NAMED_NUMBER), is_published=is_published)
                self._named_over[staging_id] = None
        while len(self._named_over) > _NAMED_ENDED_MAX:
            self._named_over.popitem(last=False)

    def _covered(self, record: StagingsCovered) -> None:
        self.covered = record.offset

    def _image(self, record: StagedTransaction) -> None:
        key = TransactionKey(record.producer_id, record.number)
        for one in record.stagings:
            self._add(key, Staging(*one))
        self._of(key).published.update(record.published)

    def snapshot(self) -> Iterator[StagingRecord | NamedStagingsEnded]:
        if self.covered:
            yield StagingsCovered(0, self.covered)
        yield from self.ended.values()
        yield from self.names_ended.values()
        for key, one in self.open.items():
            published = tuple(one.published.items())
            stagings = [(*staging,) for staging in one.stagings.values()]
            for first in range(0, max(1, len(stagings)), _PER_RECORD):
                some = stagings[first : first + _PER_RECORD]
                yield StagedTransaction(0, *key, tuple(some), published)
                published = ()


_APPLY: dict[type, Callable[[Stagings, Any], None]] = {
    StagingsEnded: Stagings._ended,
    StagingsCovered: Stagings._covered,
    NamedStagingsEnded: Stagings._named_ended,
    StagedTransaction: Stagings._image,
}
