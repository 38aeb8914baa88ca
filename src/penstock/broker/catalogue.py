"""The topics of one data directory: created, changed, deleted, and opened again after a restart.

An intent in meta comes before the files of new partitions, and a deletion before their removal. So a start knows which
files a crash left over, and removes those alone. A partition that meta knows has to be there; what it does not know is
moved to `set-aside`, never removed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..api.health import EventKind, RecoveryEvent
from ..config import CACHE_BYTES, LimitsConfig, LogConfig, TopicConfig
from ..errors import (
    Damaged,
    DamagedFile,
    DiskFailed,
    Fatal,
    FileMissing,
    NoSpace,
    NotFound,
    PenstockError,
    Refused,
)
from ..log import Log, open_log
from ..log.journal import Journal
from ..log.log import MetaMark
from ..log.records import RecordFormat
from ..model import Epoch, LogEnd, LogId, Offset
from ..ports import Disk, Entropy
from .adoption import Adoption, forget_meta, plan_adoption
from .changes import Changes
from .damage import DamageLedger
from .dead_letters import dead_letter_topic
from .delay_prefetch import PrefetchCache
from .directories import (
    SET_ASIDE,
    TOPICS,
    ids_present,
    is_untouched,
    remove_partition,
    remove_topic,
)
from .leftovers import tidy
from .partition import (
    Now,
    Partition,
    PartitionId,
    PartitionPlan,
    Setting,
)
from .partition_opening import open_partition
from .publishing import Router, not_a_partition
from .recovery import log_events, partition_events, snapshot_events
from .shelf import BatchCache
from .slots import Fault, Partitions, fault_of
from .topics import (
    FilesPlanned,
    FilesRemoved,
    GenerationsUsed,
    IdsUsed,
    PartitionEnds,
    TopicFacts,
    TopicRecord,
    Topics,
)

_META = "meta"
# Of those in the error that says that meta is gone.
_ENTRIES_SHOWN = 5
_META_LOG_ID = LogId(1)
_META_CONFIG = LogConfig(segment_size_bytes=8 << 20, retention_hours=-1)
# The meta journal rests on no message log, so nothing in it is ever beyond one.
_NO_MESSAGES = LogEnd(Epoch(0), Offset(0))
_RECORDS_A_SNAPSHOT = 1000
_RECORDS_A_BATCH = 1000
_ANY_EPOCH = Epoch((1 << 63) - 1)
_FORMAT: RecordFormat[TopicRecord] = RecordFormat(TopicRecord)


def read_meta(disk: Disk) -> tuple[Topics, Log]:
    """The topics that meta knows, and its log, whose files are closed; only its ends are of use.

    The disk has to be one that may be changed, such as a copy: a torn end is cut off.
    """
    log, _ = open_log(disk, _META, log_id=_META_LOG_ID, config=_META_CONFIG)
    topics = Topics()
    Journal(log, _FORMAT).recover(topics, message_end=LogEnd(_ANY_EPOCH, log.end_offset))
    log.discard()
    return topics, log


def meta_beyond(messages: Log, meta: Log) -> str:
    """Why a meta cannot be the one that the checkpoint of a message log knew; empty if it can."""
    seen = messages.meta.end
    end = min(meta.end_offset, meta.end_of_epoch(seen.epoch))
    if seen.offset <= end and seen.epoch <= meta.epoch:
        return ""
    return (
        f"it knows {_META}/ to offset {seen.offset}, and that ends at {end}: {_META}/ is an older copy, or has "
        f"lost its end; put the right one back, or take the topic as it is with `penstock topic adopt`"
    )


@dataclass(slots=True)
class Topic:
    """A topic that is open."""

    facts: TopicFacts
    partitions: Partitions = field(default_factory=Partitions)
    router: Router = field(default_factory=Router)
    # Which partition the next poll looks at first.
    turn: int = 0


Prepared = tuple[FilesPlanned, TopicFacts, list[Partition]]
"""Partitions whose files were made, and the intent that names them."""


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
    ) -> None:
        self.disk, self.entropy, self.limits = disk, entropy, limits
        self.cache, self.prefetch = BatchCache(cache_bytes), PrefetchCache()
        # What was recorded since the driver last acted on it.
        self.changes = Changes()
        # What this start found and did, in order. Read by the driver, metrics and health.
        self.recovery: list[RecoveryEvent] = []
        self.damage = damage or DamageLedger()
        # Partitions that failed with something in them that no sync had covered: whoever waits for the next one may
        # wait for that. The driver takes them.
        self.owed: list[Fault] = []
        self._require_meta()
        log, found = open_log(
            disk,
            _META,
            log_id=_META_LOG_ID,
            config=_META_CONFIG,
            may_create=not disk.list(TOPICS),
        )
        self.recovery.extend(log_events(_META, found))
        self.meta: Journal[TopicRecord] = Journal(log, _FORMAT)
        self.topics = Topics()
        # In its own log an epoch means nothing to a snapshot.
        replayed = self.meta.recover(self.topics, message_end=LogEnd(_ANY_EPOCH, log.end_offset))
        self.recovery.extend(snapshot_events(replayed))
        self._records_since_snapshot = replayed.records
        self._mark = MetaMark(log.end)
        # The latest that a partition knows of a meta that is not this one.
        self._epoch_elsewhere = -1
        self.open: dict[str, Topic] = {}
        records = tidy(disk, self.topics, self.recovery)
        for facts in self.topics.by_name.values():
            self._add(
                facts, [self._open_known(facts, number, now) for number in range(facts.partitions)]
            )
        if self._epoch_elsewhere >= log.epoch:
            # Or this meta would grow past what the other one was, and could no longer be told from it.
            log.begin_epoch(Epoch(self._epoch_elsewhere + 1))
            self._sync(with_checkpoint=True)
        # On a full disk the next start does it again.
        with suppress(NoSpace):
            self.record_meta([*records, *(one.ends() for one in self.partitions())], now)

    def _require_known_meta(self, messages: Log) -> None:
        """Raise DamagedFile if the checkpoint of a message log knows more of meta than there is."""
        if not (reason := meta_beyond(messages, self.meta.log)):
            return
        self._epoch_elsewhere = max(self._epoch_elsewhere, messages.meta.end.epoch)
        raise DamagedFile(f"{messages.directory}/checkpoint", reason)

    def _require_meta(self) -> None:
        """Without meta nothing is known about the topics that are there: neither use nor forget them."""
        if self.disk.list(_META) or not (entries := self.disk.list(TOPICS)):
            return
        shown = ", ".join(entries[:_ENTRIES_SHOWN]) + (", ..." if entries[_ENTRIES_SHOWN:] else "")
        raise DamagedFile(
            _META,
            f"it is missing or empty, but {TOPICS}/ has {shown}: put {_META}/ back from a copy; or, if there is "
            f"none, move the directories from {TOPICS}/ to {SET_ASIDE}/ and bring each back with "
            "`penstock topic adopt`",
        )

    def _prepare(self, plan: FilesPlanned, facts: TopicFacts, now: Now) -> list[Partition]:
        """Make partitions that an intent names. If that fails, nothing of them is left."""
        made: list[Partition] = []
        try:
            for number in range(plan.first, plan.total):
                partition = self._open(facts, number, now, is_new=True)
                made.append(partition)
        except PenstockError as error:
            if not isinstance(error, Fatal):
                self._abandon([(plan, facts, made)], now)
            raise
        return made

    def _open(self, facts: TopicFacts, number: int, now: Now, *, is_new: bool = False) -> Partition:
        setting = Setting(
            facts.name,
            facts.config,
            self.limits,
            self.entropy,
            self._require_known_meta,
            self.cache,
            self.changes,
            self.damage,
            self.prefetch,
        )
        none = PartitionEnds(facts.topic_id, number, (), ())
        known = None if is_new else self.topics.ends.get((facts.topic_id, number), none)
        directory = facts.partition_directory(number)
        identity = PartitionId(facts.topic_id, number)
        partition, opening = open_partition(
            self.disk, directory, identity, setting, now=now, known=known
        )
        self.recovery.extend(
            partition_events(directory, opening, topic=facts.name, partition=number)
        )
        return partition

    def _open_known(self, facts: TopicFacts, number: int, now: Now) -> Partition | Fault:
        """A partition of before, or why it cannot be opened: what there is of it stays as it is."""
        try:
            return self._open(facts, number, now)
        except (Damaged, Refused) as error:
            fault = fault_of(facts.name, number, facts.partition_directory(number), error)
            self.recovery.append(
                RecoveryEvent(
                    EventKind.PARTITION_FAULTY, fault.path, fault.reason, facts.name, number
                )
            )
            return fault

    def _abandon(self, prepared: Iterable[Prepared], now: Now) -> None:
        """Remove the files of partitions that meta does not know yet. What is left undone is done by the next start."""
        records: list[TopicRecord] = []
        for plan, facts, made in prepared:
            for partition in made:
                partition.discard()
            if plan.first == 0:
                remove_topic(self.disk, facts.directory)
            for number in range(plan.first, plan.total) if plan.first else ():
                remove_partition(self.disk, facts.partition_directory(number))
            records.append(FilesRemoved(plan.topic_id, plan.first))
        with suppress(NoSpace):
            self.record_meta(records, now)

    def _add(self, facts: TopicFacts, partitions: Sequence[Partition | Fault]) -> Topic:
        topic = self.open.get(facts.name)
        if topic is None:
            topic = self.open[facts.name] = Topic(facts, router=Router(former=facts.former))
        topic.partitions.extend(partitions)
        for partition in partitions:
            if isinstance(partition, Partition):
                partition.messages.meta = self._mark
        return topic

    def record_meta(self, records: Sequence[TopicRecord], now: Now) -> None:
        """Journal records durably and apply them. NoSpace: nothing happened; of more than a batch perhaps a part."""
        for first in range(0, len(records), _RECORDS_A_BATCH):
            self._append(records[first : first + _RECORDS_A_BATCH], now)
        if records:
            # With a checkpoint, so that a later loss of these bytes is never taken for a write that a crash tore.
            self._sync(with_checkpoint=True)

    def _append(self, records: Sequence[TopicRecord], now: Now) -> None:
        self.meta.append(records, decided_at=_NO_MESSAGES, now_ns=now.wall_ns)
        for record in records:
            self.topics.apply(record)
        self._records_since_snapshot += len(records)

    def _sync(self, *, with_checkpoint: bool) -> None:
        try:
            self.meta.log.sync(with_checkpoint=with_checkpoint)
        except (FileMissing, DamagedFile) as error:
            # Whatever this process says about topics, the next one would not know.
            raise DiskFailed(_META, f"its files have vanished: {error}") from error
        self._mark.end = self.meta.log.end
        if self._records_since_snapshot >= _RECORDS_A_SNAPSHOT:
            self._take_snapshot()

    def reserve_generations(self, below: int, now: Now) -> None:
        """Make sure, durably, that no later life of the node gives a generation below this one again."""
        if below > self.topics.next_generation:
            self.record_meta((GenerationsUsed(below),), now)

    def _take_snapshot(self) -> None:
        """It names a position in its own log in place of a message log."""
        plan = self.meta.plan_snapshot(self.meta.log, self.topics)
        with suppress(NoSpace):
            plan.run()
            self.meta.synced(self.meta.log, plan)
            self._records_since_snapshot = 0

    def synced(self, plans: Sequence[tuple[Partition, PartitionPlan]], now: Now) -> None:
        """Take note that plans of partitions were run, and in meta how far they are now, after larger steps."""
        for partition, plan in plans:
            partition.synced(plan)
        stepped = [partition for partition, plan in plans if plan.is_step]
        self._note_ends(stepped, now)
        if any(plan.is_snapshot_written for _, plan in plans):
            self._sync(with_checkpoint=False)

    def fail(
        self, partition: Partition, cause: PenstockError, plan: PartitionPlan | None = None
    ) -> Fault:
        """Use a partition no more: its files have vanished, or are not what was written. What is left of it stays.

        With the `plan` that could not be run, those whom it covered hear of the fault from the caller.
        """
        topic = self.open[partition.topic]
        directory = topic.facts.partition_directory(partition.number)
        fault = fault_of(partition.topic, partition.number, directory, cause)
        topic.partitions.fail(fault)
        if partition.is_dirty if plan is None else partition.has_more_than(plan):
            self.owed.append(fault)
        partition.discard()
        self.recovery.append(
            RecoveryEvent(
                EventKind.PARTITION_FAULTY, fault.path, fault.reason, fault.topic, fault.number
            )
        )
        return fault

    def note_ends(self, partitions: Sequence[Partition], now: Now) -> None:
        """Know durably how far these are: a sweep has changed them."""
        if partitions:
            self._note_ends(partitions, now)
            self._sync(with_checkpoint=False)

    def _note_ends(self, partitions: Sequence[Partition], now: Now) -> None:
        """What is not durable with the next sync is known a little later. On a full disk, the next time."""
        with suppress(NoSpace):
            for first in range(0, len(partitions), _RECORDS_A_BATCH):
                some = partitions[first : first + _RECORDS_A_BATCH]
                self._append([partition.ends() for partition in some], now)

    def topic_changed(self, name: str, now: Now) -> None:
        """Called after a topic was made, has grown, or is gone."""

    def create_topic(self, name: str, partitions: int, config: TopicConfig, now: Now) -> None:
        self._skip_ids_present(name, partitions, config, now)
        outcome = self.topics.create(name, partitions, config)
        facts = outcome.reply
        plan = FilesPlanned(facts.topic_id, facts.name, 0, partitions)
        self.record_meta((plan,), now)
        prepared = self._prepare(plan, facts, now)
        try:
            self.record_meta(outcome.records, now)
        except NoSpace:
            self._abandon([(plan, facts, prepared)], now)
            raise
        self._note_ends(prepared, now)
        self._add(self.topics.find(name), prepared)
        self.topic_changed(name, now)

    def _skip_ids_present(self, name: str, partitions: int, config: TopicConfig, now: Now) -> None:
        """Files may have come since the start: their ids are not given again, whatever they are."""
        if self.disk.exists(self.topics.create(name, partitions, config).reply.directory):
            self.record_meta((IdsUsed(max(ids_present(self.disk)) + 1),), now)

    def configure_topic(self, name: str, changes: Mapping[str, Any], now: Now) -> Topic:
        """Change settings; they hold from the next command on."""
        self.record_meta(self.topics.configure(name, changes), now)
        topic = self.topic(name)
        for partition in topic.partitions:
            partition.configure(topic.facts.config)
        return topic

    def add_partitions(self, name: str, total: int, now: Now) -> None:
        """More partitions; the dead-letter topic grows along, and every group reads the new ones from the start."""
        letters = self.topics.by_name.get(dead_letter_topic(name))
        grown = [self.topics.find(name)]
        if letters is not None and letters.partitions < total:
            grown.append(letters)
        records = [
            record
            for facts in grown
            for record in self.topics.add_partitions(facts.name, total, at_ns=now.wall_ns)
        ]
        plans = [FilesPlanned(one.topic_id, one.name, one.partitions, total) for one in grown]
        for plan, facts in zip(plans, grown, strict=True):
            self._require_free(plan, facts)
        self.record_meta(plans, now)
        prepared: list[Prepared] = []
        try:
            for plan, facts in zip(plans, grown, strict=True):
                prepared.append((plan, facts, self._prepare(plan, facts, now)))
            self.record_meta(records, now)
        except PenstockError as error:
            if not isinstance(error, Fatal):
                self._abandon(prepared, now)
            raise
        for _, facts, new in prepared:
            self._note_ends(new, now)
            self._add(facts, new)
        self._open_groups(self.topic(name), now)
        self.topic_changed(name, now)

    def _require_free(self, plan: FilesPlanned, facts: TopicFacts) -> None:
        """Refuse to use files that are there already; an attempt that failed before may have left its own."""
        before = self.topics.planned.get((plan.topic_id, plan.first))
        for number in range(plan.first, plan.total):
            path = facts.partition_directory(number)
            if not self.disk.exists(path):
                continue
            if before is None or number >= before.total or not is_untouched(self.disk, path):
                raise Refused(
                    f"{path} is there already and not known; a restart sets it aside", path=path
                )
            remove_partition(self.disk, path)

    def _open_groups(self, topic: Topic, now: Now) -> None:
        """If there is no room for it now, the next `open_group` does it."""
        names = {name for partition in topic.partitions for name, _ in partition.user_groups()}
        with suppress(NoSpace):
            for name in sorted(names):
                for partition in topic.partitions:
                    partition.open_group(name, partition.messages.start_offset, now)

    def delete_topic(self, name: str, now: Now) -> None:
        """Forget a topic and its dead letters durably, then their files; a recreated one has another directory."""
        names = [name, dead_letter_topic(name)]
        gone = [self.topics.find(name)]
        gone += [self.topics.by_name[one] for one in names[1:] if one in self.topics.by_name]
        self.record_meta([record for one in gone for record in self.topics.delete(one.name)], now)
        for facts in gone:
            for partition in self.open.pop(facts.name).partitions:
                partition.discard()
            remove_topic(self.disk, facts.directory)
            self.damage.forget(facts.name)
        # What a crash or a full disk leaves is finished by the next start.
        with suppress(NoSpace):
            self.record_meta([FilesRemoved(facts.topic_id) for facts in gone], now)
        self.topic_changed(name, now)

    def adopt(
        self, path: str, now: Now, *, name: str = "", config: TopicConfig | None = None
    ) -> Adoption:
        """Take a topic, or a partition, from `set-aside/` into meta, or one in its place as it is now.

        It is open after the next start. A crash on the way leaves it set aside, or the next start sets it aside again.
        """
        found = plan_adoption(
            self.disk,
            self.topics,
            path,
            name=name,
            config=config or TopicConfig(),
            at_ns=now.wall_ns,
        )
        if found.source != found.target:
            parent = found.target.rpartition("/")[0]
            self.disk.make_directories(parent)
            self.disk.move(found.source, found.target)
            self.disk.sync_directory(parent)
            self.disk.sync_directory(SET_ASIDE)
        for number, directory in found.partitions.items():
            forget_meta(self.disk, directory, PartitionId(found.topic_id, number))
        self.record_meta(found.records, now)
        return found

    def topic(self, name: str) -> Topic:
        try:
            return self.open[name]
        except KeyError:
            raise NotFound("topic", name) from None
        except TypeError:
            raise Refused(f"a topic's name is text, not {type(name).__name__}") from None

    def partition(self, topic: str, number: int) -> Partition:
        """A partition by its number. NotFound: there is none; PartitionFaulty: it cannot be used."""
        partitions = self.topic(topic).partitions
        try:
            if 0 <= number < len(partitions):
                return partitions[number]
        except TypeError:
            raise not_a_partition(number) from None
        raise NotFound("partition", f"{topic}/{number}")

    def faults(self) -> list[Fault]:
        """All partitions that cannot be used."""
        return [fault for topic in self.open.values() for fault in topic.partitions.faults]

    def partitions(self) -> Iterator[Partition]:
        """All partitions that serve."""
        for topic in self.open.values():
            yield from topic.partitions

    def close(self) -> None:
        ends = []
        for partition in [*self.partitions()]:
            try:
                partition.close()
                ends.append(partition.ends())
            except (FileMissing, DamagedFile) as error:
                self.fail(partition, error)
        with suppress(NoSpace):
            self.record_meta(ends, Now(self.meta.log.append_time, 0))
        self._take_snapshot()
        self.meta.log.close()
