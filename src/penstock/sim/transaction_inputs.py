"""Messages that clients of transactions consume: leased in a group of their own, and answered inside."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol

from ..api.answers import Answer, Kind, LeaseAnswer, ReleaseMember
from ..api.command import Command
from ..api.consume import Poll
from ..api.received import Received
from ..broker.partition import Partition
from ..errors import NotFound, StaleReceipt, Unavailable
from ..model import TopicPartition
from .client import WorldView
from .driver import PendingReply, SimDriver
from .transaction_book import INPUT_GROUP, InputPlace
from .violation import Checker, Violation


@dataclass(slots=True, eq=False)
class TransactionInputs:
    """Messages that one transaction answers, all in one way. `is_refused`: a lease was over before."""

    received: list[Received]
    kind: Kind
    is_answered: bool = False
    is_refused: bool = False
    # The life of the node in which the answers were sent last; -1: they have to be sent again.
    sent_in: int = -1
    # How often they were sent: a crash may keep what one partition had of them, and take that of another.
    times_sent: int = 0

    def places(self) -> set[InputPlace]:
        """What is finished with the commit."""
        if self.kind is not Kind.ACK:
            return set()
        return {(TopicPartition(one.topic, one.partition), one.offset) for one in self.received}

    def answers(self) -> list[LeaseAnswer]:
        ordered = sorted(self.received, key=lambda one: (one.partition, one.lease, one.offset))
        found = []
        for _, some in groupby(ordered, key=attrgetter("partition", "lease")):
            same = [*some]
            first, offsets = same[0], [one.offset for one in same]
            found.append(LeaseAnswer(self.kind, *first.place, first.lease, offsets))
        return found


@dataclass(slots=True, eq=False)
class InputTaker:
    """Polls for a client of transactions, which is a member of the group under its own name."""

    name: str
    topic: str
    world: WorldView
    taken: int = 0

    def poll(self, driver: SimDriver) -> TransactionInputs | None:
        """Lease some messages; None if there are none. Now and then the member disconnects at once."""
        entropy, received = self.world.entropy, list[Received]()
        limit = entropy.randint(1, 3)
        event = self.world.new_event(f"{self.name} takes {limit}")
        self.world.act(event, partial(self._lease, driver, limit, received))
        if not received:
            return None
        self.taken += len(received)
        return TransactionInputs(received, entropy.choice((Kind.ACK,) * 4 + (Kind.NACK,)))

    def _lease(self, driver: SimDriver, limit: int, received: list[Received]) -> None:
        lease_ms = driver.node.topic(self.topic).facts.config.visibility_timeout_ms
        try:
            leased = driver.execute(Poll(self.topic, INPUT_GROUP, self.name, limit, lease_ms))
        except Unavailable as error:
            self.world.note(f"refused: {error.code}")
            return
        self.world.books.follow(driver.node, self.world.event)
        found = sorted(leased, key=attrgetter("partition"))
        for number, some in groupby(found, attrgetter("partition")):
            partition = driver.node.partition(self.topic, number)
            self.world.books.check_received(self.name, partition, [*some], self.world.event)
        received += found

    def stage(
        self, driver: SimDriver, command: Command[Any], inputs: TransactionInputs, home: Partition
    ) -> None:
        """Send the answers inside of a transaction, as one event. They are answered when they are durable."""
        world = self.world
        inputs.times_sent += 1
        try:
            driver.execute(command)
        except Unavailable as error:
            inputs.sent_in = -1
            world.note(f"refused: {error.code}")
            return
        except StaleReceipt as error:
            world.note(f"refused: {error.code}")
            inputs.is_refused = True
            return
        inputs.sent_in = life = world.life
        world.books.follow(driver.node, world.event)
        numbers = {one.partition for one in inputs.received}
        partitions = [home, *(driver.node.partition(self.topic, one) for one in sorted(numbers))]
        missing = set(partitions)

        def arrived(which: Partition) -> None:
            missing.discard(which)
            if missing or world.life != life:
                return
            world.notice("replied")
            if world.entropy.random() < 0.15:
                inputs.sent_in = -1  # The reply is lost.
            else:
                inputs.is_answered = True

        for one in partitions:
            end = one.journal.log.end_offset
            driver.hold(one, PendingReply(0, end, partial(arrived, one)))

    def haunt(self, driver: SimDriver, received: Sequence[Received]) -> None:
        """Answer outside what belongs to a transaction. Violation: the answer is taken."""
        one = received[0]
        book = self.world.books.by_partition[TopicPartition(one.topic, one.partition)]
        group = book.groups.get(one.place.group)
        if group is None or not group.entry(one.offset).claims:
            return  # The transaction has timed out.
        if one.offset < driver.node.partition(one.topic, one.partition).messages.start_offset:
            return  # Retention has finished it.
        said = LeaseAnswer(Kind.ACK, *one.place, one.lease, [one.offset])
        (outcome,) = driver.execute(Answer([said]))
        if not isinstance(outcome, Exception) and one.offset not in outcome.stale:
            story = f"{self.name}: {one.receipt} belongs to a transaction, and was answered outside"
            raise Violation(Checker.LEASE_EXCLUSIVE, story)

    def leave(self, driver: SimDriver) -> None:
        """Disconnect, as one event: what transactions have of this member does not come back to it."""
        event = replace(self.world.new_event(f"{self.name} disconnects"), leaving=self.name)
        self.world.act(event, partial(self._release, driver))

    def _release(self, driver: SimDriver) -> None:
        try:
            driver.execute(ReleaseMember(self.topic, INPUT_GROUP, self.name))
        except (NotFound, Unavailable) as error:
            self.world.note(f"refused: {error.code}")


class InputClient(Protocol):
    """A client of transactions that may consume, too."""

    name: str
    taker: InputTaker | None


def equip(clients: Sequence[InputClient], topic: str, world: WorldView) -> None:
    """Have clients consume in their transactions."""
    for one in clients:
        one.taker = InputTaker(one.name, topic, world)
