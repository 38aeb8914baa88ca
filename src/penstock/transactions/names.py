"""Names of commits: the last sequence of each, and the stagings that are there for the next ones.

Commands read it and return records; `apply` alone changes it. A name is kept by the coordinator that its hash says.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..errors import (
    CommitInProgress,
    CommitNameTaken,
    OverCommitQuota,
    RepeatDiffers,
    SequenceCommitted,
    StagingMismatch,
    UnknownStaging,
)
from ..kernel import OwnerCounts
from .commit_records import (
    CommitNameImage,
    CommitNameOpened,
    CommitNameRecord,
    NamedCommitConcluded,
    NamedStagingGrown,
    NamedStagingOpened,
    NamedStagingsDecided,
    StagingsEnd,
)
from .coordinator import PARTICIPANTS_MAX, Participant
from .records import Place

# Of one name, waiting for their commit; and so many can one commit list.
STAGINGS_MAX = 10_000
# Stagings times the partitions that each of them has messages in.
PARTS_MAX = 100_000
# A decimal number in JSON that every reader takes for a whole one.
SEQUENCE_MAX = (1 << 53) - 1
# So long a staging waits for its commit, and so long a name is remembered whose only commit was said to be the last.
STAGING_LIFE_NS = 24 * 3600 * 1_000_000_000
# Ids of stagings are above those of producers, which share the heads of batches and the staging log with them.
STAGING_ID_FIRST = 1 << 62
_NEVER_NS = float("inf")
_MINUTE_NS = 60 * 1_000_000_000


@dataclass(slots=True, eq=False)
class NamedStaging:
    """What one attempt has staged for a sequence of a name, and where."""

    staging_id: int
    name: "CommitName"
    sequence: int
    writer: str
    attempt: str
    at_ns: int
    participants: dict[Participant, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class CommitName:
    """A name: its last commit, and its stagings."""

    name_id: int
    name: str
    owner: str
    # Of the last commit; below zero: there was none.
    sequence: int = -1
    writer: str = ""
    is_one_off: bool = False
    at_ns: int = 0
    places: tuple[Place, ...] = ()
    stagings: dict[int, NamedStaging] = field(default_factory=dict)
    # What the last commit publishes, and where, until its letters have arrived.
    applied: frozenset[int] = frozenset()
    participants: tuple[Participant, ...] = ()
    letters: set[int] = field(default_factory=set)
    # What the last commit holds, in words of its client; empty if it said none.
    fingerprint: str = ""
    # What the last commit lists, until its client was told of it. Not recorded: after a restart that client asks again.
    unanswered: frozenset[str] | None = None

    @property
    def is_applied(self) -> bool:
        return not self.letters


class PartitionPart(NamedTuple):
    """What of a decision is about one partition: ids of stagings."""

    published: list[int]
    dropped: list[int]


def staging_text(staging_id: int) -> str:
    """A staging's id as clients have it."""
    return f"{staging_id:x}"


def staging_number(text: str) -> int:
    """The id that a client names. UnknownStaging: there can be none like it."""
    if len(text) == 16 and text.isascii() and text.isalnum() and text.lower() == text:
        try:
            found = int(text, 16)
        except ValueError:
            found = 0
        if STAGING_ID_FIRST <= found < STAGING_ID_FIRST * 2:
            return found
    raise UnknownStaging(text[:60])


class CommitNames:
    """The machine: one for each partition of `__transactions`."""

    def __init__(self) -> None:
        self.by_name: dict[str, CommitName] = {}
        self.by_id: dict[int, CommitName] = {}
        self.stagings: dict[int, NamedStaging] = {}
        self.counts = OwnerCounts()
        # Which name's commit a letter that has not arrived carries, by the letter's sequence.
        self._letters: dict[int, CommitName] = {}
        # Nothing expires before, on the clock that measures waiting; it may be earlier than the earliest.
        self.next_due_ns = _NEVER_NS

    # What commands ask.

    def find(self, staging_id: int) -> NamedStaging:
        found = self.stagings.get(staging_id)
        if found is None:
            raise UnknownStaging(staging_text(staging_id))
        return found

    def require_next(self, name: CommitName, sequence: int, writer: str) -> None:
        """Refuse a staging for a sequence that is committed, or of a writer that is not the name's."""
        self._require_writer(name, writer)
        if sequence <= name.sequence:
            raise SequenceCommitted(
                name.name, sequence, last=name.sequence, fingerprint=name.fingerprint
            )
        if len(name.stagings) >= STAGINGS_MAX:
            raise OverCommitQuota(f"stagings that wait under {name.name}", limit=STAGINGS_MAX)

    def _require_writer(self, name: CommitName, writer: str) -> None:
        if name.sequence >= 0 and writer != name.writer:
            raise CommitNameTaken(name.name, writer=writer, holder=name.writer)

    def grown(
        self, staging: NamedStaging, participants: Iterable[Participant]
    ) -> NamedStagingGrown | None:
        """What has to be recorded before these partitions take messages of a staging; None if all is known."""
        fresh = tuple(one for one in participants if one not in staging.participants)
        if not fresh:
            return None
        if len(staging.participants) + len(fresh) > PARTICIPANTS_MAX:
            raise OverCommitQuota("partitions of a staging", limit=PARTICIPANTS_MAX)
        return NamedStagingGrown(0, staging.staging_id, fresh)

    def is_committed(self, name: CommitName, sequence: int, writer: str) -> bool:
        """Whether a commit of this sequence is a repeat. CommitNameTaken: it is another writer's name."""
        self._require_writer(name, writer)
        return sequence <= name.sequence

    def require_same(self, name: CommitName, sequence: int, fingerprint: str) -> None:
        """Refuse a repeat of the last commit that holds something else, if both say what they hold."""
        if sequence == name.sequence and fingerprint and name.fingerprint not in {"", fingerprint}:
            raise RepeatDiffers(name.name, sequence, held=name.fingerprint, said=fingerprint)

    def listed(
        self, name: CommitName, sequence: int, writer: str, staging_ids: Sequence[int]
    ) -> list[NamedStaging]:
        """The stagings of a commit that is not a repeat.

        UnknownStaging; StagingMismatch: one is not of this commit; CommitInProgress: the one before is being applied.
        """
        if not name.is_applied:
            raise CommitInProgress(name.name, name.sequence)
        found = [self.find(one) for one in staging_ids]
        for one in found:
            if one.name is not name or (one.sequence, one.writer) != (sequence, writer):
                its = f"is for sequence {one.sequence} of {one.name.name}, writer {one.writer}"
                raise StagingMismatch(staging_text(one.staging_id), its)
        if sum(len(one.participants) for one in found) > PARTS_MAX:
            raise OverCommitQuota("stagings times their partitions", limit=PARTS_MAX)
        return found

    def losers(
        self, name: CommitName, sequence: int, chosen: Iterable[NamedStaging]
    ) -> list[NamedStaging]:
        """What a commit drops: every other staging of its sequence or a lower one."""
        kept = {one.staging_id for one in chosen}
        return [
            one
            for one in name.stagings.values()
            if one.sequence <= sequence and one.staging_id not in kept
        ]

    def parts(
        self, published: Iterable[int], dropped: Iterable[int]
    ) -> dict[Participant, PartitionPart]:
        """What of a decision is about which partition, in the order of its letters."""
        found: dict[Participant, PartitionPart] = {}
        for place, some in enumerate((published, dropped)):
            for staging_id in some:
                for participant in self.stagings[staging_id].participants:
                    part = found.setdefault(participant, PartitionPart([], []))
                    part[place].append(staging_id)
        return found

    def waits_for(self, sequence: int) -> CommitName | None:
        """The name whose commit a letter carries; None if it has arrived, or carries none."""
        return self._letters.get(sequence)

    def is_deciding(self, staging_id: int) -> bool:
        """Whether a letter that publishes this staging is on its way."""
        return any(staging_id in one.applied for one in self._letters.values())

    def overdue(self, wall_ns: int, now_ns: int) -> tuple[list[CommitName], list[NamedStaging]]:
        """One-off names and stagings whose time is over; from now on the next such time is exact."""
        until_ns = wall_ns - STAGING_LIFE_NS
        one_offs = [one for one in self.by_name.values() if one.is_one_off]
        late_names = [one for one in one_offs if one.at_ns <= until_ns and one.is_applied]
        late = [one for one in self.stagings.values() if one.at_ns <= until_ns]
        times_ns = [one.at_ns for one in one_offs if one not in late_names]
        times_ns += [one.at_ns for one in self.stagings.values() if one.at_ns > until_ns]
        # A clock that was set back must not put it off for longer than one life; a commit that is being applied is
        # looked at again in a minute.
        wait_ns = min(min(times_ns, default=wall_ns) - until_ns, STAGING_LIFE_NS)
        self.next_due_ns = now_ns + max(wait_ns, _MINUTE_NS) if times_ns else _NEVER_NS
        return late_names, late

    # What records change.

    def apply(self, record: CommitNameRecord, now_ns: int) -> None:
        """`now_ns`: on the clock that measures waiting."""
        _APPLY[type(record)](self, record, now_ns)

    def _opened(self, record: CommitNameOpened, _now_ns: int) -> None:
        self._add(CommitName(record.name_id, record.name, record.owner))

    def _add(self, name: CommitName) -> None:
        self.by_name[name.name] = self.by_id[name.name_id] = name
        self.counts.add(name.owner)

    def _forget(self, name: CommitName) -> None:
        del self.by_name[name.name], self.by_id[name.name_id]
        self.counts.remove(name.owner)

    def _staging_opened(self, record: NamedStagingOpened, now_ns: int) -> None:
        name = self.by_id[record.name_id]
        staging = NamedStaging(
            record.staging_id, name, record.sequence, record.writer, record.attempt, record.at_ns
        )
        self.stagings[record.staging_id] = name.stagings[record.staging_id] = staging
        self.next_due_ns = min(self.next_due_ns, now_ns + STAGING_LIFE_NS)

    def _grown(self, record: NamedStagingGrown, _now_ns: int) -> None:
        self.stagings[record.staging_id].participants.update(dict.fromkeys(record.participants))

    def _decided(self, record: NamedStagingsDecided, now_ns: int) -> None:
        name = self.by_id[record.name_id]
        parts = self.parts(record.published, record.dropped)
        for staging_id in (*record.published, *record.dropped):
            del self.stagings[staging_id], name.stagings[staging_id]
        if record.end is StagingsEnd.COMMIT:
            name.sequence, name.writer = record.sequence, record.writer
            name.is_one_off, name.at_ns, name.places = record.is_one_off, record.at_ns, ()
            name.fingerprint = record.fingerprint
            # Only those that publish something are waited for.
            numbered = enumerate(parts.items(), record.first_sequence)
            publishing = {one: key for one, (key, part) in numbered if part.published}
            name.letters, name.participants = set(publishing), tuple(publishing.values())
            name.applied = frozenset(record.published if publishing else ())
            self._letters.update(dict.fromkeys(publishing, name))
            if record.is_one_off:
                self.next_due_ns = min(self.next_due_ns, now_ns + STAGING_LIFE_NS)
        elif record.end is StagingsEnd.RESET or (name.sequence < 0 and not name.stagings):
            self._forget(name)

    def arrived(self, sequence: int) -> None:
        """A letter has arrived. As a part of applying the record that says so."""
        name = self._letters.pop(sequence, None)
        if name is not None:
            name.letters.discard(sequence)

    def _concluded(self, record: NamedCommitConcluded, _now_ns: int) -> None:
        name = self.by_id[record.name_id]
        name.places, name.applied, name.participants = record.places, frozenset(), ()

    def _image(self, record: CommitNameImage, now_ns: int) -> None:
        name = CommitName(
            record.name_id,
            record.name,
            record.owner,
            record.sequence,
            record.writer,
            record.is_one_off,
            record.at_ns,
            record.places,
            {},
            frozenset(record.stagings),
            record.participants,
            set(record.letters),
            record.fingerprint,
        )
        self._add(name)
        self._letters.update(dict.fromkeys(name.letters, name))
        if name.is_one_off:
            self.next_due_ns = min(self.next_due_ns, now_ns + STAGING_LIFE_NS)

    def snapshot(self) -> Iterator[CommitNameRecord]:
        for one in self.by_name.values():
            yield CommitNameImage(
                0,
                one.name_id,
                one.name,
                one.owner,
                one.writer,
                one.sequence,
                one.is_one_off,
                one.at_ns,
                tuple(sorted(one.applied)),
                one.participants,
                tuple(sorted(one.letters)),
                one.places,
                one.fingerprint,
            )
        for staging in self.stagings.values():
            yield NamedStagingOpened(
                0,
                staging.staging_id,
                staging.name.name_id,
                staging.sequence,
                staging.writer,
                staging.attempt,
                staging.at_ns,
            )
            if staging.participants:
                yield NamedStagingGrown(0, staging.staging_id, tuple(staging.participants))


_APPLY: dict[type, Callable[[CommitNames, Any, int], None]] = {
    CommitNameOpened: CommitNames._opened,
    NamedStagingOpened: CommitNames._staging_opened,
    NamedStagingGrown: CommitNames._grown,
    NamedStagingsDecided: CommitNames._decided,
    NamedCommitConcluded: CommitNames._concluded,
    CommitNameImage: CommitNames._image,
}
