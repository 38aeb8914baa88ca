"""The topics of one data directory: created, changed, deleted, and opened again after a restart.

An intent in meta comes before the files of new partitions, and a deletion before their removal. So a start knows which
files a crash left over, and removes those alone. A partition that meta knows has to be there; what it does not know is
moved to `set-aside`, never removed.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..api.health import EventKind, RecoveryEvent
from ..api.principals import LOCAL
from ..config import CACHE_BYTES, OFF, LimitsConfig, OnDamage, TopicConfig
from ..errors import (
    Damaged,
    DamagedBatch,
    DamagedFile,
    DiskFailed,
    FileMissing,
    NoSpace,
    NotFound,
    PenstockError,
    Refused,
)
from ..journeys.latency import Latencies
from ..log import Log, open_log
from ..log.checkpoint import MetaMark
from ..log.journal import Journal
from ..log.reign import ALONE, NodeReign, Reign
from ..model import Epoch, LogEnd, Offset, check_name
from ..ports import Disk, Entropy, Zones
from ..schedules.timing import UtcOnly
from .closing import close, unknown_ends
from .directories import ids_present, is_missing, paths_in_topics
from .leftovers import tidy
from .meta import (
    FORMAT,
    META,
    META_CONFIG,
    META_LOG_ID,
    MetaMachine,
    MetaRecord,
    meta_beyond,
    own_end,
    require_format,
    require_meta,
)
from .partition import (
    Now,
    Partition,
    PartitionContext,
    PartitionId,
    PartitionPlan,
)
from .partition.batch_cache import BatchCache
from .partition.changes import Changes
from .partition.damage import DamageLedger
from .partition.dead_letters import dead_letter_topic
from .partition.delay_prefetch import PrefetchCache
from .partition.group_owners import GroupOwners
from .partition.opening import open_partition
from .partition.publishing import Router, not_a_partition
from .partition.slots import Fault, Partitions, fault_of
from .progress import OpeningProgress
from .recovery import log_events, partition_events, snapshot_events
from .reigns import ReignBegun
from .settings_file import keep_settings
from .topic_works import Making, Removal, TopicWorks
from .topics import (
    INTERNAL_PREFIX,
    GenerationsUsed,
    IdsUsed,
    PartitionEnds,
    TopicFacts,
)
from .walks import Pieces

# The meta journal rests on no message log, so nothing in it is ever beyond one.
_NO_MESSAGES = LogEnd(Epoch(0), Offset(0))
_RECORDS_A_SNAPSHOT = 1000
_RECORDS_A_BATCH = 1000


@dataclass(slots=True)
class Topic:
    """A topic that is open."""

    facts: TopicFacts
    partitions: Partitions = field(default_factory=Partitions)
    router: Router = field(default_factory=Router)


class Catalogue:
    """All topics, open. Changes are few and everything else rests on them, so each is durable when it returns."""

    def __init__(
        self,
        disk: Disk,
        *,
        now: Now,
        entropy: Entropy,
        limits: LimitsConfig,
        damage: DamageLedger | None = None,
        cache_bytes: int = CACHE_BYTES,
        zones: Zones | None = None,
        reign: Reign = ALONE,
        progress: OpeningProgress | None = None,
    ) -> None:
        self._progress = progress or OpeningProgress()
        self.reign: Reign = reign if reign.is_shared else NodeReign()
        self.disk, self.entropy, self.limits = disk, entropy, limits
        self.zones: Zones = zones or UtcOnly()
        self.cache, self.prefetch = BatchCache(cache_bytes), PrefetchCache()
        self.latencies, self.group_owners = Latencies(limits), GroupOwners()
        # What was recorded since the driver last acted on it.
        self.changes = Changes()
        # What this start found and did, in order. Read by the driver, metrics and health.
        self.recovery: list[RecoveryEvent] = []
        self.damage = damage or DamageLedger()
        # Partitions that failed with something in them that no sync had covered: a caller that waits for the next sync
        # may wait for them. The driver takes them.
        self.owed: list[Fault] = []
        require_format(disk)
        require_meta(disk)
        log, found = open_log(
            disk,
            META,
            log_id=META_LOG_ID,
            config=META_CONFIG,
            may_create=not [*paths_in_topics(disk)],
            reign=self.reign,
        )
        self.recovery.extend(log_events(META, found))
        # On whose behalf the command that is under way runs.
        self.principal = LOCAL
        self.meta: Journal[MetaRecord] = Journal(log, FORMAT)
        self._machine = MetaMachine()
        self.topics, self.queries = self._machine.topics, self._machine.queries
        self.keys, self.schemas = self._machine.keys, self._machine.schemas
        self.works = TopicWorks(self)
        replayed = self.meta.recover(self._machine, message_end=own_end(log))
        self.recovery.extend(snapshot_events(replayed))
        self._records_since_snapshot = replayed.records
        self._mark = MetaMark(log.end)
        # Partitions whose ends are in meta as they are now, and durable there after its next sync.
        self._unnoted: dict[Partition, None] = {}
        self.reign.found(self._machine.epoch)
        self.begin_reign(now)
        self.open: dict[str, Topic] = {}
        # Topics of our own, which no command names.
        self.internal: dict[str, Topic] = {}
        records = tidy(self, now)
        self._progress.partitions = sum(one.partitions for one in self.topics.by_name.values())
        for facts in self.topics.by_name.values():
            numbers = range(facts.partitions)
            self.add(facts, [self._open_known(facts, number, now) for number in numbers])
            if not reign.is_shared:  # Others have meta, too.
                keep_settings(disk, facts)
        # On a full disk the next start does it again.
        with suppress(NoSpace):
            self.record_meta([*records, *unknown_ends(self)], now)
            self._note_meta()
            for one in self.partitions():
                one.ends_noted()
        self.works.remove_few(now)

    def _note_meta(self) -> None:
        """Have one checkpoint say how far meta is: an older one that is put back is noticed then, though no partition
        may write another checkpoint before a crash. Where other nodes have meta, too, they would notice it."""
        if not self.reign.is_shared:
            for partition in self.partitions()[:1]:
                partition.messages.sync(with_checkpoint=True)

    def _record_reign(self, epoch: Epoch, *, now: Now) -> None:
        """Make it durable that the node begins an epoch, before it writes anything else in it."""
        self.record_meta([ReignBegun(epoch, *self.reign.mandate)], now)

    def begin_reign(self, now: Now) -> None:
        """NoSpace: a leader does not lead then. A node alone can be read, and each change tries again."""
        try:
            self.reign.begin(partial(self._record_reign, now=now))
        except NoSpace:
            if self.reign.is_shared:
                raise

    def _require_known_meta(self, messages: Log) -> None:
        """Raise DamagedFile if the checkpoint of a message log knows more of meta than there is.

        The checkpoint that this start writes knows this meta: it may be the only one of a life that a crash ends.
        """
        if not (reason := meta_beyond(messages, self.meta.log, reign=self.reign.epoch)):
            messages.meta = self._mark
            return
        # Or this meta would grow past what the other one was, and could no longer be told from it.
        self.reign.found(messages.meta.end.epoch)
        raise DamagedFile(f"{messages.directory}/checkpoint", reason)

    def context(self, facts: TopicFacts) -> PartitionContext:
        return PartitionContext(
            facts.name,
            facts.config,
            self.limits,
            self.entropy,
            self._require_known_meta,
            lambda partition, now: self.note_ends([partition], now),
            self.cache,
            self.changes,
            self.damage,
            self.prefetch,
            self.latencies,
            self.zones,
            self.reign,
            self.group_owners,
            self._machine.reigns.begun_in_all_logs,
        )

    def _open_known(self, facts: TopicFacts, number: int, now: Now) -> Partition | Fault:
        """A partition of before, or why it cannot be opened: what there is of it stays as it is."""
        self._progress.opened += 1
        none = PartitionEnds(facts.topic_id, number, (), ())
        ends = self.topics.ends.get((facts.topic_id, number), none)
        directory = facts.partition_directory(number)
        identity = PartitionId(facts.topic_id, number)
        try:
            partition, opening = open_partition(
                self.disk, directory, identity, self.context(facts), now=now, ends=ends
            )
        except (Damaged, Refused) as error:
            lost = None
            if is_missing(self.disk, directory):
                lost = DamagedFile(directory, "the partition is missing")
            fault = fault_of(facts.name, number, directory, lost or error)
            self.recovery.append(
                RecoveryEvent(
                    EventKind.PARTITION_FAULTY, fault.path, fault.reason, facts.name, number
                )
            )
            return fault
        self.recovery.extend(
            partition_events(directory, opening, topic=facts.name, partition=number)
        )
        return partition

    def add(self, facts: TopicFacts, partitions: Sequence[Partition | Fault]) -> Topic:
        home = self.internal if facts.name.startswith(INTERNAL_PREFIX) else self.open
        topic = home.get(facts.name)
        if topic is None:
            topic = home[facts.name] = Topic(facts, router=Router(former=facts.former))
        topic.partitions.extend(partitions)
        self.changes.topics.add(facts.name)
        for partition in partitions:
            if isinstance(partition, Partition):
                partition.messages.meta = self._mark
        return topic

    def record_meta(self, records: Sequence[MetaRecord], now: Now) -> None:
        """Journal records durably and apply them. NoSpace: nothing happened; of more than a batch perhaps a part."""
        for first in range(0, len(records), _RECORDS_A_BATCH):
            self._append(records[first : first + _RECORDS_A_BATCH], now)
        if records:
            # With a checkpoint, so that a later loss of these bytes is never taken for a write that a crash tore.
            self._sync(with_checkpoint=True)

    def _append(self, records: Sequence[MetaRecord], now: Now) -> None:
        self.meta.append(records, decided_at=_NO_MESSAGES, now_ns=now.wall_ns)
        for record in records:
            self._machine.apply(record)
        self._records_since_snapshot += len(records)

    def _sync(self, *, with_checkpoint: bool) -> None:
        try:
            self.meta.log.sync(with_checkpoint=with_checkpoint)
        except (FileMissing, DamagedFile) as error:
            # Whatever this process says about topics, the next one would not know.
            raise DiskFailed(META, f"its files have vanished: {error}") from error
        self._mark.end = self.meta.log.end
        for partition in self._unnoted:
            partition.ends_noted()
        self._unnoted.clear()
        self._take_snapshot_if_due()

    def reserve_generations(self, below: int, now: Now) -> None:
        """Make sure, durably, that no later life of the node gives a generation below this one again."""
        if below > self.topics.next_generation:
            self.record_meta((GenerationsUsed(below),), now)

    def _take_snapshot_if_due(self) -> None:
        if self._records_since_snapshot >= _RECORDS_A_SNAPSHOT:
            self.take_meta_snapshot()

    def take_meta_snapshot(self) -> None:
        """It names a position in its own log in place of a message log.

        What may still be cut is in no snapshot: with followers it waits for a sync after which they have all of it.
        """
        log = self.meta.log
        if self.reign.is_shared and self.reign.committed_end(log) < log.end_offset:
            return
        plan = self.meta.plan_snapshot(self.meta.log, self._machine)
        with suppress(NoSpace):
            plan.run()
            self.meta.synced(self.meta.log, plan)
            self._records_since_snapshot = 0

    def plan_sync(self) -> list[tuple[Partition, PartitionPlan]]:
        """The plans of all partitions that have something to sync, or of which a snapshot is to be written."""
        replay, unsynced = self.changes.replay, self.changes.to_sync()
        for partition in unsynced:
            replay.note(partition)
        most = replay.most()
        due = {one: None for one in replay.waiting if one.is_snapshot_due}
        if most is not None:
            due[most] = None
        plans: list[tuple[Partition, PartitionPlan]] = []
        for partition in {**dict.fromkeys(unsynced), **due}:
            plan = partition.plan_snapshot() if partition is most else partition.plan_sync()
            plans.append((partition, plan))
            if partition.is_snapshot_held:
                replay.waiting[partition] = None
            elif partition in due:
                replay.waiting.pop(partition, None)
        return plans

    def synced(self, plans: Sequence[tuple[Partition, PartitionPlan]], now: Now) -> None:
        """Take note that plans of partitions were run, and in meta how far they are now, after larger steps."""
        stepped: list[Partition] = []
        for partition, plan in plans:
            partition.synced(plan)
            # A restart begins further on: with the snapshot, or with the checkpoint of the messages.
            if plan.is_snapshot_written or plan.messages.is_checkpoint_written:
                stepped.append(partition)
            if plan.snapshot is not None:
                self.changes.replay.note(partition)
                if not plan.is_snapshot_written:
                    self.changes.replay.put_off()
        self.append_ends(stepped, now)
        self._take_snapshot_if_due()

    def fail(
        self, partition: Partition, cause: PenstockError, plan: PartitionPlan | None = None
    ) -> Fault:
        """Use a partition no more: its files have vanished, or are not what was written. What is left of it stays.

        With the `plan` that could not be run, those whom it covered hear of the fault from the caller.
        """
        topic = self.internal.get(partition.topic) or self.open[partition.topic]
        directory = topic.facts.partition_directory(partition.number)
        fault = fault_of(partition.topic, partition.number, directory, cause)
        topic.partitions.fail(fault)
        self.changes.topics.add(partition.topic)
        if partition.is_dirty if plan is None else partition.has_more_than(plan):
            self.owed.append(fault)
        partition.discard()
        self._unnoted.pop(partition, None)
        self.recovery.append(
            RecoveryEvent(
                EventKind.PARTITION_FAULTY,
                fault.path,
                fault.reason,
                fault.topic,
                fault.number,
                is_of_start=False,
            )
        )
        return fault

    def note_ends(self, partitions: Sequence[Partition], now: Now) -> bool:
        """Know durably how far these are. False: there is no room for that, and meta knows it the next time."""
        is_noted = self.append_ends(partitions, now)
        if partitions:
            self._sync(with_checkpoint=False)
        return is_noted

    def append_ends(self, partitions: Sequence[Partition], now: Now) -> bool:
        """Record how far these are; the next sync of meta makes it durable. False: there is no room for that."""
        if self.reign.is_over:
            return False
        try:
            for first in range(0, len(partitions), _RECORDS_A_BATCH):
                some = partitions[first : first + _RECORDS_A_BATCH]
                self._append([partition.ends() for partition in some], now)
                self._unnoted.update(dict.fromkeys(some))
        except NoSpace:
            for partition in partitions:
                self._unnoted.pop(partition, None)
            return False
        if partitions and self.reign.is_shared:
            # What followers have to have is never left for a later sync: all that comes after it would wait for that.
            self._sync(with_checkpoint=False)
        return True

    def topic_changed(self, name: str, now: Now) -> None:
        """Called after a topic was made, has grown, or is gone."""

    def create_topic(self, name: str, partitions: int, config: TopicConfig, now: Now) -> Making:
        """Begin to make a topic; it is there once the making is over."""
        if check_name(name, "topic").startswith(INTERNAL_PREFIX):
            raise Refused(f"topic names that start with {INTERNAL_PREFIX!r} are internal: {name}")
        return self.works.create(name, partitions, config, now)

    def internal_topic(self, name: str, partitions: int, now: Now) -> Topic:
        """A topic of our own, made if there was none."""
        if name not in self.internal:
            making = self.works.create(name, partitions, TopicConfig(retention_hours=OFF), now)
            making.run(now)
            making.check()
        return self.internal[name]

    def skip_ids_present(self, name: str, partitions: int, config: TopicConfig, now: Now) -> None:
        """Files may have come since the start: their ids are not given again, whatever they are."""
        if self.disk.exists(self.topics.create(name, partitions, config).reply.directory):
            self.record_meta((IdsUsed(max(ids_present(self.disk)) + 1),), now)

    def configure_topic(self, name: str, changes: Mapping[str, Any], now: Now) -> Topic:
        """Change settings; they hold from the next command on."""
        topic = self.topic(name)
        self.record_meta(self.topics.configure(name, changes), now)
        keep_settings(self.disk, topic.facts)
        for partition in topic.partitions:
            partition.configure(topic.facts.config)
        self.changes.topics.add(name)
        return topic

    def open_damaged(self, topic: Topic, now: Now) -> list[Partition]:
        """Try partitions again that a damaged batch keeps from being opened, because the topic skips damage now."""
        faults = [one for one in topic.partitions.faults if isinstance(one.cause, DamagedBatch)]
        if topic.facts.config.on_damage is not OnDamage.SKIP or self.reign.is_shared:
            # Standbys have the whole batch: the one that leads next serves the partition.
            return []
        opened: list[Partition] = []
        for fault in faults:
            partition = self._open_known(topic.facts, fault.number, now)
            if isinstance(partition, Partition):
                partition.messages.meta = self._mark
                topic.partitions.slots[fault.number] = partition
                self.changes.touched[partition, 0] = None
                opened.append(partition)
        topic.partitions.extend(())
        self.append_ends(opened, now)
        return opened

    def delete_topic(self, name: str, now: Now) -> Pieces[None]:
        """Forget a topic and its dead letters durably; a recreated one has another directory. Their files go, too."""
        gone = [self.topic(name).facts]
        if (letters := self.topics.get(dead_letter_topic(name))) is not None:
            gone.append(letters)
        for facts in gone:
            self.works.require_idle(facts.name)
        self.record_meta([record for one in gone for record in self.topics.delete(one.name)], now)
        removals: list[Removal] = []
        for facts in gone:
            # Emptied one by one: to free all partitions at once takes long.
            opened = [*self.open.pop(facts.name).partitions]
            self.changes.forget(*opened)
            self.changes.topics.add(facts.name)
            self.damage.forget(facts.name)
            self.latencies.forget(facts.name)
            removals.append(self.works.delete(facts, now, opened))
            self.topic_changed(facts.name, now)
        # From here on it goes on without the client, if that leaves.
        yield from self.works.rebalanced([facts.name for facts in gone])
        for removal in removals:
            now = yield from self.works.first_piece(removal, now)

    def topic(self, name: str) -> Topic:
        try:
            return self.open[name]
        except KeyError:
            raise NotFound("topic", name) from None
        except TypeError:
            raise Refused(f"a topic's name is text, not {type(name).__name__}") from None

    def partition(self, topic: str, number: int) -> Partition:
        """A partition by its number. NotFound: there is none; PartitionFaulty: it cannot be used."""
        slots = self.topic(topic).partitions.slots
        try:
            found = slots[number] if 0 <= number < len(slots) else None
        except TypeError:
            raise not_a_partition(number) from None
        if found is None:
            raise NotFound("partition", f"{topic}/{number}")
        if isinstance(found, Fault):
            raise found.error()
        return found

    def faults(self) -> list[Fault]:
        """All partitions that cannot be used."""
        topics = (*self.open.values(), *self.internal.values())
        return [fault for topic in topics for fault in topic.partitions.faults]

    def partitions(self) -> list[Partition]:
        """All partitions that serve."""
        topics = (*self.open.values(), *self.internal.values())
        return [one for topic in topics for one in topic.partitions]

    def partition_of(self, topic_id: int, number: int) -> Partition | None:
        """A partition by its topic's id; None if that topic is gone. PartitionFaulty: it cannot be used."""
        facts = self.topics.by_id.get(topic_id)
        topic = None if facts is None else self.open.get(facts.name)
        return None if topic is None else topic.partitions[number]

    def close(self) -> None:
        """Make everything durable, and close all files."""
        close(self)
