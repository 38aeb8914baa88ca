"""Named commits of a node: where names are kept, what is decided about their stagings, and what a start has to finish.

A name is kept by a coordinator of transactions, the one that the hash of the name says; the low digits of the id of a
staging say it, too. What is decided is durable there before a letter leaves, and a decision waits for the stagings.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from ..api.commits import CommitStagings
from ..api.principals import Principal
from ..errors import (
    Fatal,
    NotFound,
    PartitionFaulty,
    PenstockError,
    StagingMismatch,
    UnknownStaging,
)
from ..transactions.commit_records import (
    CommitNameOpened,
    CommitNameRecord,
    NamedStagingGrown,
    NamedStagingOpened,
    NamedStagingsDecided,
    StagingsEnd,
)
from ..transactions.coordinator import Participant
from ..transactions.names import (
    STAGING_ID_FIRST,
    CommitName,
    NamedStaging,
    PartitionPart,
    staging_text,
)
from ..transactions.stagings import NAMED_NUMBER, Staged, TransactionKey
from .authorise import authorise_owner
from .partition import Now, Partition
from .partition.named_staging import drop_named, staged_here
from .partition.partitioner import partition_of
from .partition.staging import answered_offsets, is_kept
from .shares import COMMIT_NAMES
from .transactions import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from .node import Node

_ID_BITS = 60
_NEVER_NS = float("inf")


class NamedCommits:
    """Finds names and has their coordinators record; of one node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        # Commits that wait for their stagings, by name; soft, as those of transactions.
        self._committing: dict[str, tuple[CommitStagings, dict[int, int]]] = {}

    # Where names are.

    def homes(self) -> Sequence[Partition]:
        return self._node.transactions.coordinators()

    def names(self) -> Iterator[CommitName]:
        for home in self.homes():
            yield from home.machine.commit_names.by_name.values()

    def home(self, name: str) -> Partition:
        """The partition that keeps a name. NotFound: nothing was ever committed here. PartitionFaulty."""
        topic = self._node.internal.get(TOPIC)
        if topic is None:
            raise NotFound("commit name", name[:60])
        return topic.partitions[partition_of(name.encode(), len(topic.partitions))]

    def find(self, name: str) -> CommitName:
        found = self.home(name).machine.commit_names.by_name.get(name)
        if found is None:
            raise NotFound("commit name", name[:60])
        return found

    def authorise(self, name: CommitName) -> None:
        """Forbidden, unless the command's principal may stage and commit under this name."""
        authorise_owner(self._node.principal, name.owner, "commit name", name.name)

    def owned(self, staging_id: int) -> NamedStaging:
        """A staging that the command's principal may fill, commit and drop. UnknownStaging, Forbidden."""
        _, found = self.staging(staging_id)
        self.authorise(found.name)
        return found

    def is_known(self, name: str) -> bool:
        with suppress(NotFound):
            return name in self.home(name).machine.commit_names.by_name
        return False

    def staging(self, staging_id: int) -> tuple[Partition, NamedStaging]:
        """A staging that waits for its commit, and the partition that keeps its name. UnknownStaging."""
        topic = self._node.internal.get(TOPIC)
        if topic is None:
            raise UnknownStaging(staging_text(staging_id))
        home = topic.partitions[staging_id % len(topic.partitions)]
        return home, home.machine.commit_names.find(staging_id)

    # What commands have recorded.

    def open(
        self, name: str, sequence: int, writer: str, now: Now, *, attempt: str, by: Principal
    ) -> int:
        """The id of a new staging. Forbidden, CommitNameTaken, SequenceCommitted, ShareFull, OverCommitQuota."""
        topic = self._node.internal_topic(TOPIC, PARTITIONS, now)
        count = len(topic.partitions)
        number = partition_of(name.encode(), count)
        home = topic.partitions[number]
        names = home.machine.commit_names
        known = names.by_name.get(name)
        records: list[CommitNameRecord] = []
        if known is None:
            counts = [one.machine.commit_names.counts for one in self.homes()]
            COMMIT_NAMES.require_room(self._node.limits, by, counts)
            name_id = self._new_id(count, number, names.by_id)
            records.append(CommitNameOpened(0, name_id, name, by.key_id))
        else:
            self.authorise(known)
            names.require_next(known, sequence, writer)
            name_id = known.name_id
        staging_id = self._new_id(count, number, names.stagings)
        records.append(
            NamedStagingOpened(0, staging_id, name_id, sequence, writer, attempt, now.wall_ns)
        )
        home.record(records, now)
        return staging_id

    def _new_id(self, count: int, home: int, taken: Mapping[int, object]) -> int:
        """A number that was never used: partitions remember those of stagings that are over, for a while."""
        while True:
            found = STAGING_ID_FIRST + self._node.entropy.getrandbits(_ID_BITS) * count + home
            if found not in taken:
                return found

    def enrol(self, staging_id: int, partitions: Sequence[Partition], now: Now) -> None:
        """Have a staging know that it has messages or answers in these partitions. UnknownStaging, OverCommitQuota."""
        home, staging = self.staging(staging_id)
        record = home.machine.commit_names.grown(staging, [(*one.identity,) for one in partitions])
        if record is not None:
            home.record((record,), now)

    def commit(
        self, name: CommitName, command: CommitStagings, listed: dict[int, int], now: Now
    ) -> bool:
        """Decide a commit of a new sequence, if its stagings are durable; False: not yet, but after the sync that makes
        them so.

        `listed` has the number of messages of each staging. UnknownStaging, StagingMismatch, CommitInProgress,
        PartitionFaulty.
        """
        home, sequence = self.home(name.name), command.sequence
        names = home.machine.commit_names
        chosen = names.listed(name, sequence, command.writer, [*listed])
        is_durable = True
        for staging in chosen:
            count = 0
            for partition, staged in self.staged(staging):
                count += staged.message_count
                is_durable &= partition is None or is_kept(partition, staged)
            if count != listed[staging.staging_id]:
                text, wanted = staging_text(staging.staging_id), listed[staging.staging_id]
                raise StagingMismatch(text, f"holds {count} messages, not {wanted}")
        if not is_durable:
            self._committing[name.name] = command, listed
            return False
        self._require_distinct(chosen)
        published = tuple(one.staging_id for one in chosen)
        dropped = tuple(one.staging_id for one in names.losers(name, sequence, chosen))
        self._decide(
            home,
            name,
            now,
            end=StagingsEnd.COMMIT,
            command=command,
            published=published,
            dropped=dropped,
        )
        name.unanswered = frozenset(map(staging_text, published))
        return True

    def decide_staged(self, now: Now) -> bool:
        """Decide the commits that were asked for and whose stagings are durable by now. False: there are none."""
        has_decided = False
        for text, (command, listed) in [*self._committing.items()]:
            del self._committing[text]
            try:
                name = self.find(text)
                names = self.home(text).machine.commit_names
                if not names.is_committed(name, command.sequence, command.writer):
                    has_decided |= self.commit(name, command, listed, now)
            except Fatal:
                raise
            except PenstockError:
                continue  # The next call about this commit hears why.
        return has_decided

    def _require_distinct(self, chosen: Iterable[NamedStaging]) -> None:
        """Refuse two stagings that answer the same message: attempts of one task may, and one of them is committed."""
        seen: dict[tuple[Partition, int], BitMap64] = {}
        for staging in chosen:
            key = TransactionKey(staging.staging_id, NAMED_NUMBER)
            for partition, staged in self.serving(staging):
                for group, offsets in answered_offsets(partition, key) if staged.groups else ():
                    known = seen.setdefault((partition, group), BitMap64())
                    if twice := known & offsets:
                        place = f"{partition.topic}/{partition.number}/{twice.min()}"
                        text = staging_text(staging.staging_id)
                        raise StagingMismatch(text, f"answers {place}, as another one does")
                    known |= offsets

    def siblings(self, staging: NamedStaging) -> list[TransactionKey]:
        """All stagings of the same sequence and writer. A commit lists one of those that answer a message."""
        return [
            TransactionKey(one.staging_id, NAMED_NUMBER)
            for one in staging.name.stagings.values()
            if (one.sequence, one.writer) == (staging.sequence, staging.writer)
        ]

    def drop(self, stagings: Iterable[NamedStaging], now: Now) -> None:
        """Let go of stagings, whatever their name does."""
        by_name: dict[CommitName, list[int]] = {}
        for one in stagings:
            by_name.setdefault(one.name, []).append(one.staging_id)
        for name, some in by_name.items():
            self._decide(self.home(name.name), name, now, end=StagingsEnd.DROP, dropped=(*some,))

    def reset(self, name: CommitName, now: Now) -> None:
        """Forget a name and drop its stagings."""
        home, dropped = self.home(name.name), tuple(name.stagings)
        self._decide(home, name, now, end=StagingsEnd.RESET, dropped=dropped)

    def _decide(
        self,
        home: Partition,
        name: CommitName,
        now: Now,
        *,
        end: StagingsEnd,
        command: CommitStagings | None = None,
        published: tuple[int, ...] = (),
        dropped: tuple[int, ...] = (),
    ) -> None:
        """Record the end of stagings. From here on it is never undone."""
        parts = home.machine.commit_names.parts(published, dropped)
        counts = tuple(self._count(*item) for item in parts.items())
        record = NamedStagingsDecided(
            0,
            name.name_id,
            end,
            -1 if command is None else command.sequence,
            "" if command is None else command.writer,
            command is not None and command.is_one_off,
            published,
            dropped,
            home.machine.outbox.next_sequence,
            counts,
            now.wall_ns,
            "" if command is None else command.fingerprint,
        )
        home.record((record,), now)

    def _count(self, participant: Participant, part: PartitionPart) -> int:
        """How many messages a partition has to publish. PartitionFaulty: it has some, and cannot be asked."""
        partition = self._node.partition_of(*participant) if part.published else None
        if partition is None:
            return 0
        return sum(staged_here(partition, one).message_count for one in part.published)

    def staged(self, staging: NamedStaging) -> Iterator[tuple[Partition | None, Staged]]:
        """What a staging has in each of its partitions; None for one whose topic is gone. PartitionFaulty."""
        for participant in staging.participants:
            partition = self._node.partition_of(*participant)
            if partition is None:
                yield None, Staged()
            else:
                yield partition, staged_here(partition, staging.staging_id)

    def serving(self, staging: NamedStaging) -> Iterator[tuple[Partition, Staged]]:
        """What a staging has in those of its partitions that can be asked."""
        for participant in staging.participants:
            with suppress(PartitionFaulty):
                partition = self._node.partition_of(*participant)
                if partition is not None:
                    yield partition, staged_here(partition, staging.staging_id)

    # What time does.

    def next_due_ns(self) -> float:
        return min(
            (one.machine.commit_names.next_due_ns for one in self.homes()), default=_NEVER_NS
        )

    def tick(self, now: Now) -> None:
        """Collect stagings that no commit wanted for a day, and forget names whose only commit is as old."""
        for home in self.homes():
            names = home.machine.commit_names
            if now.monotonic_ns < names.next_due_ns:
                continue
            one_offs, stagings = names.overdue(now.wall_ns, now.monotonic_ns)
            for name in one_offs:
                self.reset(name, now)
            self.drop([one for one in stagings if one.staging_id in names.stagings], now)

    # What a start finishes.

    def agree(self, partition: Partition, staging_id: int, now: Now) -> None:
        """A crash may have kept messages of a staging and lost what its coordinator recorded, or the other way."""
        topic = self._node.internal.get(TOPIC)
        try:
            home, staging = self.staging(staging_id)
        except UnknownStaging:
            if topic is not None:
                names = topic.partitions[staging_id % len(topic.partitions)].machine.commit_names
                if names.is_deciding(staging_id):
                    return  # The letter is on its way.
            drop_named(partition, staging_id, now)
            return
        identity = (*partition.identity,)
        if identity not in staging.participants:
            home.record((NamedStagingGrown(0, staging_id, (identity,)),), now)

    def resume(self, now: Now) -> None:
        """Look at the ages of all that a start found: the wall clock went on meanwhile."""
        for home in self.homes():
            home.machine.commit_names.next_due_ns = now.monotonic_ns
