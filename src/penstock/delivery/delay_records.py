"""The records about delayed messages in a partition's journal. A file format: see `delivery.records`.

There is none for a message that fired: the batch in the message log says so. There is none for a message that replaces
another with the same key: the delay log shows both, in their order.

`epoch` is that of the delay log when the record was made. After a crash that took the end of the delay log an id may be
given to another message, in a later epoch; records of earlier epochs are not about it.
"""

from enum import IntEnum

import msgspec

from .offsets import Runs


class _Record(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    group: int


class DelayCancelled(_Record, frozen=True, tag=64):
    """A delayed message will not fire."""

    epoch: int
    id: int


class DelayMoved(_Record, frozen=True, tag=65):
    """A delayed message is due at another time."""

    epoch: int
    id: int
    due_ns: int


class DelaysCovered(_Record, frozen=True, tag=66):
    """A snapshot knows every delayed message below this id; what follows is read from the delay log."""

    id: int
    delivered_count: int
    expired_count: int
    cancelled_count: int
    lost_count: int = 0


class DelayKind(IntEnum):
    """What a set of ids in a snapshot is."""

    DELIVERED = 0
    EXPIRED = 1
    CANCELLED = 2
    LOST = 3


class DelayedIds(_Record, frozen=True, tag=67):
    """Some of the ids that are finished in one way."""

    ids_are: DelayKind
    runs: Runs


class PendingDelays(_Record, frozen=True, tag=68):
    """Some of the pending delays: ids, and due times as little-endian i64 in the order of the ids."""

    runs: Runs
    dues: bytes


class DelayKeys(_Record, frozen=True, tag=69):
    """Business keys of some of the pending delays."""

    keys: tuple[tuple[bytes, int], ...]


class DelaysLost(_Record, frozen=True, tag=70):
    """Delayed messages that will not fire: damaged, in a topic that skips damage, or lost in a repair of the log."""

    epoch: int
    runs: Runs


DelayRecord = (
    DelayCancelled
    | DelayMoved
    | DelaysCovered
    | DelayedIds
    | PendingDelays
    | DelayKeys
    | DelaysLost
)
