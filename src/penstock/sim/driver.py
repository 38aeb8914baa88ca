"""Drives one node as `runtime` does: performs its plans later, and holds replies until they are durable."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from ..api.command import Command
from ..api.principals import LOCAL, Principal
from ..broker.node import Node
from ..broker.partition import Now, Partition, PartitionPlan
from ..broker.partition.cleanup import clear_delayed, clear_staged
from ..broker.partition.removal import retain
from ..errors import NoSpace
from ..log import SyncPlan
from ..model import TopicPartition
from .schedule import MS, Schedule

R = TypeVar("R")
_SNAPSHOT_ONE_IN = 12
_ENTRIES_BEHIND_MAX, _ENTRIES_A_SNAPSHOT = 60, 8
# Of a slice of a walk.
_ENTRIES_MAX = 8


def name_of(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.number)


@dataclass(slots=True)
class PendingReply:
    """A reply that is released when the four logs are durable to these ends."""

    messages_at: int
    state_at: int
    release: Callable[[], None]
    delayed_at: int = 0
    staging_at: int = 0

    def is_due(self, partition: Partition) -> bool:
        is_stored = self.messages_at <= partition.messages.durable_end
        is_delayed = self.delayed_at <= partition.delayed.durable_end
        is_staged = self.staging_at <= partition.staging.durable_end
        is_recorded = self.state_at <= partition.journal.log.durable_end
        return is_stored and is_delayed and is_staged and is_recorded


@dataclass(slots=True)
class DriverHooks:
    """Calls by which a driver tells the world what it did."""

    act: Callable[[str, Callable[[], None]], None]
    notice: Callable[[str], None]
    synced: Callable[[Partition, PartitionPlan], None]


class SimDriver:
    """Runs a node from its start to a crash or a close. Once `is_over`, the calls that it scheduled do nothing."""

    def __init__(self, node: Node, schedule: Schedule, entropy: Random, hooks: DriverHooks) -> None:
        self.node, self.schedule, self.entropy, self.hooks = node, schedule, entropy, hooks
        self.is_over = False
        self.slowness = 1
        self.waiting: dict[TopicPartition, list[PendingReply]] = {}
        # Partitions with a plan on the way: nothing may trim their logs.
        self.busy: set[TopicPartition] = set()
        self.boot_ns = schedule.clock.monotonic_ns()
        # Apart from `entropy`, so that a seed means the same whatever logs a partition has.
        self._order = Random(self.boot_ns)  # noqa: S311 - the same in every run
        self._budgets = Random(self.boot_ns)  # noqa: S311 - as above
        # So small that a run uses it up again and again.
        replay = node.changes.replay
        replay.entries_max, replay.entries_min = _ENTRIES_BEHIND_MAX, _ENTRIES_A_SNAPSHOT

    def now(self) -> Now:
        clock = self.schedule.clock
        return Now(clock.now_ns(), clock.monotonic_ns() - self.boot_ns)

    def execute(self, command: Command[R], by: Principal = LOCAL) -> R:
        """Carry out a command, or raise what it was refused with."""
        return self.node.execute(command, by, self.now()).outcome()

    def later(self, delay_ms_max: int, what: str, call: Callable[[], None]) -> None:
        """Run a call after a random delay, unless this driver is over by then."""

        def alive() -> None:
            if not self.is_over:
                self.hooks.act(what, call)

        delay_ns = self.entropy.randint(0, delay_ms_max * MS * self.slowness)
        self.schedule.after(delay_ns, alive)

    def hold(self, partition: Partition, waiting: PendingReply) -> None:
        """Release a reply when its partition is durable, which may be now."""
        if waiting.is_due(partition):
            waiting.release()
        else:
            self.waiting.setdefault(name_of(partition), []).append(waiting)

    def sync_soon(self) -> None:
        """Start a plan for every partition that has something to sync and no plan yet."""
        known = self.node.changes.to_sync()
        # Whatever is written, the node knows where: what it forgot would never be synced.
        assert {*known} == {one for one in self.node.partitions() if one.is_dirty}
        for partition in known:
            name = name_of(partition)
            if name not in self.busy:
                self.busy.add(name)
                self._next(partition, 80, "plan", partial(self._plan, partition))

    def _next(
        self, partition: Partition, delay_ms_max: int, what: str, call: Callable[[], None]
    ) -> None:
        self.later(delay_ms_max, f"{what} {partition.topic}/{partition.number}", call)

    def _plan(self, partition: Partition) -> None:
        plan = self._choose_plan(partition)
        self.hooks.notice("planned")
        logs = plan.logs()
        # The threads of a real node sync them side by side.
        self._order.shuffle(logs)
        self._sync_next(partition, plan, logs)

    def _choose_plan(self, partition: Partition) -> PartitionPlan:
        if self.entropy.randint(1, 4) == 1:
            partition.messages.changed_checkpoint()
        replay = self.node.changes.replay
        replay.note(partition)
        if self.entropy.randint(1, _SNAPSHOT_ONE_IN) > 1 and replay.most() is not partition:
            return partition.plan_sync()
        # A new state segment before each snapshot, so that there is one to remove behind it.
        partition.journal.log.roll()
        return partition.plan_snapshot()

    def _sync_next(self, partition: Partition, plan: PartitionPlan, logs: list[SyncPlan]) -> None:
        log = logs.pop()
        sync = partial(self._sync, partition, plan, log, logs)
        self._next(partition, 10, f"sync {log.directory} of", sync)

    def _sync(
        self, partition: Partition, plan: PartitionPlan, log: SyncPlan, others: list[SyncPlan]
    ) -> None:
        log.sync_files()
        self.hooks.notice("state synced" if log is plan.state else "messages synced")
        if others:
            self._sync_next(partition, plan, others)
            return
        for one in plan.logs():
            one.write_checkpoint()
        if plan.snapshot is None:
            self._next(partition, 30, "report", partial(self._synced, partition, plan))
        else:
            self._next(partition, 10, "snapshot", partial(self._snapshot, partition, plan))

    def _snapshot(self, partition: Partition, plan: PartitionPlan) -> None:
        assert plan.snapshot is not None
        # On a full disk the logs are durable all the same; a later plan brings the snapshot.
        with suppress(NoSpace):
            plan.snapshot.run()
            plan.is_snapshot_written = True
        self.hooks.notice("snapshot")
        self._next(partition, 30, "report", partial(self._synced, partition, plan))

    def _synced(self, partition: Partition, plan: PartitionPlan) -> None:
        name = name_of(partition)
        self.busy.discard(name)
        self.node.synced([(partition, plan)], self.now())
        self.hooks.synced(partition, plan)
        for waiting in self.waiting.pop(name, []):
            self.hold(partition, waiting)
        sending = {one for one in self.node.partitions() if one.machine.outbox.pending}
        assert {*self.node.changes.to_send()} == sending
        self.node.pump(self.now())

    def tick(self) -> None:
        """Let time pass in the node."""
        now = self.now()
        self.node.tick(now)
        # Whatever is due, the node knows when: what it forgot would never happen.
        dues_ns = [one.next_due_ns(now, is_firing=True) for one in self.node.partitions()]
        assert self.node.next_due_ns() <= min(dues_ns, default=math.inf)

    def retain(self) -> None:
        refusal: NoSpace | None = None
        for partition in self.node.partitions():
            if name_of(partition) not in self.busy:
                try:
                    retain(partition, self.now())
                except NoSpace as error:
                    refusal = error
        self.clear_side_logs()
        if refusal is not None:
            raise refusal

    def clear_side_logs(self) -> None:
        for partition in self.node.partitions():
            if name_of(partition) not in self.busy:
                clear_delayed(partition, self.now())
                clear_staged(partition, self.now())
