"""A member of an assigned group, in the process."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from ..api.arguments import instance, several, text, whole_count, whole_number
from ..api.groups import Mode, PartitionOffset
from ..api.members import (
    Assignor,
    CommitAsMember,
    Heartbeat,
    JoinReply,
    LeaveGroup,
    PollMember,
    ReleasePartitions,
    Standing,
)
from ..api.received import Received
from ..api.units import Duration, duration_ms, duration_ns, priority_of
from ..errors import NotOwner, Refused, StaleGeneration, UnknownMember
from ..model import Priority, TopicPartition
from ..runtime.group_polls import FOR_EVER
from ..runtime.threads import ThreadDriver

ORDERS = {"relaxed": Mode.RELAXED, "strict": Mode.STRICT}
ASSIGNORS = {one.value: one for one in Assignor}

Told = Callable[[list[str]], object]
"""Hears of partitions, written as "orders/0"."""

Reached = Received | Iterable[Received] | Mapping[str, int]
"""How far a member has come: messages, or the next offset to be read by partition ("orders/0")."""


class Member:
    """Reads partitions that no other member of its group reads. Made by `Broker.join`; leaving is for the end.

        with broker.join("orders", "billing", order="strict") as member:
            for message in member.poll(timeout=5):
                ...
                member.commit(message)

    It has to call something at least once within its session timeout: `poll` (a poll that waits counts all the time),
    `commit` or `heartbeat`. Otherwise it is missed, its partitions pass on, and its next call raises UnknownMember:
    join again. When the group changes, `poll` and `heartbeat` first say so to `on_revoked` and `on_assigned`, and then
    release what has to pass on. Without `on_revoked` a partition is released when all its messages are answered.
    """

    def __init__(
        self,
        driver: ThreadDriver,
        group: str,
        joined: JoinReply,
        *,
        on_revoked: Told | None,
        on_assigned: Told | None,
    ) -> None:
        self._driver, self.group = driver, group
        self.id, self.generation = joined.member, joined.standing.generation
        self._on_revoked, self._on_assigned = on_revoked, on_assigned
        self._told: frozenset[TopicPartition] = frozenset()
        self.assigned: list[str] = []
        self._tell(joined.standing)

    def poll(
        self,
        *,
        limit: int = 500,
        timeout: Duration | None = 0,
        visibility_timeout: Duration | None = None,
        priority: str | int | None = None,
        request_id: str = "",
    ) -> list[Received]:
        """Messages of this member's partitions; an empty list if there is none before the time is up.

        Each is lent for `visibility_timeout` (its topic's, if not said): ack it or commit beyond it, or it comes back.
        With `priority` it takes from that lane only, unless the order is strict: then there are no lanes. A
        `request_id` that comes again gets the same messages again.
        """
        clock, count = self._driver.clock, whole_count("limit", limit)
        if not count:
            timeout = 0  # To wait would be for ever: no message comes.
        until_ns = None if timeout is None else clock.monotonic_ns() + duration_ns(timeout)
        lent_ms = None if visibility_timeout is None else duration_ms(visibility_timeout)
        lane = None if priority is None else Priority(priority_of(priority))
        text("request_id", request_id)
        while True:
            # A member that asks for more is done with what auto commit has to ack.
            heard = self._hear(finishes_last=True)
            command = PollMember(
                self.group,
                self.id,
                count,
                heard.generation,
                lent_ms,
                lane,
                request_id,
                changes=heard.changes,
            )
            left_ns = FOR_EVER if until_ns is None else max(0, until_ns - clock.monotonic_ns())
            try:
                messages = self._driver.members.poll(command, left_ns).messages()
            except StaleGeneration:
                continue  # A member came or went a moment ago; the next heartbeat tells of it.
            if messages or (until_ns is not None and clock.monotonic_ns() >= until_ns):
                return messages

    def heartbeat(self) -> None:
        """Say that this member is still there; hear, and do, what `poll` would."""
        self._hear()

    def _hear(self, *, finishes_last: bool = False) -> Standing:
        """Say that this member is there; tell of what changed, and release what was asked back."""
        heard = self._beat(finishes_last=finishes_last)
        is_released = not heard.to_release
        while not is_released:
            # What was asked back may have been taken a moment ago; the next heartbeat tells.
            with suppress(NotOwner, StaleGeneration):
                self._give_up(heard)
                is_released = True
            heard = self._beat()
        return heard

    def _beat(self, *, finishes_last: bool = False) -> Standing:
        beat = Heartbeat(self.group, self.id, self.generation, finishes_last)
        heard = self._driver.execute(beat)
        self._tell(heard)
        return heard

    def _tell(self, heard: Standing) -> None:
        """Take note of what changed, and let the callbacks know."""
        before, now = self._told, frozenset(heard.assigned)
        self.generation, self.assigned = heard.generation, _written(heard.assigned)
        self._told = now
        if before - now and self._on_revoked is not None:
            self._on_revoked(_written(before - now))
        if now - before and self._on_assigned is not None:
            self._on_assigned(_written(now - before))

    def _give_up(self, heard: Standing) -> None:
        """Release what was asked back; without a callback only what has no message in our hands."""
        release = ReleasePartitions(
            self.group,
            self.id,
            heard.to_release,
            heard.generation,
            keeps_held=self._on_revoked is None,
        )
        self._driver.execute(release)

    def commit(self, reached: Reached, *, generation: int | None = None) -> bool:
        """Finish everything up to these messages, or below these offsets; False if all of it was finished already.

        NotOwner: a partition has passed on. StaleGeneration: the group has changed since the `generation` given.
        """
        offsets = _offsets_of(reached)
        if generation is not None:
            whole_number("generation", generation)
        while True:
            known = generation
            if known is None:
                known = self._beat().generation
            try:
                return self._driver.execute(CommitAsMember(self.group, self.id, offsets, known))
            except StaleGeneration:
                if generation is not None:
                    raise
                # A member came or went a moment ago; the next heartbeat tells of it.

    def leave(self) -> None:
        """Be a member no more: its partitions and what it holds pass on at once. Leaving twice does nothing."""
        with suppress(UnknownMember):
            self._driver.execute(LeaveGroup(self.group, self.id, self.generation))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A member that was missed or replaced meanwhile has nothing left to leave.
        with suppress(StaleGeneration):
            self.leave()


def _written(partitions: Iterable[TopicPartition]) -> list[str]:
    return [str(one) for one in sorted(partitions)]


def _offsets_of(reached: Reached) -> tuple[PartitionOffset, ...]:
    if isinstance(reached, Mapping):
        return tuple(
            PartitionOffset(*_read(name), whole_number(f"the offset of {name}", offset))
            for name, offset in reached.items()
        )
    offsets: dict[TopicPartition, int] = {}
    given = [reached] if isinstance(reached, Received) else reached
    for one in several("messages to commit", given):
        instance("a message", one, Received)
        partition = TopicPartition(one.topic, one.partition)
        offsets[partition] = max(offsets.get(partition, 0), one.offset + 1)
    return tuple(PartitionOffset(*partition, offset) for partition, offset in offsets.items())


def _read(name: str) -> TopicPartition:
    topic, _, number = text("a partition", name).rpartition("/")
    if not topic or not number.isdecimal():
        raise Refused(f'a partition is written like "orders/0", not {name!r}')
    return TopicPartition(topic, int(number))
