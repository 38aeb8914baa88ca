"""What must be true of delayed messages: never early, never twice, none lost; cancelled or fired, not both.

Facts come from three logs, and each question works its answer out from them anew. So after a crash that takes the end
of a log the book only takes back the facts of that end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from ..broker.partition import Partition
from ..codec import decode_messages
from ..codec.decode import delay_keys, due_times, open_body
from ..delivery.delay_records import DelayCancelled, DelayMoved
from ..delivery.offsets import each_offset
from ..model import Message
from .event import Event
from .violation import Checker, Violation


class Fate(Enum):
    PENDING = "pending"
    FIRED = "fired"
    CANCELLED = "cancelled"
    REPLACED = "replaced"


@dataclass(slots=True)
class DelayEntry:
    """A message of the delay log. `fired_at` is its offset among the messages, -1 while it has none."""

    value: bytes
    due_ns: int
    key: bytes | None
    append_time: int
    fired_at: int = -1
    is_cancelled: bool = False


@dataclass(slots=True)
class DelayBook:
    """The delayed messages of one partition, under the name that reports use."""

    name: str
    window_ns: int
    entries: dict[int, DelayEntry] = field(default_factory=dict)
    by_key: dict[bytes, list[int]] = field(default_factory=dict)
    end: int = 0
    promised: int = 0
    # Entries that the last crash took from the delay log; and of those, by value, the ones that had fired and stayed.
    lost: dict[int, DelayEntry] = field(default_factory=dict)
    outlived: dict[bytes, DelayEntry] = field(default_factory=dict)
    # Times to which delays had been moved when a crash took the records of it, until everything is compared.
    undone: dict[int, int] = field(default_factory=dict)

    def fate(self, identity: int) -> Fate:
        entry = self.entries[identity]
        if entry.fired_at >= 0:
            return Fate.FIRED
        if entry.is_cancelled:
            return Fate.CANCELLED
        is_last = entry.key is None or self.by_key[entry.key][-1] == identity
        return Fate.PENDING if is_last else Fate.REPLACED

    def pending(self) -> dict[int, int]:
        """Due times by id."""
        return {
            identity: entry.due_ns
            for identity, entry in self.entries.items()
            if self.fate(identity) is Fate.PENDING
        }

    def read(
        self,
        partition: Partition,
        event: Event,
        committed: Callable[[tuple[int, int], bytes], None],
    ) -> int:
        """Read new messages of the delay log. Returns how many there were.

        `committed` is called with the transaction and the value of those that a commit has scheduled.
        """
        before = self.end
        for head, batch in partition.delayed.batches_from(self.end):
            body = open_body(batch, head)
            keys = delay_keys(body) or [None] * body.count
            messages = decode_messages(batch, head)
            for message, due_ns, key in zip(messages, due_times(body).tolist(), keys, strict=True):
                value = message.value or b""
                if head.transaction_id:
                    committed((head.producer_id, head.transaction_id), value)
                elif value not in event.values:
                    story = f"{self.name}: no client delays {value!r} now"
                    raise Violation(Checker.NO_PHANTOM, story)
                self._add(message, due_ns, key, head.append_time)
        return self.end - before

    def _add(self, message: Message, due_ns: int, key: bytes | None, append_time: int) -> None:
        value = message.value or b""
        if message.offset != self.end:
            raise Violation(Checker.DENSE, f"{self.name}: delay {message.offset} after {self.end}")
        known = [*self.entries.items(), *((-1, one) for one in self.outlived.values())]
        for identity, entry in known:
            if entry.value == value and append_time - entry.append_time <= self.window_ns:
                story = f"{self.name}: {value!r} is delayed twice, {identity} and {self.end}"
                raise Violation(Checker.NO_DUP, story)
        self.entries[self.end] = DelayEntry(value, due_ns, key, append_time)
        if key is not None:
            self.by_key.setdefault(key, []).append(self.end)
        self.end += 1

    def fired(self, identity: int, offset: int, message: Message, event: Event) -> None:
        """Take note that a message log holds this delayed message. Violation: it may not fire, or not yet."""
        entry = self.entries.get(identity)
        if entry is None and identity in self.lost:
            # It fired in the event that the crash interrupted.
            entry = self.lost[identity]
            entry.fired_at = offset
            self.outlived[entry.value] = entry
            return
        if entry is None or entry.value != message.value:
            story = f"{self.name}: {message.value!r} was never delayed as {identity}"
            raise Violation(Checker.DELAY, story)
        fate = self.fate(identity)
        if fate is not Fate.PENDING:
            story = f"{self.name}: delay {identity} is {fate.value}, and fires ({offset})"
            raise Violation(Checker.DELAY, story)
        # In the event that the crash interrupted it may have fired at a due time whose record is lost.
        due_ns = min(entry.due_ns, self.undone.get(identity, entry.due_ns))
        if due_ns > event.time.wall_ns:
            early_ns = due_ns - event.time.wall_ns
            raise Violation(Checker.DELAY, f"{self.name}: {identity} fires {early_ns} ns early")
        entry.fired_at = offset

    def apply(self, record: DelayCancelled | DelayMoved) -> Callable[[], object]:
        """Apply a record of the journal. Returns a call that takes it back."""
        entry = self.entries.get(record.id)
        if entry is None or self.fate(record.id) is not Fate.PENDING:
            fate = "unknown" if entry is None else self.fate(record.id).value
            story = f"{self.name}: delay {record.id} is {fate}: {record}"
            raise Violation(Checker.DELAY, story)
        if isinstance(record, DelayCancelled):
            entry.is_cancelled = True
            return lambda: setattr(entry, "is_cancelled", False)
        before, entry.due_ns = entry.due_ns, record.due_ns

        def take_back() -> None:
            entry.due_ns = before
            # Records are taken back newest first, so the first one held the due time in force.
            self.undone.setdefault(record.id, record.due_ns)

        return take_back

    def cut_back(self, partition: Partition, *, is_forgiven: bool) -> None:
        """Forget what a crash took from the messages and from the delay log."""
        end, messages_end = partition.delayed.end_offset, partition.messages.end_offset
        if end < self.promised and not is_forgiven:
            story = f"{self.name}: delays end at {end}, {self.promised} were promised"
            raise Violation(Checker.NO_ACKED_LOSS, story)
        self.promised = min(self.promised, end)
        self.lost = {one: self.entries.pop(one) for one in [*self.entries] if one >= end}
        for identity, entry in self.lost.items():
            if entry.key is not None:
                self.by_key[entry.key].remove(identity)
            if entry.fired_at >= 0:
                self.outlived[entry.value] = entry
        outlived = [one for one in self.outlived.values() if one.fired_at < messages_end]
        self.outlived = {one.value: one for one in outlived}
        self.end = min(self.end, end)
        for entry in self.entries.values():
            if entry.fired_at >= messages_end:
                entry.fired_at = -1
        if is_forgiven:
            # The disk had called fired messages durable, so the delay log was cut; then it lost the messages.
            start = partition.delayed.start_offset
            unfired = [one for one, entry in self.entries.items() if entry.fired_at < 0]
            for identity in [one for one in unfired if one < start]:
                entry = self.entries.pop(identity)
                if entry.key is not None:
                    self.by_key[entry.key].remove(identity)

    def compare(self, partition: Partition) -> None:
        """Violation: the node has other pending delays, or other due times."""
        self.undone.clear()
        delays = partition.machine.delays
        found = {one: delays.dues.of(one) for one in each_offset(delays.pending)}
        expected = self.pending()
        if found != expected:
            odd = {one: (found.get(one), expected.get(one)) for one in found.keys() ^ expected}
            story = f"{self.name}: {len(found)} delays wait, not {len(expected)}: {odd}"
            raise Violation(Checker.DELAY, story)

    def overdue(self, wall_ns: int) -> list[int]:
        return [one for one, due_ns in self.pending().items() if due_ns <= wall_ns]
