"""The delayed messages of one partition: which are pending, when they are due, and how the others ended.

The state follows from three logs. The delay log says what was scheduled (`scheduled`), the message log what fired
(`fired`), the journal what was cancelled or moved (`apply`). A restart reads one log after the other and gives the same
state: a message of the delay log is pending unless one of the other two logs says otherwise.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from pyroaring import BitMap64

from ..api.delays import DelayState
from .delay_records import (
    DelayCancelled,
    DelayedIds,
    DelayKeys,
    DelayKind,
    DelayMoved,
    DelayRecord,
    DelaysCovered,
    DelaysLost,
    PendingDelays,
)
from .due_times import DueTimes, Int64s, ids_in
from .image import in_pieces
from .offsets import each_offset, offsets_of, runs_in_pieces, runs_of
from .timing_wheel import TimingWheel

# Ids in a record of a snapshot: 8 KiB of due times.
_PIECE = 1024
_KEY_BYTES = 16
_KINDS = tuple(DelayKind)


class DelayEpoch(NamedTuple):
    """An epoch of the delay log, and the first id that was written in it."""

    first_id: int
    epoch: int


class Delays:
    """Only `scheduled`, `fired` and `apply` change it, except that `due` advances the wheel.

    The partition sets `epochs` and `end` as its delay log has them.
    """

    def __init__(self) -> None:
        self.epochs: list[DelayEpoch] = []
        self.end = 0
        self.covered = 0
        self.pending = BitMap64()
        self.finished: dict[DelayKind, BitMap64] = {kind: BitMap64() for kind in _KINDS}
        self.counts: dict[DelayKind, int] = dict.fromkeys(_KINDS, 0)
        self.by_key: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}
        # Due times in the journal of ids that are not yet read from the delay log.
        self.moved: dict[int, int] = {}
        # Ids of messages that could not be read when they were due. They stay pending until the next start.
        self.stuck = BitMap64()
        # Ids that are not in the wheel yet. Soft: what a start finds is durable, and held no longer.
        self.held = BitMap64()
        # The latest epoch of a record about an id that is not in the delay log, or -1.
        self.lost_epoch = -1
        self.dues = DueTimes()
        self.wheel = TimingWheel(self.dues.of_many)

    def follow(self, end: int, epochs: Iterable[DelayEpoch]) -> None:
        """Set the end and the epochs of the delay log."""
        self.end, self.epochs = end, list(epochs)

    # What happened.

    def scheduled(
        self,
        ids: Int64s,
        dues: Int64s,
        keys: Sequence[bytes | None] | None,
        *,
        is_held: bool = False,
    ) -> None:
        """Add messages that were written to the delay log, or are read from it again; ids in growing order.

        `is_held`: they are not due before they are released.
        """
        first, end = int(ids[0]), int(ids[-1]) + 1
        left, times = ids, dues
        if any(done.range_cardinality(first, end) for done in self.finished.values()) or self.moved:
            left, times = self._left(ids, dues)
        if len(left):
            if len(left) == end - first:
                self.pending.add_range(first, end)
            else:
                self.pending.update(left.tolist())
            self.dues.set_many(left, times)
            if is_held:
                self.held.update(left.tolist())
            else:
                self.wheel.insert(left, times)
        self.covered = end
        if keys is not None:
            for identity, key in zip(ids.tolist(), keys, strict=True):
                if key is not None:
                    self._name(identity, key)

    def _left(self, ids: Int64s, dues: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the ids that have not ended, with the due times of the journal."""
        pairs = [
            (identity, self.moved.pop(identity, due_ns))
            for identity, due_ns in zip(ids.tolist(), dues.tolist(), strict=True)
            if not any(identity in done for done in self.finished.values())
        ]
        return (
            np.array([identity for identity, _ in pairs], np.int64),
            np.array([due_ns for _, due_ns in pairs], np.int64),
        )

    def _name(self, identity: int, key: bytes) -> None:
        """Record the key of a message. It cancels the message before with this key, even if it has ended itself."""
        before = self.by_key.get(key)
        if before is not None:
            self._finish((before,), DelayKind.CANCELLED)
        if identity in self.pending:
            self.by_key[key], self._keys[identity] = identity, key

    def fired(self, ids: Sequence[int], epoch: int, expired: Sequence[int] = ()) -> None:
        """Finish the delays that a batch of the message log holds."""
        self._finish([one for one in expired if self._is_about(one, epoch)], DelayKind.EXPIRED)
        self._finish([one for one in ids if self._is_about(one, epoch)], DelayKind.DELIVERED)

    def _is_about(self, identity: int, epoch: int) -> bool:
        """Whether a record of `epoch` is about the message that the delay log has under this id now."""
        if identity >= self.end:
            self.lost_epoch = max(self.lost_epoch, epoch)
            return False
        for one in reversed(self.epochs):
            if one.first_id <= identity:
                return one.epoch <= epoch
        return False

    def is_lost(self, identity: int, epoch: int) -> bool:
        """Whether a crash took the message that a record of `epoch` is about."""
        is_known = self.epochs and identity >= self.epochs[0].first_id
        return identity >= self.end or bool(is_known and not self._is_about(identity, epoch))

    def apply(self, record: DelayRecord) -> None:
        _APPLY[type(record)](self, record)

    def _cancelled(self, record: DelayCancelled) -> None:
        if self._is_about(record.id, record.epoch):
            self._finish((record.id,), DelayKind.CANCELLED)

    def lost(self, ids: Sequence[int]) -> None:
        """Finish delays that are damaged in the delay log. Those that fired or were cancelled stay so."""
        self._finish(ids, DelayKind.LOST)

    def _lost(self, record: DelaysLost) -> None:
        lost = each_offset(offsets_of(record.runs))
        self.lost([one for one in lost if self._is_about(one, record.epoch)])

    def _finish(self, ids: Sequence[int], how: DelayKind) -> None:
        """Finish delays. One that has ended before stays as it is."""
        for identity in ids:
            if identity in self.pending:
                self._take_out(identity)
            elif any(identity in done for done in self.finished.values()):
                continue
            self.finished[how].add(identity)
            self.counts[how] += 1

    def _take_out(self, identity: int) -> None:
        self.wheel.remove(identity, self.dues.of(identity))
        self.pending.discard(identity)
        self.dues.forget((identity,))
        self.stuck.discard(identity)
        self.held.discard(identity)
        key = self._keys.pop(identity, None)
        if key is not None and self.by_key.get(key) == identity:
            del self.by_key[key]

    def _moved(self, record: DelayMoved) -> None:
        if not self._is_about(record.id, record.epoch):
            return
        if record.id >= self.covered:
            self.moved[record.id] = record.due_ns
        elif record.id in self.pending:
            self.wheel.remove(record.id, self.dues.of(record.id))
            self.dues.change(record.id, record.due_ns)
            self.stuck.discard(record.id)
            if record.id not in self.held:
                self.wheel.insert(np.array([record.id]), np.array([record.due_ns]))

    # Queries.

    def due(self, now_ns: int, limit: int) -> tuple[Int64s, Int64s]:
        """Returns ids that are due, earliest first, with their times."""
        self.wheel.advance(now_ns)
        return self.wheel.due(now_ns, limit)

    def due_before(self, time_ns: int, first: int, end: int) -> list[int]:
        """Returns pending ids from `first` to `end` that are due before a time, in growing order."""
        found = self.dues.before(time_ns, first, end).tolist()
        return [one for one in found if one in self.pending]

    def is_due_before(self, time_ns: int, identity: int) -> bool:
        """Whether an id is pending and due before a time."""
        return identity in self.pending and self.dues.of(identity) < time_ns

    def is_due(self, now_ns: int) -> bool:
        """Whether a message may be due."""
        next_ns = self.wheel.next_ns()
        return next_ns is not None and next_ns <= now_ns

    def next_ns(self) -> int | None:
        """Returns a wall time before which nothing is due, or None if nothing is pending."""
        return self.wheel.next_ns()

    def set_aside(self, ids: Iterable[int]) -> None:
        """Take ids that cannot be read out of the wheel. They stay pending."""
        for identity in ids:
            self.wheel.remove(identity, self.dues.of(identity))
            self.stuck.add(identity)

    def release(self, end: int) -> None:
        """Let ids below `end` that were held fire when they are due."""
        if self.held:
            ids = ids_in(self.held & BitMap64(range(end)))
            self.held.remove_range(0, end)
            self.wheel.insert(ids, self.dues.of_many(ids))

    def try_again(self) -> None:
        """Put ids that could not be read back into the wheel, because the topic's rule for damage has changed."""
        ids = ids_in(self.stuck)
        self.wheel.insert(ids, self.dues.of_many(ids))
        self.stuck = BitMap64()

    def state_of(self, identity: int) -> DelayState | None:
        """Returns the state of a delay, or None if there is no such id, or no longer."""
        if identity < 0:
            return None
        if identity in self.pending:
            return DelayState.PENDING
        for kind, done in self.finished.items():
            if identity in done:
                return DelayState[kind.name]
        return None

    def key_of(self, identity: int) -> bytes | None:
        return self._keys.get(identity)

    def forget_below(self, identity: int) -> None:
        """Forget everything below the first id of the delay log."""
        for one in each_offset(self.pending & BitMap64(range(identity))):
            self._take_out(one)
        for done in self.finished.values():
            done.remove_range(0, identity)

    # Snapshots.

    def snapshot(self) -> Iterator[DelayRecord]:
        if not self.covered:
            return
        yield DelaysCovered(0, self.covered, *(self.counts[kind] for kind in DelayKind))
        for kind, done in self.finished.items():
            for runs in runs_in_pieces(done):
                yield DelayedIds(0, kind, runs)
        ids = ids_in(self.pending)
        for start in range(0, len(ids), _PIECE):
            piece = ids[start : start + _PIECE]
            yield PendingDelays(
                0, runs_of(BitMap64(piece.tolist())), self.dues.of_many(piece).tobytes()
            )
        for keys in in_pieces(self.by_key.items(), lambda item: len(item[0]) + _KEY_BYTES):
            yield DelayKeys(0, keys)

    def _covered(self, record: DelaysCovered) -> None:
        self.covered = record.id
        counts = (
            record.delivered_count,
            record.expired_count,
            record.cancelled_count,
            record.lost_count,
        )
        self.counts = dict(zip(DelayKind, counts, strict=True))

    def _ids(self, record: DelayedIds) -> None:
        self.finished[record.ids_are] |= offsets_of(record.runs)

    def _pending(self, record: PendingDelays) -> None:
        ids, dues = offsets_of(record.runs), np.frombuffer(record.dues, np.int64)
        self.pending |= ids
        self.dues.set_many(ids_in(ids), dues)
        self.wheel.insert(ids_in(ids), dues)

    def _restored_keys(self, record: DelayKeys) -> None:
        for key, identity in record.keys:
            self.by_key[key], self._keys[identity] = identity, key


_APPLY: dict[type, Callable[[Delays, Any], None]] = {
    DelayCancelled: Delays._cancelled,
    DelayMoved: Delays._moved,
    DelaysLost: Delays._lost,
    DelaysCovered: Delays._covered,
    DelayedIds: Delays._ids,
    PendingDelays: Delays._pending,
    DelayKeys: Delays._restored_keys,
}
