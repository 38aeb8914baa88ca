"""Members of shared groups: they poll, answer in any order, late, twice or never, disconnect and come back."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from pyroaring import BitMap64

from ..api.answers import Answer, Kind, LeaseAnswer, ReleaseMember
from ..api.command import Command
from ..api.consume import Poll
from ..api.groups import Commit, PartitionOffset, ResetGroup
from ..api.received import Received
from ..api.start import Start
from ..broker.partition import Partition
from ..delivery import AnswerResult
from ..delivery.offsets import each_offset
from ..errors import NotFound, PenstockError, Unavailable
from ..model import TopicPartition
from .answers import expected_answers
from .client import WorldView
from .driver import PendingReply, SimDriver

# How often each answer is chosen.
_ANSWERS = (
    *[Kind.ACK] * 12,
    *[Kind.NACK] * 4,
    Kind.REJECT,
    *[Kind.EXTEND] * 2,
)
OLD_KEPT = 12


@dataclass(slots=True, eq=False)
class Member:
    """One consumer. `is_draining`: it only polls and acks."""

    name: str
    group: str
    topic: str
    world: WorldView
    lease_ms: int
    leased: list[Received] = field(default_factory=list)
    # Messages that were answered or whose lease is over: the member answers them again now and then.
    old: list[Received] = field(default_factory=list)
    is_draining: bool = False
    # It does nothing before it drains.
    is_idle: bool = False
    received: int = 0
    answered: int = 0

    def wake(self) -> None:
        world = self.world
        world.wake_later(250 if self.is_draining else 420, self)
        driver = world.driver
        if driver is None or (self.is_idle and not self.is_draining):
            return
        if self.is_draining:
            self._poll(driver, 50)
            self._answer_all(driver, Kind.ACK, self.leased)
            return
        lot = world.entropy.random()
        if lot < 0.45:
            self._poll(driver, world.entropy.randint(1, 16))
        elif lot < 0.85:
            self._answer_some(driver)
        elif lot < 0.92:
            self._answer_all(driver, Kind.ACK, self.old[: world.entropy.randint(1, 4)])
        elif lot < 0.95:
            self._leave(driver)
        elif lot < 0.97:
            self.old, self.leased = self.leased[-OLD_KEPT:], []
        elif lot < 0.98:
            self._commit_one(driver)
        elif lot < 0.983:
            self._reset(driver)

    def poll_now(self) -> None:
        """Poll at once, as a waiting consumer does when messages come."""
        if self.world.driver is not None and not self.is_idle:
            self._poll(self.world.driver, 16)

    def _poll(self, driver: SimDriver, limit: int) -> None:
        event = self.world.new_event(f"{self.name} polls for {limit}")
        self.world.act(event, lambda: self._lease(driver, limit))

    def _lease(self, driver: SimDriver, limit: int) -> None:
        try:
            leased = driver.execute(Poll(self.topic, self.group, self.name, limit, self.lease_ms))
        except Unavailable as error:
            self.world.note(f"refused: {error.code}")
            return
        self.world.books.follow(driver.node, self.world.event)
        received = sorted(leased, key=attrgetter("partition"))
        for number, some in groupby(received, attrgetter("partition")):
            partition = driver.node.partition(self.topic, number)
            self.world.books.check_received(self.name, partition, [*some], self.world.event)
        self.leased.extend(received)
        self.received += len(received)
        if received:
            got = [(one.partition, one.offset, one.attempts) for one in received]
            self.world.note(f"got {got}")

    def _answer_some(self, driver: SimDriver) -> None:
        if not self.leased:
            return
        entropy = self.world.entropy
        chosen = entropy.sample(self.leased, entropy.randint(1, min(8, len(self.leased))))
        self._answer_all(driver, entropy.choice(_ANSWERS), chosen)

    def _answer_all(self, driver: SimDriver, answer: Kind, chosen: Sequence[Received]) -> None:
        ordered = sorted(chosen, key=lambda one: (one.partition, one.lease, one.offset))
        for _, same in groupby(ordered, key=lambda one: (one.partition, one.lease)):
            if self.world.driver is not driver:
                return
            together = list(same)
            offsets = [one.offset for one in together]
            what = f"{self.name} {answer.value}s {offsets} of {together[0].receipt}"
            event = replace(self.world.new_event(what), rejecting=answer is Kind.REJECT)
            self.world.act(event, partial(self._answer, driver, answer, together))

    def _answer(self, driver: SimDriver, answer: Kind, together: list[Received]) -> None:
        first = together[0]
        try:
            partition = driver.node.partition(first.topic, first.partition)
        except Unavailable as error:
            self.world.note(f"refused: {error.code}")
            return
        delivery = partition.machine.groups.get(first.place.group)
        if delivery is None:
            self._forget(answer, together)
            return
        book = self.world.books.by_partition[TopicPartition(first.topic, first.partition)]
        offsets = BitMap64([one.offset for one in together])
        group = book.groups.get(first.place.group)
        expected = expected_answers(group, first, offsets, self.world.event)
        (outcome,) = driver.execute(Answer([self._lease_answer(answer, first, offsets)]))
        if isinstance(outcome, Unavailable):
            self.world.note(f"refused: {outcome.code}")
            return
        if isinstance(outcome, PenstockError):
            raise outcome
        repeated, stale = BitMap64(outcome.repeated), BitMap64(outcome.stale | outcome.missing)
        answered = AnswerResult(done=offsets - repeated - stale, repeated=repeated, stale=stale)
        expected.check(answered, is_ack=answer is Kind.ACK)
        self._forget(answer, together)
        self._await_reply(driver, partition, len(answered.done))

    def _lease_answer(self, answer: Kind, first: Received, offsets: BitMap64) -> LeaseAnswer:
        reason = f"{self.name} does not like it" if answer in (Kind.NACK, Kind.REJECT) else ""
        ms = self.lease_ms * 2 if answer is Kind.EXTEND else None
        return LeaseAnswer(answer, *first.place, first.lease, [*each_offset(offsets)], reason, ms)

    def _forget(self, answer: Kind, together: list[Received]) -> None:
        """Drop answered messages from `leased`, unless they were extended; keep some to answer them again later."""
        if answer is Kind.EXTEND:
            return
        answered = {id(one) for one in together}
        self.leased = [one for one in self.leased if id(one) not in answered]
        if self.world.entropy.random() < 0.5:
            self.old = (self.old + together)[-OLD_KEPT:]

    def _await_reply(self, driver: SimDriver, partition: Partition, done: int) -> None:
        state_at = partition.journal.log.end_offset
        self.answered += done

        def replied() -> None:
            book = self.world.books.by_partition[TopicPartition(partition.topic, partition.number)]
            book.promises.state = max(book.promises.state, state_at)
            self.world.notice("replied")

        driver.hold(partition, PendingReply(partition.messages.end_offset, state_at, replied))

    def _commit_one(self, driver: SimDriver) -> None:
        """Commit everything below an offset."""
        served = [*driver.node.topic(self.topic).partitions]
        if not served:
            return
        partition = self.world.entropy.choice(served)
        if self.group not in partition.machine.numbers:
            return
        log = partition.messages
        to = self.world.entropy.randint(log.start_offset, log.end_offset)
        offset = PartitionOffset(self.topic, partition.number, to)
        self._move(driver, Commit(self.group, (offset,)), to, [partition])

    def _reset(self, driver: SimDriver) -> None:
        """Reset the group to an offset that all partitions have."""
        served = [*driver.node.topic(self.topic).partitions]
        if not any(self.group in one.machine.numbers for one in served):
            return
        lowest = max(one.messages.start_offset for one in served)
        highest = min(one.messages.end_offset for one in served)
        if lowest <= highest:
            to = self.world.entropy.randint(lowest, highest)
            start = Start.at_offset(to)
            reset = ResetGroup(self.group, topic=self.topic, to=start, is_forced=True)
            self._move(driver, reset, to, served)

    def _move(
        self, driver: SimDriver, command: Command[Any], to: int, partitions: Sequence[Partition]
    ) -> None:
        numbers = [one.number for one in partitions]
        what = f"{self.name} moves {numbers} to {to} by {type(command).__name__}"
        event = replace(self.world.new_event(what), moving_to=to)

        def call() -> None:
            with suppress(Unavailable):
                driver.execute(command)
                for partition in partitions:
                    self._await_reply(driver, partition, 0)

        self.world.act(event, call)

    def _leave(self, driver: SimDriver) -> None:
        event = replace(self.world.new_event(f"{self.name} disconnects"), leaving=self.name)
        self.world.act(event, lambda: self._release(driver))

    def _release(self, driver: SimDriver) -> None:
        try:
            with suppress(NotFound):
                driver.execute(ReleaseMember(self.topic, self.group, self.name))
        except Unavailable as error:
            self.world.note(f"refused: {error.code}")
            return
        self.old, self.leased = self.leased[-OLD_KEPT:], []
