"""The search for journeys: by key, header, trace id, time, group and status. A page reads so many bytes at most."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from ..api.journeys import (
    JourneyPage,
    JourneyRow,
    JourneyStatus,
    ListJourneys,
    SearchJourneys,
)
from ..codec import Origin, batches_in
from ..codec.body import Column
from ..codec.decode import message_columns, offsets_of, open_body
from ..codec.head import BODY_BYTES_MAX, Head
from ..errors import Damaged, DamagedBatch, NotFound, Refused, Unavailable
from ..journeys.story import Story, status_of
from ..journeys.traces import TRACEPARENT, parse_traceparent
from ..log.lookup import offset_at
from ..model import Headers, MessageColumns
from .journeys import describe, while_there
from .partition import Partition
from .partition.history import Told
from .partition.start import visible_end
from .partition.stories import MessageFacts, standings_of, tell_many
from .walks import Slices, is_open, names_covered, partitions_in

if TYPE_CHECKING:
    from .node import Node

_READ_BYTES = 1 << 18
# To look at the keys of so many costs about as much as one event.
_MESSAGES_AN_ENTRY = 100
# Stories that one page tells, of messages that the search may leave out afterwards, and events of those: a message has
# some of each group.
_STORIES_A_PAGE, _EVENTS_A_PAGE = 1000, 100_000
# Stories that are read together, fewer if they are long; and the first, of which nothing is known.
_STORIES_AT_ONCE, _EVENTS_AT_ONCE = 100, 10_000
_STORIES_FIRST = 4
_CURSOR_CHARACTERS_MAX = 300


class _Place(NamedTuple):
    """Where a search goes on."""

    topic: str
    partition: int
    offset: int

    def text(self) -> str:
        return f"{self.partition}-{self.offset}-{self.topic}"


def _place_in(cursor: str) -> _Place:
    partition, _, rest = cursor.partition("-")
    offset, _, topic = rest.partition("-")
    numbers = (partition, offset)
    is_ours = all(one.isascii() and one.isdecimal() and len(one) < 19 for one in numbers) and topic
    if not is_ours or len(cursor) > _CURSOR_CHARACTERS_MAX:
        raise Refused("cursor is not one of ours", field="cursor")
    return _Place(topic, int(partition), int(offset))


class _Search:
    """One page of a search: what it found, and what it may still do."""

    def __init__(self, command: SearchJourneys) -> None:
        self.asked = command
        self.rows: list[JourneyRow] = []
        self.scanned = 0
        self.stories_left, self._events_left = _STORIES_A_PAGE, _EVENTS_A_PAGE
        self._at_once = _STORIES_FIRST

    @property
    def is_full(self) -> bool:
        return (
            len(self.rows) >= self.asked.limit
            or self.scanned >= self.asked.bytes_max
            or self.stories_left <= 0
            or self._events_left <= 0
        )

    def in_partition(self, node: "Node", partition: Partition, offset: int) -> Told[int | None]:
        """Search a partition from an offset on. Returns where to go on; None: it is done."""
        log, end_ns = partition.messages, self.asked.end_ns
        end = visible_end(log)
        offset = max(offset, log.start_offset)
        if self.asked.start_ns is not None:
            offset = max(offset, offset_at(log, self.asked.start_ns))
        while offset < end:
            if self.is_full:
                return offset
            room = min(_READ_BYTES, max(1, self.asked.bytes_max - self.scanned))
            try:
                run = log.read(offset, bytes_max=room)
            except DamagedBatch as damage:
                offset = damage.next_offset or log.end_offset
                continue
            yield 1
            for head, batch in batches_in(run.data, seed=log.seed, is_verified=True):
                if head.base_offset >= end or (end_ns is not None and head.append_time >= end_ns):
                    return None
                self.scanned += head.length
                wanted = yield from self._wanted(head, batch)
                wanted = [number for number in wanted if number >= offset]
                stopped = yield from self._add(node, partition, wanted)
                if stopped is not None:
                    return stopped
                offset = head.next_offset
            offset = max(offset, log.start_offset)
        return None

    def _wanted(self, head: Head, batch: memoryview) -> Told[list[int]]:
        """The offsets of a batch whose key and headers are those that are asked for."""
        asked = self.asked
        if not head.message_count:
            return []
        body = open_body(batch, head, size_max=BODY_BYTES_MAX)
        if asked.key is not None and Column.KEYS not in body.blobs:
            return []
        is_header_asked = asked.header is not None or asked.trace_id is not None
        if is_header_asked and not body.header_count:
            return []
        if asked.key is None and not is_header_asked:
            return [*offsets_of(body, head)]
        columns = message_columns(body, head)
        if asked.key is not None and asked.key not in columns.keys:
            return []
        wanted: list[int] = []
        for row, offset in enumerate(columns.offsets):
            if self._is_wanted(columns, row):
                wanted.append(offset)
            if row % _MESSAGES_AN_ENTRY == 0:
                yield 1
        return wanted

    def _is_wanted(self, columns: MessageColumns, row: int) -> bool:
        asked, headers = self.asked, columns.headers[row]
        if asked.key is not None and columns.keys[row] != asked.key:
            return False
        if asked.header is not None and not _has_header(headers, *asked.header):
            return False
        return asked.trace_id is None or _is_of_trace(headers, asked.trace_id)

    def _add(self, node: "Node", partition: Partition, offsets: list[int]) -> Told[int | None]:
        """Tell the stories of these, as many as the page has room for. Returns the first that it had no room for."""
        first = 0
        while first < len(offsets):
            some = offsets[first : first + self._at_once]
            first += len(some)
            stories = yield from tell_many(partition, some)
            for offset, (facts, story) in stories.items():
                if self.is_full:
                    return offset
                self.stories_left -= 1
                self._events_left -= _looked_at(partition, story)
                row = yield from row_of(node, partition, facts, story)
                if self._is_shown(row, story):
                    self.rows.append(row)
            self._at_once = _at_once_after(partition, stories)
        return None

    def _is_shown(self, row: JourneyRow, story: Story) -> bool:
        asked = self.asked
        if asked.group is not None and asked.group not in story.groups:
            return False
        return asked.status is None or row.status is asked.status


def _has_header(headers: Headers, name: str, value: bytes | None) -> bool:
    return any(one == name and value in (None, found) for one, found in headers)


def _is_of_trace(headers: Headers, trace_id: str) -> bool:
    for name, value in headers:
        if name == TRACEPARENT and (parent := parse_traceparent(value)) is not None:
            return parent.trace_id == trace_id
    return False


def search(node: "Node", command: SearchJourneys) -> Slices[JourneyPage]:
    """One page. Faulty partitions are left out, and those that go meanwhile."""
    page = _Search(command)
    start = None if command.cursor is None else _place_in(command.cursor)
    names = yield from names_covered(node, command)
    for partition in _partitions(node, command, names, start):
        is_first = start is not None and (partition.topic, partition.number) == start[:2]
        where = _Place(partition.topic, partition.number, start.offset if start and is_first else 0)
        if page.is_full:
            return JourneyPage(page.rows, page.scanned, where.text())
        yield 1
        goes_on = None
        with suppress(NotFound, Unavailable):
            telling = page.in_partition(node, partition, where.offset)
            goes_on = yield from while_there(node, partition.topic, telling)
        if goes_on is not None:
            cursor = where._replace(offset=goes_on).text()
            return JourneyPage(page.rows, page.scanned, cursor)
    return JourneyPage(page.rows, page.scanned)


def _partitions(
    node: "Node", command: SearchJourneys, names: Sequence[str], start: _Place | None
) -> Iterator[Partition]:
    """The partitions to search, in the order of their names, from that of the cursor on."""
    if command.topic is not None:
        names = [node.topic(command.topic).facts.name]
    if command.topic is not None and command.partition is not None:
        node.partition(command.topic, command.partition)
    for partition in partitions_in(node, sorted(names)):
        is_asked = command.partition in (None, partition.number)
        if is_asked and (start is None or (partition.topic, partition.number) >= start[:2]):
            yield partition


def latest(node: "Node", command: ListJourneys) -> Slices[JourneyPage]:
    """The journeys of the messages that were published last. What goes meanwhile is left out."""
    rows: list[JourneyRow] = []
    chosen = yield from _latest_messages(node, command)
    left = _EVENTS_A_PAGE
    for partition, offsets in chosen.items():
        if is_open(node, partition) and left > 0:
            with suppress(NotFound, Unavailable):
                telling = _rows_of(node, partition, offsets, left)
                some, left = yield from while_there(node, partition.topic, telling)
                rows += some
    rows.sort(key=lambda row: row.start_ns, reverse=True)
    return JourneyPage(rows, 0)


def _latest_messages(node: "Node", command: ListJourneys) -> Slices[dict[Partition, list[int]]]:
    """The offsets of the messages that were appended last, by partition."""
    # Of each partition the time of its last batch that is not chosen yet, and where that ends.
    heads: list[tuple[int, str, int, int]] = []
    by_place: dict[tuple[str, int], Partition] = {}
    names = yield from names_covered(node, command)
    for partition in partitions_in(node, sorted(names)):
        log = partition.messages
        if (end := visible_end(log)) > log.start_offset:
            by_place[partition.topic, partition.number] = partition
            heads.append((-log.append_time, partition.topic, partition.number, end))
        yield 1
    heapify(heads)
    chosen: dict[Partition, list[int]] = {}
    left = max(0, command.limit)
    while heads and left > 0:
        yield 1
        _, topic, number, end = heappop(heads)
        partition = by_place[topic, number]
        log = partition.messages
        if not is_open(node, partition) or end <= log.start_offset:
            continue
        with suppress(Damaged):
            base = max(log.head_at(end - 1).base_offset, log.start_offset, end - left)
            chosen.setdefault(partition, []).extend(range(base, end))
            left -= end - base
            if base > log.start_offset:
                heappush(heads, (-log.head_at(base - 1).append_time, topic, number, base))
    return chosen


def _rows_of(
    node: "Node", partition: Partition, offsets: list[int], events_left: int
) -> Told[tuple[list[JourneyRow], int]]:
    """The rows of messages, the latest first; of as many as have so many events, and how many are left."""
    rows: list[JourneyRow] = []
    at_once, end = _STORIES_FIRST, len(offsets)
    while end > 0 and events_left > 0:
        first = max(0, end - at_once)
        stories = yield from tell_many(partition, offsets[first:end])
        for facts, story in stories.values():
            row = yield from row_of(node, partition, facts, story)
            rows.append(row)
            events_left -= _looked_at(partition, story)
        at_once, end = _at_once_after(partition, stories), first
    return rows, events_left


def _looked_at(partition: Partition, story: Story) -> int:
    """The events of a message, and the groups that have had it or will: each is asked how it stands."""
    return len(story.spans) + len(partition.machine.numbers)


def _at_once_after(partition: Partition, stories: Mapping[int, tuple[MessageFacts, Story]]) -> int:
    """How many stories are read together after these: fewer if they were long."""
    longest = max((_looked_at(partition, story) for _, story in stories.values()), default=1)
    return min(max(1, _EVENTS_AT_ONCE // max(1, longest)), _STORIES_AT_ONCE)


def row_of(
    node: "Node", partition: Partition, facts: MessageFacts, story: Story
) -> Told[JourneyRow]:
    """A story in one line. A dead letter, or what was made of one, is shown with the whole journey that it is of."""
    offset = story.place.offset
    if facts.head is not None and facts.head.origin is Origin.OUTBOX:
        whole = yield from describe(node, partition.topic, partition.number, offset)
        return JourneyRow(
            whole.trace_id,
            partition.topic,
            partition.number,
            offset,
            whole.start_ns,
            whole.end_ns,
            whole.status,
            len(whole.spans),
        )
    standings = yield from standings_of(partition, offset, story)
    status: JourneyStatus = status_of(standings)
    spans = story.spans
    return JourneyRow(
        story.trace_id,
        partition.topic,
        partition.number,
        offset,
        story.start_ns,
        spans[-1].at_ns if spans else 0,
        status,
        len(spans),
    )
