"""The records about transactions in the journals of partitions. A file format: see `delivery.records`.

The first family is a coordinator's, the second that of a partition with stagings. None is about a group: it is 0.
"""

import msgspec

from .states import TransactionState


class _Record(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    group: int


Place = tuple[int, int, int, int]
"""Where messages of a transaction are: topic id, partition, offset of the first, and how many follow each other."""


NO_PART = -1


class ProducerInitialised(_Record, frozen=True, tag=96):
    """A producer of this name has a new session: everything of earlier epochs is refused from now on."""

    producer_id: int
    name: str
    epoch: int
    timeout_ms: int
    at_ns: int
    # Its own commits and aborts leave the epoch as it is.
    keeps_epoch: bool = False
    # The id of the key that made the producer; empty: it was made without keys, or before this was kept.
    owner: str = ""
    # The session that asked to be followed by this one, if one did: its id and epoch.
    former: tuple[int, int] | None = None


class TransactionGrown(_Record, frozen=True, tag=97):
    """A transaction has begun, if its number is new, and has stagings in these partitions: topic ids and numbers."""

    producer_id: int
    number: int
    epoch: int
    participants: tuple[tuple[int, int], ...]
    at_ns: int


class TransactionDecided(_Record, frozen=True, tag=98):
    """The decision, for ever. Letters to the participants, in their order, are numbered from `first_sequence` on."""

    producer_id: int
    number: int
    is_commit: bool
    next_epoch: int
    first_sequence: int
    # How many messages each participant holds; NO_PART: none, nor answers, and it gets no letter.
    counts: tuple[int, ...]
    reason: str
    at_ns: int

    def letters(self) -> list[int]:
        """Sequences of the letters."""
        numbered = enumerate(self.counts, self.first_sequence)
        return [sequence for sequence, count in numbered if count != NO_PART]


class TransactionConcluded(_Record, frozen=True, tag=99):
    """All participants have applied the decision durably."""

    producer_id: int
    number: int
    places: tuple[Place, ...]


class ProducerForgotten(_Record, frozen=True, tag=100):
    """A producer that was idle for long: its name begins anew, under another id."""

    producer_id: int


class CoordinatedProducer(_Record, frozen=True, tag=101):
    """A producer in a snapshot."""

    producer_id: int
    name: str
    epoch: int
    timeout_ms: int
    at_ns: int
    state: TransactionState
    number: int
    transaction_epoch: int
    participants: tuple[tuple[int, int], ...]
    letters: tuple[int, ...]
    places: tuple[Place, ...]
    reason: str
    keeps_epoch: bool = False
    owner: str = ""
    former: tuple[int, int] | None = None


class StagingsEnded(_Record, frozen=True, tag=102):
    """The decision about a transaction took effect in this partition: offsets of firsts, and how many follow each."""

    producer_id: int
    number: int
    is_commit: bool
    runs: tuple[tuple[int, int], ...]


class StagingsCovered(_Record, frozen=True, tag=103):
    """A snapshot knows every staging below this offset of the staging log; what follows is read from there."""

    offset: int


class StagedTransaction(_Record, frozen=True, tag=104):
    """An open transaction in a snapshot of a partition.

    Stagings are offset in the staging log, number of messages and bytes; of those published: that offset, and the one
    among the messages.
    """

    producer_id: int
    number: int
    stagings: tuple[tuple[int, int, int], ...]
    published: tuple[tuple[int, int], ...]


class StagingProducerImage(_Record, frozen=True, tag=105):
    """How far a producer has come with its stagings here: as that of a producer without transactions."""

    producer_id: int
    epoch: int
    next_sequence: int
    recent: tuple[tuple[int, int, int], ...]


class StagingLogMade(_Record, frozen=True, tag=106):
    """The files of the staging log are durable; from now on they have to be there."""


CoordinatorRecord = (
    ProducerInitialised
    | TransactionGrown
    | TransactionDecided
    | TransactionConcluded
    | ProducerForgotten
    | CoordinatedProducer
)
StagingRecord = StagingsEnded | StagingsCovered | StagedTransaction
TransactionRecord = CoordinatorRecord | StagingRecord | StagingProducerImage | StagingLogMade
