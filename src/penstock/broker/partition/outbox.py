"""Messages on their way from this partition to another.

The source records the intent durably, the destination takes it once per sequence, the source records done. In every
crash state a message is in exactly one place: from the intent on it cannot be leased here, and a repeat is recognised
there.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import msgspec

from ...api.dead_letters import Edit
from ...delivery import DeadReason


class Burial(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=1):
    """A dead letter on its way: where its payload is, and what its reader will want to know."""

    sequence: int
    offset: int
    group: str
    reason: DeadReason
    error: str
    attempts: int
    first_delivery_ns: int
    last_delivery_ns: int
    member: str
    at_ns: int


class Redrive(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=2):
    """A dead letter on its way back: as a new message of a topic, or, with a group, to that group alone."""

    sequence: int
    offset: int
    topic: str
    partition: int
    group: str
    original_offset: int
    edit: Edit | None = None


class Decision(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=3):
    """The decision about a transaction on its way to a partition that holds stagings of it."""

    sequence: int
    producer_id: int
    number: int
    topic_id: int
    partition: int
    is_commit: bool
    # How many messages were staged there, all durable before the decision.
    message_count: int


class NamedDecision(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=5):
    """The end of stagings of a named commit on its way to a partition that holds some: ids of stagings."""

    sequence: int
    name_id: int
    # The sequence of the commit; below zero if nothing is committed.
    commit: int
    topic_id: int
    partition: int
    published: tuple[int, ...]
    dropped: tuple[int, ...]
    # How many messages those to publish have there, all durable before the decision.
    message_count: int


Letter = Burial | Redrive | Decision | NamedDecision
DECISIONS = (Decision, NamedDecision)
"""Letters that are about what lies where they go, and take effect as records."""


class Channel(Enum):
    """How a destination takes a letter. Each counts its arrivals alone: a crash may keep the one and lose the other."""

    MESSAGES = "as a message"
    STATE = "as a record"


class Sent(NamedTuple):
    """Where a letter was taken, and how far that log has to be committed for it to have arrived.

    `offset` is that of the message it became; below 0 if it became none, or became one before a restart.
    """

    destination: tuple[int, int]
    channel: Channel
    committed_at: int
    offset: int = -1


@dataclass(slots=True)
class Outbox:
    """Letters that have not arrived, in the order of their sequences."""

    next_sequence: int = 1
    pending: dict[int, Letter] = field(default_factory=dict)
    # Where the journal records each intent, and where it was taken; soft, found again by resending.
    recorded_at: dict[int, int] = field(default_factory=dict)
    sent: dict[int, Sent] = field(default_factory=dict)

    def add(self, letter: Letter) -> None:
        self.pending[letter.sequence] = letter
        self.next_sequence = letter.sequence + 1

    def done(self, sequence: int) -> None:
        self.pending.pop(sequence, None)
        self.recorded_at.pop(sequence, None)
        self.sent.pop(sequence, None)

    def pinned_from(self) -> int | None:
        """The lowest offset whose payload is still needed; what a decision is about lies where it goes."""
        offsets = (
            one.offset
            for one in self.pending.values()
            if not isinstance(one, Decision | NamedDecision)
        )
        return min(offsets, default=None)

    def edit_bytes(self) -> int:
        """What the edits of all pending letters take."""
        redrives = (one for one in self.pending.values() if isinstance(one, Redrive))
        return sum(one.edit.size for one in redrives if one.edit is not None)
