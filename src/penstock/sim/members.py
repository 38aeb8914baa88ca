"""Members of groups: they poll, answer in any order, late, twice or never, go away and come back."""

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
from ..delivery import Answered
from ..delivery.offsets import each_offset
from ..errors import NotFound, PenstockError, Unavailable
from .place import Place
from .shell import Shell, Waiting

# How often each is chosen. Whoever only acks never finds out what happens to the others.
_MOODS = (
    *[Kind.ACK] * 12,
    *[Kind.NACK] * 4,
    Kind.REJECT,
    *[Kind.EXTEND] * 2,
)
OLD_KEPT = 12


@dataclass(slots=True, eq=False)
class Member:
    """One consumer. `is_draining`: polls, acks at once, and does nothing clever."""

    name: str
    group: str
    topic: str
    place: Place
    lease_ms: int
    hand: list[Received] = field(default_factory=list)
    # Receipts that were answered, or are too late: tried again now and then.
    old: list[Received] = field(default_factory=list)
    is_draining: bool = False
    received: int = 0
    answered: int = 0

    def wake(self) -> None:
        place = self.place
        place.wake_later(250 if self.is_draining else 420, self)
        shell = place.shell
        if shell is None:
            return
        if self.is_draining:
            self._poll(shell, 50)
            self._answer_all(shell, Kind.ACK, self.hand)
            return
        lot = place.entropy.random()
        if lot < 0.45:
            self._poll(shell, place.entropy.randint(1, 16))
        elif lot < 0.85:
            self._answer_some(shell)
        elif lot < 0.92:
            self._answer_all(shell, Kind.ACK, self.old[: place.entropy.randint(1, 4)])
        elif lot < 0.95:
            self._leave(shell)
        elif lot < 0.97:
            self.old, self.hand = self.hand[-OLD_KEPT:], []
        elif lot < 0.98:
            self._commit_one(shell)
        elif lot < 0.983:
            self._reset(shell)

    def nudge(self) -> None:
        """Something has come: whoever waits for it asks at once."""
        if self.place.shell is not None:
            self._poll(self.place.shell, 16)

    def _poll(self, shell: Shell, limit: int) -> None:
        scene = self.place.new_scene(f"{self.name} polls for {limit}")
        self.place.act(scene, lambda: self._lease(shell, limit))

    def _lease(self, shell: Shell, limit: int) -> None:
        try:
            leased = shell.execute(Poll(self.topic, self.group, self.name, limit, self.lease_ms))
        except Unavailable as error:
            self.place.note(f"refused: {error.code}")
            return
        self.place.books.follow(shell.node, self.place.scene)
        received = sorted(leased, key=attrgetter("partition"))
        for number, some in groupby(received, attrgetter("partition")):
            partition = shell.node.partition(self.topic, number)
            self.place.books.check_received(self.name, partition, [*some], self.place.scene)
        self.hand.extend(received)
        self.received += len(received)
        if received:
            got = [(one.partition, one.offset, one.attempts) for one in received]
            self.place.note(f"got {got}")

    def _answer_some(self, shell: Shell) -> None:
        if not self.hand:
            return
        entropy = self.place.entropy
        chosen = entropy.sample(self.hand, entropy.randint(1, min(8, len(self.hand))))
        self._answer_all(shell, entropy.choice(_MOODS), chosen)

    def _answer_all(self, shell: Shell, answer: Kind, chosen: Sequence[Received]) -> None:
        ordered = sorted(chosen, key=lambda one: (one.partition, one.lease, one.offset))
        for _, same in groupby(ordered, key=lambda one: (one.partition, one.lease)):
            if self.place.shell is not shell:
                return
            together = list(same)
            offsets = [one.offset for one in together]
            what = f"{self.name} {answer.value}s {offsets} of {together[0].receipt}"
            scene = replace(self.place.new_scene(what), rejecting=answer is Kind.REJECT)
            self.place.act(scene, partial(self._answer, shell, answer, together))

    def _answer(self, shell: Shell, answer: Kind, together: list[Received]) -> None:
        first = together[0]
        try:
            partition = shell.node.partition(first.topic, first.partition)
        except Unavailable as error:
            self.place.note(f"refused: {error.code}")
            return
        delivery = partition.machine.groups.get(first.place.group)
        if delivery is None:
            self._forget(answer, together)
            return
        book = self.place.books.by_place[first.topic, first.partition]
        offsets = BitMap64([one.offset for one in together])
        expected = book.expected_answers(first, offsets, self.place.scene)
        (outcome,) = shell.execute(Answer([self._said(answer, first, offsets)]))
        if isinstance(outcome, Unavailable):
            self.place.note(f"refused: {outcome.code}")
            return
        if isinstance(outcome, PenstockError):
            raise outcome
        repeated, stale = BitMap64(outcome.repeated), BitMap64(outcome.stale | outcome.missing)
        answered = Answered(done=offsets - repeated - stale, repeated=repeated, stale=stale)
        expected.check(answered, is_ack=answer is Kind.ACK)
        self._forget(answer, together)
        self._await_reply(shell, partition, len(answered.done))

    def _said(self, answer: Kind, first: Received, offsets: BitMap64) -> LeaseAnswer:
        reason = f"{self.name} does not like it" if answer in (Kind.NACK, Kind.REJECT) else ""
        ms = self.lease_ms * 2 if answer is Kind.EXTEND else None
        return LeaseAnswer(answer, *first.place, first.lease, [*each_offset(offsets)], reason, ms)

    def _forget(self, answer: Kind, together: list[Received]) -> None:
        """What was extended stays; of the rest some receipts are kept for mischief."""
        if answer is Kind.EXTEND:
            return
        gone = {id(one) for one in together}
        self.hand = [one for one in self.hand if id(one) not in gone]
        if self.place.entropy.random() < 0.5:
            self.old = (self.old + together)[-OLD_KEPT:]

    def _await_reply(self, shell: Shell, partition: Partition, done: int) -> None:
        state_at = partition.journal.log.end_offset
        self.answered += done

        def replied() -> None:
            book = self.place.books.by_place[partition.topic, partition.number]
            book.promises.state = max(book.promises.state, state_at)
            self.place.notice("replied")

        shell.hold(partition, Waiting(partition.messages.end_offset, state_at, replied))

    def _commit_one(self, shell: Shell) -> None:
        """Commit everything below an offset."""
        served = [*shell.node.topic(self.topic).partitions]
        if not served:
            return
        partition = self.place.entropy.choice(served)
        if self.group not in partition.machine.numbers:
            return
        log = partition.messages
        to = self.place.entropy.randint(log.start_offset, log.end_offset)
        offset = PartitionOffset(self.topic, partition.number, to)
        self._move(shell, Commit(self.group, (offset,)), to, [partition])

    def _reset(self, shell: Shell) -> None:
        """Begin again, from an offset that all partitions have."""
        served = [*shell.node.topic(self.topic).partitions]
        if not any(self.group in one.machine.numbers for one in served):
            return
        lowest = max(one.messages.start_offset for one in served)
        highest = min(one.messages.end_offset for one in served)
        if lowest <= highest:
            to = self.place.entropy.randint(lowest, highest)
            start = Start.at_offset(to)
            reset = ResetGroup(self.group, topic=self.topic, to=start, is_forced=True)
            self._move(shell, reset, to, served)

    def _move(
        self, shell: Shell, command: Command[Any], to: int, partitions: Sequence[Partition]
    ) -> None:
        numbers = [one.number for one in partitions]
        what = f"{self.name} moves {numbers} to {to} by {type(command).__name__}"
        scene = replace(self.place.new_scene(what), moving_to=to)

        def call() -> None:
            with suppress(Unavailable):
                shell.execute(command)
                for partition in partitions:
                    self._await_reply(shell, partition, 0)

        self.place.act(scene, call)

    def _leave(self, shell: Shell) -> None:
        scene = replace(self.place.new_scene(f"{self.name} disconnects"), leaving=self.name)
        self.place.act(scene, lambda: self._release(shell))

    def _release(self, shell: Shell) -> None:
        try:
            with suppress(NotFound):
                shell.execute(ReleaseMember(self.topic, self.group, self.name))
        except Unavailable as error:
            self.place.note(f"refused: {error.code}")
            return
        self.old, self.hand = self.hand[-OLD_KEPT:], []
