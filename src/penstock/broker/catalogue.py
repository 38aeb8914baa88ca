"""The topics of one data directory: created, changed, deleted, and opened again after a restart.

Files come before the record that needs them and go after the record that forgets them, so that a crash or a full disk
leaves at most files that no record knows. Those are removed at the next start.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..config import CACHE_BYTES, LimitsConfig, LogConfig, TopicConfig
from ..errors import FileMissing, NoSpace, NotFound, Refused
from ..log import open_log
from ..log.journal import Journal
from ..log.records import RecordFormat
from ..model import Epoch, LogEnd, LogId, Offset
from ..ports import Disk, Entropy
from .letters import dead_letter_topic
from .partition import Now, Partition, PartitionId, Setting, open_partition
from .publishing import Router, not_a_partition
from .queries import QueryForgotten, QueryStarted
from .recovery import RecoveryEvent, log_events, partition_events
from .shelf import BatchCache
from .topics import PARTITIONS_DEFAULT, GenerationsUsed, TopicFacts, TopicRecord, Topics

_META = "meta"
_TOPICS = "topics"
_META_LOG_ID = LogId(1)
_META_CONFIG = LogConfig(segment_size_bytes=8 << 20, retention_hours=-1)
# The meta journal rests on no message log, so nothing in it is ever beyond one.
_NO_MESSAGES = LogEnd(Epoch(0), Offset(0))
_RECORDS_A_SNAPSHOT = 1000
_FORMAT: RecordFormat[TopicRecord] = RecordFormat(TopicRecord)


@dataclass(slots=True)
class Topic:
    """A topic that is open."""

    facts: TopicFacts
    partitions: list[Partition] = field(default_factory=list)
    router: Router = field(default_factory=Router)
    # Which partition the next poll looks at first.
    turn: int = 0


class Catalogue:
    """All topics, open. Changes are few and everything else rests on them, so each is durable when it returns."""

    def __init__(
        self,
        disk: Disk,
        *,
        now: Now,
        entropy: Entropy,
        limits: LimitsConfig,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.disk, self.entropy, self.limits = disk, entropy, limits
        self.cache = BatchCache(cache_bytes)
        # What this start found and did, in order. Read by the driver, metrics and health.
        self.recovery: list[RecoveryEvent] = []
        log, found = open_log(disk, _META, log_id=_META_LOG_ID, config=_META_CONFIG)
        self.recovery.extend(log_events(_META, found))
        self.meta: Journal[TopicRecord] = Journal(log, _FORMAT)
        self.topics = Topics()
        replayed = self.meta.recover(self.topics, message_end=log.end)
        self._records_since_snapshot = replayed.records
        self.open: dict[str, Topic] = {}
        self._remove_leftovers()
        for facts in self.topics.by_name.values():
            # Whatever keeps one from opening, what is there stays there.
            self._add(facts, [self._open(facts, number, now) for number in range(facts.partitions)])

    def _prepare(self, facts: TopicFacts, numbers: Iterable[int], now: Now) -> list[Partition]:
        """Make partitions that nobody knows yet. NoSpace: nothing of them is left."""
        made: list[Partition] = []
        for number in numbers:
            # A power cut may have brought back some files of one that was given up.
            self._remove_partition(facts, number)
            try:
                made.append(self._open(facts, number, now))
            except NoSpace:
                self._abandon(facts, made)
                self._remove_partition(facts, number)
                raise
        return made

    def _open(self, facts: TopicFacts, number: int, now: Now) -> Partition:
        setting = Setting(facts.name, facts.config, self.limits, self.entropy, self.cache)
        directory = f"{facts.directory}/partition-{number}"
        identity = PartitionId(facts.topic_id, number)
        partition, opening = open_partition(self.disk, directory, identity, setting, now=now)
        self.recovery.extend(
            partition_events(directory, opening, topic=facts.name, partition=number)
        )
        return partition

    def _abandon(self, facts: TopicFacts, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            partition.discard()
            self._remove_partition(facts, partition.number)

    def _add(self, facts: TopicFacts, partitions: Sequence[Partition]) -> Topic:
        topic = self.open.get(facts.name)
        if topic is None:
            topic = self.open[facts.name] = Topic(facts, router=Router(former=facts.former))
        topic.partitions.extend(partitions)
        return topic

    def _record(self, records: Sequence[TopicRecord], now: Now) -> None:
        self.meta.append(records, decided_at=_NO_MESSAGES, now_ns=now.wall_ns)
        self.meta.log.sync()
        for record in records:
            self.topics.apply(record)
        self._records_since_snapshot += len(records)
        if self._records_since_snapshot >= _RECORDS_A_SNAPSHOT:
            self._take_snapshot()

    def reserve_generations(self, below: int, now: Now) -> None:
        """Make sure, durably, that no later life of the node gives a generation below this one again."""
        if below > self.topics.next_generation:
            self._record((GenerationsUsed(below),), now)

    def keep_query_start(self, start: QueryStarted, now: Now) -> QueryStarted:
        """Where a query first began, durably; what is kept already wins if it asked for the same."""
        kept = self.topics.queries.keep(start.name, start.asked, start.offsets, start.ids)
        if kept is not self.topics.queries.by_name.get(kept.name):
            self._record((kept,), now)
        return kept

    def forget_query_start(self, name: str, now: Now) -> None:
        self.topics.queries.find(name)
        self._record((QueryForgotten(name),), now)

    def _take_snapshot(self) -> None:
        """It names a position in its own log in place of a message log."""
        plan = self.meta.plan_snapshot(self.meta.log, self.topics)
        with suppress(NoSpace):
            plan.run()
            self.meta.synced(self.meta.log, plan)
            self._records_since_snapshot = 0

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = PARTITIONS_DEFAULT,
        config: TopicConfig | None = None,
        now: Now,
    ) -> Topic:
        outcome = self.topics.create(name, partitions, config or TopicConfig())
        prepared = self._prepare(outcome.reply, range(partitions), now)
        try:
            self._record(outcome.records, now)
        except NoSpace:
            self._abandon(outcome.reply, prepared)
            raise
        return self._add(self.topics.find(name), prepared)

    def configure_topic(self, name: str, changes: dict[str, Any], now: Now) -> Topic:
        """Change settings; they hold from the next command on."""
        self._record(self.topics.configure(name, changes), now)
        topic = self.topic(name)
        for partition in topic.partitions:
            partition.configure(topic.facts.config)
        return topic

    def add_partitions(self, name: str, total: int, now: Now) -> Topic:
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
        prepared: list[tuple[TopicFacts, list[Partition]]] = []
        try:
            for facts in grown:
                new = self._prepare(facts, range(facts.partitions, total), now)
                prepared.append((facts, new))
            self._record(records, now)
        except NoSpace:
            for facts, new in prepared:
                self._abandon(facts, new)
            raise
        for facts, new in prepared:
            self._add(facts, new)
        self._open_groups(self.topic(name), now)
        return self.topic(name)

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
        self._record([record for one in gone for record in self.topics.delete(one.name)], now)
        for facts in gone:
            self._abandon(facts, self.open.pop(facts.name).partitions)

    def _remove_leftovers(self) -> None:
        """Files of topics that no record knows: a creation or a deletion was interrupted."""
        for entry in self.disk.list(_TOPICS):
            number = entry.rpartition(".")[2]
            if number.isdecimal() and int(number) not in self.topics.by_id:
                directory = f"{_TOPICS}/{entry}"
                for partition in self.disk.list(directory):
                    self._remove_files(f"{directory}/{partition}")
                self._remove_empty(directory)

    def _remove_partition(self, facts: TopicFacts, number: int) -> None:
        """And the directory of its topic, if it was the only one."""
        directory = f"{facts.directory}/partition-{number}"
        if self.disk.exists(directory):
            self._remove_files(directory)
            self._remove_empty(facts.directory)

    def _remove_files(self, directory: str) -> None:
        for kind in self.disk.list(directory):
            for file in self.disk.list(f"{directory}/{kind}"):
                self.disk.remove(f"{directory}/{kind}/{file}")
            self._remove_empty(f"{directory}/{kind}")
        self._remove_empty(directory)

    def _remove_empty(self, directory: str) -> None:
        """What somebody else put there stays, and the directory with it. What a crash leaves goes at the next start."""
        with suppress(Refused, FileMissing, NoSpace):
            self.disk.remove_directory(directory)

    def topic(self, name: str) -> Topic:
        try:
            return self.open[name]
        except KeyError:
            raise NotFound("topic", name) from None
        except TypeError:
            raise Refused(f"a topic's name is text, not {type(name).__name__}") from None

    def partition(self, topic: str, number: int) -> Partition:
        partitions = self.topic(topic).partitions
        try:
            if 0 <= number < len(partitions):
                return partitions[number]
        except TypeError:
            raise not_a_partition(number) from None
        raise NotFound("partition", f"{topic}/{number}")

    def partitions(self) -> Iterator[Partition]:
        for topic in self.open.values():
            yield from topic.partitions

    def close(self) -> None:
        for partition in self.partitions():
            partition.close()
        self._take_snapshot()
        self.meta.log.close()
