"""What a partition journals besides deliveries, and the union of it all. A file format: see `delivery.records`.

Records that are not about one group have group 0.
"""

import msgspec

from ...api.groups import Mode
from ...delivery import DeliveryRecord
from ...delivery.delay_records import DelayRecord
from ...delivery.offsets import Runs
from ...schedules import ScheduleRecord
from ...transactions import NamedCommitRecord, TransactionRecord
from .outbox import Letter, Redrive


class _Record(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    group: int


class GroupOpened(_Record, frozen=True, tag=32):
    """A group reads this partition from `start` on, under a number that its receipts carry.

    The owner is the id of the key that made the group; empty: it was made without keys, or before this was kept.
    """

    name: str
    start: int
    at_ns: int
    owner: str = ""


class GroupClosed(_Record, frozen=True, tag=33):
    """The group is forgotten here."""

    name: str = ""


class Forwarded(_Record, frozen=True, tag=34):
    """The destination holds this letter of our outbox durably; we may forget it.

    `offset` is that of the message it became; below 0 if it became none, or if a crash came before this record.
    """

    sequence: int
    offset: int = -1


class Redriven(_Record, frozen=True, tag=35):
    """A dead letter goes back. It is finished for the group that lists the dead letters here."""

    letter: Redrive


class Returned(_Record, frozen=True, tag=36):
    """A redriven letter found no partition that could take it: it is a dead letter again."""

    sequence: int


class Arrived(_Record, frozen=True, tag=37):
    """A letter from another partition's outbox took effect here, without a message of its own."""

    source: int
    sequence: int


class ModeSet(_Record, frozen=True, tag=80):
    """How the group reads this topic from now on."""

    mode: Mode


class CommitNoted(_Record, frozen=True, tag=81):
    """A client committed an offset for the group itself, with this text; its floor is in the records of deliveries."""

    note: str


class StartMoved(_Record, frozen=True, tag=82):
    """The partition begins at this offset, which may lie inside of a file: what is below it is deleted."""

    offset: int


class OutboxImage(_Record, frozen=True, tag=48):
    """How far our outbox and those of others have come; pairs of source and sequence."""

    next_sequence: int
    arrived_messages: tuple[tuple[int, int], ...]
    arrived_records: tuple[tuple[int, int], ...]


class LettersImage(_Record, frozen=True, tag=49):
    """Some of the letters that have not arrived."""

    letters: tuple[Letter, ...]


class DedupImage(_Record, frozen=True, tag=50):
    """Some of the idempotency keys: key, offset, append time."""

    keys: tuple[tuple[bytes, int, int], ...]


class ProducerImage(_Record, frozen=True, tag=51):
    """A producer and its last batches: first sequence, number of messages, offset."""

    producer_id: int
    epoch: int
    next_sequence: int
    recent: tuple[tuple[int, int, int], ...]


class LaneImage(_Record, frozen=True, tag=53):
    """Some of the offsets that have a priority other than the normal one."""

    priority: int
    runs: Runs


class Covered(_Record, frozen=True, tag=52):
    """A snapshot knows every message below this offset; what follows is read from the messages."""

    offset: int
    next_group: int


class DelayLogMade(_Record, frozen=True, tag=54):
    """The files of the delay log are durable; from now on they have to be there."""


PartitionRecord = (
    DeliveryRecord
    | GroupOpened
    | GroupClosed
    | Forwarded
    | Redriven
    | Returned
    | Arrived
    | ModeSet
    | CommitNoted
    | StartMoved
    | OutboxImage
    | LettersImage
    | DedupImage
    | ProducerImage
    | Covered
    | LaneImage
    | DelayLogMade
    | DelayRecord
    | ScheduleRecord
    | TransactionRecord
    | NamedCommitRecord
)
