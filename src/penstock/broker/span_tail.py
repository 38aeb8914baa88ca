"""Tells a tracing system of sampled messages: what is new in the logs of partitions, a bounded part at a time.

Messages are read before the records about them. Only those whose publish was told are followed, so what the records
name is compared with one set.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap64

from ..api.journeys import EventType
from ..api.spans import SpanPage, SpanPart, SpanPosition, TailSpans
from ..codec import Origin, batches_in
from ..codec.body import Body
from ..codec.decode import message_columns, offsets_of, open_body
from ..codec.head import BODY_BYTES_MAX, Head
from ..delivery.offsets import each_offset
from ..errors import Damaged, DamagedBatch, MalformedBatch
from ..journeys.traces import (
    LOW_FACTOR,
    TRACEPARENT,
    TraceParent,
    TracePlace,
    parse_traceparent,
    trace_id_of,
)
from .journeys import beginning_of
from .partition import Partition
from .partition.history import Entry, Gap, add_keys, told_at_once
from .partition.journey_events import events_of, group_names
from .partition.rows import ids_of
from .partition.stories import facts_of, trace_id_in
from .walks import Slices, partitions_in

if TYPE_CHECKING:
    from .node import Node

# What one command tells, and reads, at most: the driver's lock is held meanwhile.
_PARTS_MAX = 500
_READ_BYTES = 1 << 20
# Further behind, an exporter goes on at the end: its traces would be of no use, and it would never catch up.
_LAG_MESSAGES_MAX = 1_000_000


class _Page:
    """One page while it is made."""

    def __init__(self, node: "Node", command: TailSpans) -> None:
        self.node, self.bound = node, command.bound
        self.parts: list[SpanPart] = []
        self.bytes_left = _READ_BYTES
        self.skipped = 0

    @property
    def is_full(self) -> bool:
        return len(self.parts) >= _PARTS_MAX or self.bytes_left <= 0

    def tell(self, partition: Partition, position: SpanPosition) -> SpanPosition:
        """Tell what is behind a position, as much as there is room for."""
        log, state = partition.messages, partition.journal.log
        behind = log.end_offset - position.message_offset
        if behind > _LAG_MESSAGES_MAX:
            self.skipped += behind
            position = SpanPosition(log.end_offset, state.end_offset, position.followed)
        followed = position.followed | BitMap64()
        first = len(self.parts)
        message_offset = self._messages(partition, max(position.message_offset, log.start_offset))
        for part in self.parts[first:]:
            followed.add(part.offset)
        state_offset = max(position.state_offset, state.start_offset)
        if message_offset >= log.end_offset:
            state_offset = self._records(partition, state_offset, followed)
        return SpanPosition(message_offset, state_offset, followed)

    def _messages(self, partition: Partition, offset: int) -> int:
        """Add the publishes of sampled messages from an offset on. Returns where to go on."""
        log = partition.messages
        while offset < log.end_offset and not self.is_full:
            try:
                run = log.read(offset, bytes_max=self.bytes_left)
                for head, batch in batches_in(run.data, seed=log.seed, is_verified=True):
                    self.bytes_left -= head.length
                    for one, trace_id, parent in self._sampled(partition, head, batch):
                        if one < offset:
                            continue
                        if len(self.parts) >= _PARTS_MAX:
                            return one
                        self.parts.append(
                            SpanPart(
                                partition.topic,
                                partition.identity,
                                one,
                                EventType.PERSISTED,
                                head.append_time,
                                trace_id,
                                parent,
                            )
                        )
                    offset = head.next_offset
            except DamagedBatch as damage:
                offset = damage.next_offset or log.end_offset
            except (Damaged, MalformedBatch):
                return log.end_offset
        return offset

    def _sampled(
        self, partition: Partition, head: Head, batch: memoryview
    ) -> Iterator[tuple[int, str, str]]:
        """The messages of a batch that are sampled: offset, trace id, and the span in which each was sent."""
        if not head.message_count:
            return
        body = open_body(batch, head, size_max=BODY_BYTES_MAX)
        if head.origin in (Origin.OUTBOX, Origin.DELAY):
            yield from self._carried(partition, head, body)
            return
        own = dict(_traces_of(body, head)) if body.header_count else {}
        offsets = np.asarray(offsets_of(body, head), dtype=np.uint64)
        if self.bound < 1 << 64:
            # The last 64 bits of a derived trace id are those of this product.
            offsets = offsets[offsets * np.uint64(LOW_FACTOR) < np.uint64(self.bound)]
        derived = {int(one) for one in offsets if one not in own}
        for offset in sorted({*derived, *own}):
            if offset in derived:
                yield offset, trace_id_of(TracePlace(*partition.identity, offset)), ""
            elif own[offset].is_sampled:
                yield offset, own[offset].trace_id, own[offset].span_id

    def _carried(
        self, partition: Partition, head: Head, body: Body
    ) -> Iterator[tuple[int, str, str]]:
        """Messages that were delayed, dead letters and redriven ones: each is of the trace that it began with."""
        own = dict(_traces_of(body, head)) if body.header_count else {}
        delayed = ids_of(body, head)
        for offset in offsets_of(body, head):
            if offset in own:
                if own[offset].is_sampled:
                    yield offset, own[offset].trace_id, own[offset].span_id
                continue
            if offset in delayed:
                place = TracePlace(*partition.identity, delayed[offset], is_delayed=True)
                trace_id = trace_id_of(place)
            else:
                source, first = told_at_once(beginning_of(self.node, partition, offset))
                trace_id = trace_id_in(source, first, facts_of(source, first))
            if int(trace_id[16:], 16) < self.bound:
                yield offset, trace_id, ""

    def _records(self, partition: Partition, offset: int, followed: BitMap64) -> int:
        """Add what the records say of messages that are followed. Returns where to go on."""
        end = partition.journal.log.end_offset
        for found in partition.history.batches(offset, end):
            if isinstance(found, Gap):
                offset = found.end
                continue
            head, records = found
            self.bytes_left -= head.length
            for number, record in enumerate(records):
                keys = BitMap64()
                add_keys(record, keys)
                keys &= followed
                if not keys:
                    continue
                name = told_at_once(group_names(partition, {record.group}))[record.group]
                entry = Entry(head.base_offset + number, head.append_time, record, records)
                for one in each_offset(keys):
                    self.parts.extend(
                        SpanPart(
                            partition.topic,
                            partition.identity,
                            one,
                            event.kind,
                            event.at_ns,
                            group=event.group,
                            consumer=event.consumer,
                            lease=event.lease,
                            error=event.error,
                        )
                        for event in events_of(entry, one, name)
                    )
            offset = head.next_offset
            if self.is_full:
                break
        return offset


def _traces_of(body: Body, head: Head) -> Iterator[tuple[int, TraceParent]]:
    columns = message_columns(body, head)
    for offset, headers in zip(columns.offsets, columns.headers, strict=True):
        for name, value in headers:
            if name == TRACEPARENT and (parent := parse_traceparent(value)) is not None:
                yield offset, parent
                break


def _is_behind(partition: Partition, position: SpanPosition) -> bool:
    return (
        position.message_offset < partition.messages.end_offset
        or position.state_offset < partition.journal.log.end_offset
    )


def tail(node: "Node", command: TailSpans) -> Slices[SpanPage]:
    """One page. Faulty partitions are left out, and so are those that go meanwhile."""
    page = _Page(node, command)
    positions: dict[tuple[int, int], SpanPosition] = {}
    is_caught_up = True
    for partition in partitions_in(node, [*node.open]):
        log, state = partition.messages, partition.journal.log
        known = command.positions.get(partition.identity)
        if known is None and command.starts_at_end:
            known = SpanPosition(log.end_offset, state.end_offset, BitMap64())
        known = known or SpanPosition(0, 0, BitMap64())
        if not page.is_full and _is_behind(partition, known):
            known = page.tell(partition, known)
        positions[partition.identity] = known
        is_caught_up &= not _is_behind(partition, known)
        yield 1
    return SpanPage(page.parts, positions, is_caught_up, page.skipped)
