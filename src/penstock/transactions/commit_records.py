"""The records about named commits in the journals of partitions. A file format: see `delivery.records`.

All but the last are a coordinator's; the last is that of a partition with stagings. None is about a group: it is 0.
"""

from enum import Enum

import msgspec

from .records import Place


class _Record(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    group: int


class StagingsEnd(Enum):
    """Why stagings of a name leave it."""

    COMMIT = 1
    # They were given up, or nothing committed them for too long.
    DROP = 2
    # The name is forgotten, with all that it has.
    RESET = 3


class CommitNameOpened(_Record, frozen=True, tag=112):
    """A name has its first staging. Its owner is the id of the key that asked for it."""

    name_id: int
    name: str
    owner: str


class NamedStagingOpened(_Record, frozen=True, tag=113):
    """An attempt of a writer may stage messages for one sequence of a name, under this id."""

    staging_id: int
    name_id: int
    sequence: int
    writer: str
    attempt: str
    at_ns: int


class NamedStagingGrown(_Record, frozen=True, tag=114):
    """A staging has messages in these partitions, too: topic ids and numbers."""

    staging_id: int
    participants: tuple[tuple[int, int], ...]


class NamedStagingsDecided(_Record, frozen=True, tag=115):
    """The end of stagings, for ever. `first_sequence` and `counts` number the letters to their partitions.

    Partitions are in the order in which stagings name them, those of published ones first; a count is how many messages
    a partition publishes.
    """

    name_id: int
    end: StagingsEnd
    # Of a commit: its sequence, its writer, and whether no other commit of this name comes.
    sequence: int
    writer: str
    is_one_off: bool
    published: tuple[int, ...]
    dropped: tuple[int, ...]
    first_sequence: int
    counts: tuple[int, ...]
    at_ns: int
    # What a commit holds, in words of its client, by which a repeat is compared with it; empty if it said none.
    fingerprint: str = ""

    def letters(self) -> range:
        """Sequences of the letters."""
        return range(self.first_sequence, self.first_sequence + len(self.counts))


class NamedCommitConcluded(_Record, frozen=True, tag=116):
    """All partitions have published, durably, what the last commit of a name told them to."""

    name_id: int
    places: tuple[Place, ...]


class CommitNameImage(_Record, frozen=True, tag=117):
    """A name in a snapshot. `stagings` are those of the last commit, while letters of it are on their way."""

    name_id: int
    name: str
    owner: str
    writer: str
    sequence: int
    is_one_off: bool
    at_ns: int
    stagings: tuple[int, ...]
    participants: tuple[tuple[int, int], ...]
    letters: tuple[int, ...]
    places: tuple[Place, ...]
    fingerprint: str = ""


class NamedStagingsEnded(_Record, frozen=True, tag=118):
    """Stagings of a name were published, or dropped, in this partition: offsets of firsts, and how many follow each."""

    name_id: int
    # Of the commit; below zero if there was none.
    sequence: int
    published: tuple[int, ...]
    dropped: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]
    # For the journeys of what was published.
    name: str = ""


CommitNameRecord = (
    CommitNameOpened
    | NamedStagingOpened
    | NamedStagingGrown
    | NamedStagingsDecided
    | NamedCommitConcluded
    | CommitNameImage
)
NamedCommitRecord = CommitNameRecord | NamedStagingsEnded
