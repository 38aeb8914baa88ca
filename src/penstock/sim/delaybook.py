"""What must be true of delayed messages: never early, never twice, none lost; cancelled or fired, not both.

Facts come from three logs, and what follows from them is worked out anew whenever somebody asks: so a crash that takes
the end of one of them needs nothing but to take its facts back.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from ..broker.partition import Partition
from ..codec import Head, batches_in, decode_messages
from ..codec.decode import open_body
from ..codec.delays import delay_keys, due_times
from ..delivery.delay_records import DelayCancelled, DelayMoved
from ..delivery.offsets import each_offset
from ..model import Message
from .scene import Scene
from .violation import Checker, Violation


class Fate(Enum):
    PENDING = "pending"
    FIRED = "fired"
    CANCELLED = "cancelled"
    REPLACED = "replaced"


@dataclass(slots=True)
class Entry:
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
    entries: dict[int, Entry] = field(default_factory=dict)
    by_key: dict[bytes, list[int]] = field(default_factory=dict)
    end: int = 0
    promised: int = 0
    # What the last crash took from the delay log, and of that, by value, what had fired and stayed.
    lost: dict[int, Entry] = field(default_factory=dict)
    outlived: dict[bytes, Entry] = field(default_factory=dict)
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

    def read(self, partition: Partition, scene: Scene) -> int:
        """Take over what is new in the delay log; returns how many."""
        before = self.end
        for head, batch in _batches(partition, self.end):
            body = open_body(batch, head)
            keys = delay_keys(body) or [None] * body.count
            messages = decode_messages(batch, head)
            for message, due_ns, key in zip(messages, due_times(body).tolist(), keys, strict=True):
                self._add(message, due_ns, key, head.append_time, scene)
        return self.end - before

    def _add(
        self, message: Message, due_ns: int, key: bytes | None, append_time: int, scene: Scene
    ) -> None:
        value = message.value or b""
        if message.offset != self.end:
            raise Violation(Checker.DENSE, f"{self.name}: delay {message.offset} after {self.end}")
        if value not in scene.values:
            raise Violation(Checker.NO_PHANTOM, f"{self.name}: nobody delays {value!r} now")
        known = [*self.entries.items(), *((-1, one) for one in self.outlived.values())]
        for identity, entry in known:
            if entry.value == value and append_time - entry.append_time <= self.window_ns:
                story = f"{self.name}: {value!r} is delayed twice, {identity} and {self.end}"
                raise Violation(Checker.NO_DUP, story)
        self.entries[self.end] = Entry(value, due_ns, key, append_time)
        if key is not None:
            self.by_key.setdefault(key, []).append(self.end)
        self.end += 1

    def fired(self, identity: int, offset: int, message: Message, scene: Scene) -> None:
        """A message log says that this delay is over."""
        entry = self.entries.get(identity)
        if entry is None and identity in self.lost:
            # It fired in the very event that the crash came in.
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
        # In the event that the crash came in, it may have fired at a time that is known to nobody any more.
        due_ns = min(entry.due_ns, self.undone.get(identity, entry.due_ns))
        if due_ns > scene.moment.wall_ns:
            early_ns = due_ns - scene.moment.wall_ns
            raise Violation(Checker.DELAY, f"{self.name}: {identity} fires {early_ns} ns early")
        entry.fired_at = offset

    def apply(self, record: DelayCancelled | DelayMoved) -> Callable[[], object]:
        """A record of the journal; returns what takes it back."""
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
            # The first to be taken back is the last that was in force.
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
            self._let_go_below(partition.delayed.start_offset)

    def _let_go_below(self, start: int) -> None:
        """The disk had said that what fired was safe, so the delay log was cut; then it was not, and both are gone."""
        gone = [one for one, entry in self.entries.items() if one < start and entry.fired_at < 0]
        for identity in gone:
            entry = self.entries.pop(identity)
            if entry.key is not None:
                self.by_key[entry.key].remove(identity)

    def compare(self, partition: Partition) -> None:
        """What waits here waits there, until the same time."""
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


def _batches(partition: Partition, offset: int) -> Iterator[tuple[Head, memoryview]]:
    log = partition.delayed.log
    while log is not None and offset < log.end_offset:
        run = log.read(offset, bytes_max=1 << 20)
        yield from batches_in(run.data, seed=log.seed)
        offset = run.next_offset
