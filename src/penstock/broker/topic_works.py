"""Topics that are made, that grow, and whose files are removed: in pieces, with other commands in between.

An intent in meta comes before the first file, and the record that makes the partitions known after the last: so a topic
is there with all of its partitions, or not at all. Files are made and removed by effects, which hold no lock. What a
crash or a change of leader interrupts, the next start removes, because of the intent.

A work belongs to the node and not to the client that asked for it. A walk that waits for a work takes its next step,
whichever walk began it; what no walk waits for is left to the driver, by `FinishTopics`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ..api.groups import Mode
from ..api.health import EventKind, RecoveryEvent
from ..config import TopicConfig
from ..errors import AlreadyExists, Fatal, NoSpace, PenstockError, Refused, Unavailable
from .directories import is_untouched, partition_number, remove_partitions, remove_topic
from .partition import Now, Partition, PartitionId
from .partition.dead_letters import dead_letter_topic
from .partition.opening import NewPartitions
from .settings_file import keep_settings
from .topics import FilesPlanned, FilesRemoved, TopicFacts, TopicRecord
from .walks import WAIT, Effect, Pieces, Slices, is_open

if TYPE_CHECKING:
    from .catalogue import Catalogue, Topic

PARTITIONS_A_PIECE = 20
"""So many are made, or removed, by one effect: a standby has them before more than one further piece is begun."""
# To forget so many groups of a partition takes as long as to close its logs.
_GROUPS_AN_ENTRY = 20


class Work:
    """Something that is done step by step, by whichever walk comes by."""

    def __init__(self, slices: Pieces[None]) -> None:
        self.is_over = False
        # How many walks wait for it: one of them takes the next step.
        self.walks = 0
        self._slices, self._is_begun = slices, False
        self._effect: Effect | None = None
        self._refusal: PenstockError | None = None

    def go_on(self, now: Now) -> int | Effect:
        """Take the next step, unless the driver of another walk runs an effect of it."""
        if self._effect is not None and not self._effect.is_over:
            return WAIT
        try:
            step = self._slices.send(now) if self._is_begun else next(self._slices)
        except StopIteration:
            self.is_over = True
            return 1
        except PenstockError as error:
            self.is_over = True
            if isinstance(error, Fatal):
                raise
            self._refusal = error.fresh()
            return 1
        self._is_begun = True
        self._effect = step if isinstance(step, Effect) else None
        return step

    def check(self) -> None:
        """Raise what it was refused with."""
        if self._refusal is not None:
            raise self._refusal.fresh()

    def run(self, now: Now) -> None:
        """Take all steps that are left, here and now. Unavailable: a driver runs an effect of it."""
        while not self.is_over:
            step = self.go_on(now)
            if step is WAIT:
                raise Unavailable("files of it are made at this moment; try again")
            if isinstance(step, Effect):
                step.run()

    def close(self) -> None:
        self._slices.close()


class Making(Work):
    """The making of a topic, or of more partitions of it. `wanted`: what was asked for; `before`: how many it had."""

    def __init__(
        self, slices: Pieces[None], wanted: tuple[int, TopicConfig | None], before: int = 0
    ) -> None:
        super().__init__(slices)
        self.wanted, self.before = wanted, before


class Removal(Work):
    """The removal of `directories`, which have so many `partitions`; some of which are still `opened`."""

    def __init__(
        self,
        slices: Pieces[None],
        directories: frozenset[str],
        partitions: int,
        opened: list[Partition],
    ) -> None:
        super().__init__(slices)
        self.directories, self.partitions, self._opened = directories, partitions, opened

    def close(self) -> None:
        super().close()
        _discard(self._opened)


@dataclass(slots=True)
class _Planned:
    """Partitions that an intent names, and those that are open, which no command uses yet."""

    plan: FilesPlanned
    facts: TopicFacts
    made: list[Partition] = field(default_factory=list)

    def pieces(self, size: int) -> Iterator[dict[str, PartitionId]]:
        """The partitions of each piece, by directory."""
        for first in range(self.plan.first, self.plan.total, size):
            numbers = range(first, min(first + size, self.plan.total))
            yield {
                self.facts.partition_directory(number): PartitionId(self.facts.topic_id, number)
                for number in numbers
            }


class TopicWorks:
    """What a node makes and removes. Not recorded: what is under way at a crash is in meta, as an intent."""

    def __init__(self, catalogue: "Catalogue") -> None:
        self._catalogue = catalogue
        # Of how many partitions; a simulation has smaller ones.
        self.piece = PARTITIONS_A_PIECE
        # By the name of each topic that is made, or that grows.
        self.makings: dict[str, Making] = {}
        # By topic id and first partition.
        self.removals: dict[tuple[int, int], Removal] = {}
        # By the name of each topic whose members have not all heard yet that it has changed.
        self.rebalances: dict[str, Work] = {}

    def _all(self) -> Sequence[Work]:
        return [*self.makings.values(), *self.removals.values(), *self.rebalances.values()]

    def unattended(self) -> Work | None:
        """A work that no walk waits for."""
        return next((work for work in self._all() if not work.walks), None)

    def attend(self, work: Work) -> Pieces[None]:
        """Take steps of a work until it is over."""
        work.walks += 1
        try:
            now = yield 1
            while not work.is_over:
                now = yield work.go_on(now)
        finally:
            work.walks -= 1

    def expect(self, now: Now) -> None:
        """Have the driver look for what no walk waits for."""
        changes = self._catalogue.changes
        changes.due_ns = min(changes.due_ns, now.monotonic_ns)

    def require_idle(self, name: str) -> None:
        """Unavailable: a topic is being made, or grows."""
        if name in self.makings:
            raise Unavailable(f"partitions of {name} are being made; try again")

    def discard(self) -> None:
        """End all of it, at the end of the node. The next start removes what is there."""
        for work in self._all():
            work.close()

    # Making

    def create(self, name: str, partitions: int, config: TopicConfig, now: Now) -> Making:
        """Begin to make a topic. One that is being made as it is asked for here is joined."""
        catalogue, wanted = self._catalogue, (partitions, config)
        making = self.makings.get(name)
        if making is not None:
            if making.wanted != wanted:
                raise AlreadyExists("topic", name)
            return making
        catalogue.skip_ids_present(name, partitions, config, now)
        outcome = catalogue.topics.create(name, partitions, config)
        facts = outcome.reply
        plan = FilesPlanned(facts.topic_id, facts.namespace, facts.name, 0, partitions)
        return self._begin([_Planned(plan, facts)], outcome.records, wanted, 0, now)

    def grow(self, name: str, total: int, now: Now) -> Making:
        """Begin to make more partitions of a topic, and of its dead-letter topic, which grows along."""
        catalogue, making = self._catalogue, self.makings.get(name)
        if making is not None and making.wanted == (total, None):
            return making
        self.require_idle(name)
        letters = catalogue.topics.get(dead_letter_topic(name))
        grown = [catalogue.topic(name).facts]
        if letters is not None and letters.partitions < total:
            self.require_idle(letters.name)
            grown.append(letters)
        records = [
            record
            for facts in grown
            for record in catalogue.topics.add_partitions(facts.name, total, at_ns=now.wall_ns)
        ]
        planned = [
            _Planned(
                FilesPlanned(facts.topic_id, facts.namespace, facts.name, facts.partitions, total),
                facts,
            )
            for facts in grown
        ]
        for one in planned:
            self._require_free(one.plan, one.facts)
        return self._begin(planned, records, (total, None), grown[0].partitions, now)

    def _begin(
        self,
        planned: Sequence[_Planned],
        records: Sequence[TopicRecord],
        wanted: tuple[int, TopicConfig | None],
        before: int,
        now: Now,
    ) -> Making:
        self._catalogue.record_meta([one.plan for one in planned], now)
        making = Making(self._make(planned, records, now), wanted, before)
        self.makings.update({one.facts.name: making for one in planned})
        return making

    def _require_free(self, plan: FilesPlanned, facts: TopicFacts) -> None:
        """Refuse to use files that are there already; an attempt that failed before may have left its own."""
        catalogue = self._catalogue
        if (plan.topic_id, plan.first) in self.removals:
            raise Unavailable(f"files of {facts.name} are being removed; try again")
        before = catalogue.topics.planned.get((plan.topic_id, plan.first))
        for number in range(plan.first, plan.total):
            path = facts.partition_directory(number)
            if not catalogue.disk.exists(path):
                continue
            if before is None or number >= before.total or not is_untouched(catalogue.disk, path):
                raise Refused(
                    f"{path} is there already and not known; a restart sets it aside", path=path
                )
            remove_partitions(catalogue.disk, [path])

    def _make(
        self, planned: Sequence[_Planned], records: Sequence[TopicRecord], now: Now
    ) -> Pieces[None]:
        """Make what intents name, piece by piece, and then have meta know it."""
        catalogue = self._catalogue
        try:
            for one in planned:
                catalogue.disk.make_directories(one.facts.directory)
                keep_settings(catalogue.disk, one.facts)
                now = yield 1
                yield from self._make_partitions(one, now)
            now = yield 1
            catalogue.record_meta(records, now)
        except PenstockError as error:
            if isinstance(error, Fatal):
                raise
            for one in planned:
                self.makings.pop(one.facts.name, None)
                now = yield from self._abandon(one, now)
            raise
        except GeneratorExit:
            for one in planned:
                _discard(one.made)
            raise
        is_growth = planned[0].plan.first > 0
        for one in planned:
            self.makings.pop(one.facts.name)
            facts = catalogue.topics.by_id[one.facts.topic_id]
            for partition in one.made:
                # Settings may have been changed since it was made.
                partition.configure(facts.config)
                catalogue.changes.enrol(partition)
            catalogue.append_ends(one.made, now)
            catalogue.add(facts, one.made)
        if is_growth:
            now = yield from self._open_groups(catalogue.topic(planned[0].facts.name), now)
        for one in planned:
            catalogue.topic_changed(one.facts.name, now)

    def rebalance(self, topic: str, slices: Slices[None], now: Now) -> None:
        """Begin to tell the members that read a topic of its change. What is left of an earlier one is told by this."""
        former = self.rebalances.pop(topic, None)
        if former is not None:
            former.close()
        self.rebalances[topic] = Work(self._rebalance(topic, slices))
        self.expect(now)

    def _rebalance(self, topic: str, slices: Slices[None]) -> Slices[None]:
        try:
            yield from slices
        finally:
            self.rebalances.pop(topic, None)

    def rebalanced(self, topics: Iterable[str]) -> Pieces[None]:
        """Return once the members that read some topics have heard of their changes."""
        for topic in topics:
            if (rebalance := self.rebalances.get(topic)) is not None:
                yield from self.attend(rebalance)
                rebalance.check()

    def _make_partitions(self, planned: _Planned, now: Now) -> Pieces[None]:
        catalogue = self._catalogue
        for directories in planned.pieces(self.piece):
            new = NewPartitions(catalogue.disk, directories, catalogue.context(planned.facts))
            try:
                files = Effect(new.make_files)
                now = yield files
                files.check()
                for _ in directories:
                    planned.made.append(new.open_next(now))
                    now = yield 1
            finally:
                new.discard()

    def _open_groups(self, topic: "Topic", now: Now) -> Pieces[Now]:
        """Every group reads new partitions from their start. If there is no room for it now, the next `open_group` does
        it."""
        names = {name for partition in topic.partitions for name, _ in partition.user_groups()}
        with suppress(NoSpace):
            for name in sorted(names):
                mode = _mode_of(topic, name)
                for partition in [*topic.partitions]:
                    # The topic may be deleted meanwhile.
                    if is_open(self._catalogue, partition):
                        start = partition.messages.start_offset
                        partition.open_group(name, start, now, mode=mode)
                    now = yield 1
        return now

    # Removing

    def _abandon(self, planned: _Planned, now: Now) -> Pieces[Now]:
        """Remove the files of partitions that meta does not know yet."""
        _discard(planned.made)
        removal = self.remove(planned.plan, now, is_whole=planned.plan.first == 0)
        return (yield from self.first_piece(removal, now))

    def delete(
        self,
        facts: TopicFacts,
        now: Now,
        opened: list[Partition] | None = None,
        *,
        reason: str = "",
    ) -> Removal:
        """Begin to remove the files of a topic that meta knows no more. `opened`: as for `remove`."""
        plan = FilesPlanned(facts.topic_id, facts.namespace, facts.name, 0, facts.partitions)
        return self.remove(plan, now, opened, is_whole=True, reason=reason)

    def remove(
        self,
        plan: FilesPlanned,
        now: Now,
        opened: list[Partition] | None = None,
        *,
        is_whole: bool,
        reason: str = "",
    ) -> Removal:
        """Begin to remove partitions, whose logs are used no more, and the directory of the topic, if it `is_whole`.

        `opened`: those that are to be closed first, each of which leaves the list then. `reason`: why a start does so.
        """
        catalogue, place, opened = self._catalogue, (plan.topic_id, plan.first), opened or []
        paths = [f"{plan.directory}/partition-{number}" for number in range(plan.first, plan.total)]
        for path in paths:
            catalogue.reign.closed(path)
        removal = Removal(
            self._remove(plan, paths, opened, is_whole, reason),
            frozenset([plan.directory] if is_whole else paths),
            len(paths),
            opened,
        )
        self.removals[place] = removal
        return removal

    def directories_removed(self) -> frozenset[str]:
        """The directories that are on their way out."""
        return frozenset().union(*(removal.directories for removal in self.removals.values()))

    def remove_few(self, now: Now) -> None:
        """At the end of a start: remove what is little here and now, and leave the rest for later."""
        left = self.piece
        for removal in [*self.removals.values()]:
            left -= removal.partitions
            if left >= 0:
                removal.run(now)

    def first_piece(self, removal: Work, now: Now) -> Pieces[Now]:
        """Remove as much as one effect does: all of a topic of few partitions. The rest goes on in the background."""
        removal.walks += 1
        try:
            while not removal.is_over:
                step = removal.go_on(now)
                now = yield step
                if step == self.piece:
                    self.expect(now)
                    break
        finally:
            removal.walks -= 1
        return now

    def _remove(
        self,
        plan: FilesPlanned,
        paths: Sequence[str],
        opened: list[Partition],
        is_whole: bool,
        reason: str,
    ) -> Pieces[None]:
        catalogue = self._catalogue
        now = yield 1
        while opened:
            partition = opened.pop()
            partition.discard()
            now = yield 1 + len(partition.machine.numbers) // _GROUPS_AN_ENTRY
        was_there = [path for path in paths if reason and catalogue.disk.exists(path)]
        was_topic_there = bool(reason) and is_whole and catalogue.disk.exists(plan.directory)
        try:
            for first in range(0, len(paths), self.piece):
                if first > 0:
                    now = yield self.piece
                piece = paths[first : first + self.piece]
                files = Effect(partial(remove_partitions, catalogue.disk, piece))
                now = yield files
                files.check()
                for path in piece:
                    catalogue.reign.removed(path)
            if is_whole:
                rest = Effect(partial(remove_topic, catalogue.disk, plan.directory))
                now = yield rest
                rest.check()
            # What a crash or a full disk leaves is finished by the next start.
            with suppress(NoSpace):
                catalogue.record_meta([FilesRemoved(plan.topic_id, plan.first)], now)
        finally:
            self.removals.pop((plan.topic_id, plan.first), None)
        if was_topic_there:
            catalogue.recovery.append(_removed(plan.directory, reason, plan.name, -1))
        elif not is_whole:
            for path in was_there:
                number = partition_number(path.rpartition("/")[2])
                assert number is not None
                catalogue.recovery.append(_removed(path, reason, plan.name, number))


def _removed(path: str, reason: str, topic: str, partition: int) -> RecoveryEvent:
    return RecoveryEvent(EventKind.LEFTOVER_REMOVED, path, reason, topic, partition)


def _mode_of(topic: "Topic", group: str) -> Mode:
    """How a group reads the partitions that it knows."""
    machines = [partition.machine for partition in topic.partitions]
    modes = (machine.modes.get(machine.numbers.get(group, 0)) for machine in machines)
    return next((mode for mode in modes if mode is not None), Mode.UNDECIDED)


def _discard(partitions: Sequence[Partition]) -> None:
    for partition in partitions:
        partition.discard()
