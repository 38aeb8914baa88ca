"""A cluster of two or three nodes that a person watches: who leads is said, and epochs fence.

Clients publish and poll at whichever node thinks that it leads. Nodes crash, lose their disks, are cut off in one
direction or both; an operator promotes another one, as the runbook says. `ClusterBook` holds what was promised.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from ..api.answers import Answer, Kind, LeaseAnswer
from ..api.consume import Poll
from ..api.dead_letters import DEAD_LETTER_SUFFIX
from ..api.leased import LeasedMessages
from ..api.publish import Publish
from ..api.topics import CreateTopic
from ..codec import decode_messages
from ..errors import Fenced, HistoryLost, MalformedBatch, PenstockError
from ..log import Log
from ..model import Message
from ..replication.ballots import next_ballot
from ..replication.reconcile import asked_min, longest
from ..replication.replica import Replica
from .cluster_member import Member
from .history import History
from .network import SimNetwork
from .schedule import MS, SECOND, Schedule, SimClock
from .topic_client import TopicClient
from .violation import Checker, Violation

TOPIC, GROUP = "orders", "billing"
_WALL_NS = 1_700_000_000 * SECOND
_HOUR_MS = 3600 * 1000
_FORCE_MS = 2500


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """What a run was."""

    seed: int
    acked: int
    leased: int
    promotions: int
    forced: int
    crashes: int
    simulated_s: float


class ClusterBook(History):
    """Promises made to clients, and whether the log of a leader keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        # Messages that a client was told to be dead letters, by partition.
        self.rejected: dict[int, set[bytes]] = {0: set(), 1: set()}

    def forget_lost(self, logs: Mapping[int, Log]) -> None:
        """A leader was forced: promises are kept of what its logs have, and of no lease or dead letter."""
        there = {number: _values(log) for number, log in logs.items()}
        self.acked = {
            (name, offset): value
            for (name, offset), value in self.acked.items()
            if name in there and there[name].get(offset) == value
        }
        self.leased.clear()
        self.rejected = {number: set() for number in self.rejected}

    def check(self, partition: int, log: Log) -> None:
        """Whether a log has all that was acknowledged, where it was, and no value twice."""
        self.check_content(partition, _values(log))

    def check_dead_letters(self, partition: int, log: Log, *, is_all_sent: bool) -> None:
        """Whether no message is twice in a log of dead letters; and all that were rejected are, if `is_all_sent`."""
        values = [*_values(log).values()]
        if len({*values}) != len(values):
            raise Violation(Checker.DLQ_ATOMIC, f"a message is twice among dead letters: {values}")
        missing = self.rejected[partition].difference(values)
        if missing and is_all_sent:
            raise Violation(Checker.DLQ_ATOMIC, f"rejected, and no dead letter: {sorted(missing)}")


class ClusterWorld:
    """One run of one seed."""

    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 2,
        min_isr: int = 2,
        seconds: int = 10,
        is_forced: bool = False,
    ) -> None:
        self.entropy = Random(seed)  # noqa: S311  # Chance that repeats, nothing secret.
        self.clock = SimClock(_WALL_NS)
        self.schedule = Schedule(self.clock)
        self.network = SimNetwork(self.schedule, self.entropy)
        self.seed, self.min_isr, self.seconds = seed, min_isr, seconds
        self.members = {number: Member(self, number) for number in range(1, nodes + 1)}
        self.book = ClusterBook()
        self.topics = TopicClient(self, Random(f"topics {seed}"))  # noqa: S311  # As above.
        self.promotions = self.forced = self.crashes = 0
        # Whether operators force nodes to lead that may lack what was acknowledged.
        self.is_forced = is_forced
        self.is_calm = False

    def run(self) -> ClusterResult:
        for member in self.members.values():
            member.start()
        self._begin()
        self.later(40, self._publish)
        self.later(200, self._poll)
        self.topics.wake()
        self.later(1500, self._misfortune)
        self.later(700, self._watch)
        if self.is_forced:
            self.later(_FORCE_MS, self._force)
        self._run_to(self.seconds)
        # Everything heals, and then all of it has to be there, on every node.
        self.is_calm = True
        self.network.cuts.clear()
        for member in self.members.values():
            member.disk.faults.clear()
            if not member.is_up:
                member.start()
        for _ in range(20):
            self._run_to(self.clock.monotonic_ns() / SECOND + 1)
            if self._is_level():
                break
        self._check_all()
        return ClusterResult(
            self.seed,
            len(self.book.acked),
            len(self.book.leased),
            self.promotions,
            self.forced,
            self.crashes,
            self.clock.monotonic_ns() / SECOND,
        )

    def _run_to(self, seconds: float) -> None:
        until_ns = int(seconds * SECOND)
        while self.schedule.step(until_ns):
            pass

    def later(self, ms_max: int, call: Callable[[], None]) -> None:
        self.schedule.after(self.entropy.randint(1, ms_max * MS), call)

    def _begin(self) -> None:
        """The first leader is said when there is nothing yet."""
        first = self.members[1]
        assert first.replica is not None
        first.lead(next_ballot(0, 1), self.min_isr)
        self.later(300, self._create)

    def _create(self) -> None:
        if self.book.acked:
            return
        for member in self.leaders():
            assert member.node is not None
            if TOPIC not in member.node.open:
                member.execute(
                    CreateTopic(
                        TOPIC,
                        2,
                        {
                            "segment_size_bytes": 1500,
                            "index_interval_bytes": 512,
                            # State is let go with its snapshot, so that followers live on these, too.
                            "journey_retention_hours": 0,
                            "journey_retention_bytes": 0,
                        },
                    ),
                    lambda _: None,
                )
        self.later(300, self._create)

    def leaders(self) -> list[Member]:
        """All that think so."""
        return [one for one in self.members.values() if one.leader is not None]

    def _publish(self) -> None:
        if self.is_calm:
            return
        self.later(40, self._publish)
        for member in self.leaders():
            assert member.node is not None
            if TOPIC not in member.node.open:
                continue
            self.book.sent += 1
            value = b"%d" % self.book.sent

            def acked(reply: object, value: bytes = value) -> None:
                assert isinstance(reply, Sequence)
                self.book.published(reply[0].partition, reply[0].offset, value)

            member.execute(Publish(TOPIC, [Message(value)]), acked)

    def _poll(self) -> None:
        if self.is_calm:
            return
        self.later(200, self._poll)
        for member in self.leaders():
            assert member.node is not None
            assert member.leader is not None
            if TOPIC not in member.node.open:
                continue
            epoch = member.leader.epoch

            def leased(reply: object, epoch: int = epoch, member: Member = member) -> None:
                assert isinstance(reply, LeasedMessages)
                for one in reply:
                    self.book.handed_out(one.partition, one.offset, one.data, epoch)
                if reply and self.entropy.randint(0, 3) == 0:
                    self._reject(member, reply)

            member.execute(Poll(TOPIC, GROUP, f"m{member.number}", 3, _HOUR_MS), leased)

    def _reject(self, member: Member, held: LeasedMessages) -> None:
        """Have all of these become dead letters, at the node that has lent them, if it still leads."""
        if member.leader is None:
            return

        def rejected(reply: object) -> None:
            assert isinstance(reply, list)
            for answer, outcome in zip(answers.answers, reply, strict=True):
                if not isinstance(outcome, PenstockError):
                    self.book.rejected[answer.partition] |= {
                        one.data
                        for one in held
                        if one.partition == answer.partition and one.offset in outcome.finished
                    }

        answers = Answer(
            [
                LeaseAnswer(Kind.REJECT, *part.place, part.lease, [*part.offsets])
                for part in held.leased()
            ]
        )
        member.execute(answers, rejected)

    def _misfortune(self) -> None:
        self.later(1500, self._misfortune)
        if self.is_calm:
            return
        members = [*self.members.values()]
        one = members[self.entropy.randint(0, len(members) - 1)]
        other = members[self.entropy.randint(0, len(members) - 1)]
        match self.entropy.randint(0, 9):
            case 0 | 1 if one.is_up:
                one.crash()
                self.restart_soon(one)
            case 2 if one.is_up:
                one.fail_soon()
            case 3 if one.is_up:
                one.stop()
            case 4 | 5 if one is not other:
                cut = (one.number, other.number)
                self.network.cuts.add(cut)
                self.later(3000, partial(self.network.cuts.discard, cut))
            case 6 if one is not other:
                both = {(one.number, other.number), (other.number, one.number)}
                self.network.cuts |= both
                self.later(3000, partial(self.network.cuts.difference_update, both))
            case 7 if self._may_lose(one):
                one.crash(is_empty=True)
                self.restart_soon(one)
            case _:
                self._promote()

    def _may_lose(self, one: Member) -> bool:
        """A disk may be lost while every other node has all that this one confirmed."""
        leaders = self.leaders()
        if one.leader is not None or len(leaders) != 1 or not one.is_up:
            return False
        leader = leaders[0].leader
        assert leader is not None
        return leader.in_sync == len(self.members)

    def crashed(self, member: Member) -> None:
        self.crashes += 1
        if not self.is_calm:
            self.restart_soon(member)

    def restart_soon(self, member: Member) -> None:
        life = member.life

        def again() -> None:
            if member.life == life and not member.is_up:
                member.start()

        self.later(1200, again)

    def _watch(self) -> None:
        """Look again and again whether there is a leader."""
        self.later(700, self._watch)
        if not self.leaders():
            self._promote()

    def _promote(self) -> None:
        """Do as the runbook says: ask enough nodes that have lost nothing, have them promise, take the longest."""
        asked = [
            one
            for one in self.members.values()
            if one.replica is not None and one.replica.is_whole and one.faulty is None
        ]
        # Before anything was acknowledged there is nothing to lose, and an operator begins by force. All are up then: a
        # node that was forced before and is down has an epoch that nobody knows, and would lead over what comes now.
        is_forced = len(asked) < asked_min(len(self.members), self.min_isr)
        is_safe = not self.book.acked and all(one.is_up for one in self.members.values())
        if not asked or (is_forced and not is_safe):
            return
        highest = max(one.replica.epoch for one in asked if one.replica is not None)
        chosen = self.entropy.randint(0, len(asked) - 1)
        epoch = next_ballot(highest, asked[chosen].number)
        inventories = []
        for one in asked:
            replica = one.replica
            assert replica is not None
            try:
                one.act(partial(replica.promise, epoch))
            except Fenced:
                return
            if one.replica is None:
                return
            if one.following is not None:
                one.hung_up(one.following)
            inventories.append(replica.inventory())
        number = longest(inventories)
        if number is None:
            return
        leading = asked[number]
        assert leading.replica is not None
        self.promotions += 1
        leading.lead(next_ballot(epoch, leading.number), self.min_isr, is_forced=is_forced)
        self._check_leader(leading)

    def _force(self) -> None:
        """Have a standby lead that may lack what was acknowledged. All know of it, and the old leader is dead."""
        if self.is_calm:
            return
        self.later(_FORCE_MS, self._force)
        standbys = [one for one in self.members.values() if one.replica is not None]
        if len(standbys) + len(self.leaders()) < len(self.members) or not standbys:
            return
        highest = max(one.epoch for one in self.members.values())
        chosen = standbys[self.entropy.randint(0, len(standbys) - 1)]
        epoch = next_ballot(highest, chosen.number)
        for leader in self.leaders():
            leader.crash()
        for one in standbys:
            if one.replica is not None:
                one.act(partial(one.replica.promise, epoch))
        if chosen.replica is None:
            return
        self.forced += 1
        chosen.lead(epoch, self.min_isr, is_forced=True)
        node = chosen.node
        has_topic = node is not None and TOPIC in node.open
        if node is not None:
            self.topics.forget()
            numbers = range(2 if has_topic else 0)
            self.book.forget_lost(
                {number: node.partition(TOPIC, number).messages for number in numbers}
            )
        if not has_topic:
            self.later(300, self._create)

    def _check_leader(self, member: Member, *, is_all_sent: bool = False) -> None:
        if member.node is None or TOPIC not in member.node.open:
            if member.is_up and member.node is not None and self.book.acked:
                raise Violation(Checker.NO_ACKED_LOSS, "the topic is gone")
            return
        if faults := member.node.faults():
            raise Violation(Checker.RECOVERY, f"a partition cannot be opened: {faults[0].reason}")
        self.topics.check(member)
        for number in range(2):
            self.book.check(number, member.node.partition(TOPIC, number).messages)
            if TOPIC + DEAD_LETTER_SUFFIX in member.node.open:
                letters = member.node.partition(TOPIC + DEAD_LETTER_SUFFIX, number)
                self.book.check_dead_letters(number, letters.messages, is_all_sent=is_all_sent)
            elif is_all_sent and self.book.rejected[number]:
                raise Violation(Checker.DLQ_ATOMIC, "the topic of dead letters is gone")

    def is_unexpected(self, error: PenstockError) -> bool:
        """Whether a replica refused something that no history without a bug has."""
        if isinstance(error, HistoryLost | MalformedBatch) and not isinstance(error, Fenced):
            raise Violation(Checker.SURPRISE, f"{type(error).__name__}: {error}")
        return False

    def expect_nothing_aside(self, replica: Replica) -> None:
        if replica.aside:
            raise Violation(Checker.RECOVERY, f"a crash looks like damage: {replica.aside[0]}")

    def _is_level(self) -> bool:
        leaders = self.leaders()
        if len(leaders) != 1 or leaders[0].leader is None:
            return False
        leader, node = leaders[0].leader, leaders[0].node
        assert node is not None
        has_letters = any(one.machine.outbox.pending for one in node.partitions())
        is_committed = leader.committed == leader.sequence
        is_idle = not (has_letters or node.works.makings or node.works.removals)
        return leader.in_sync == len(self.members) and is_committed and is_idle

    def _check_all(self) -> None:
        """Every node has the same."""
        if not self._is_level():
            states = {
                number: (one.is_up, one.leader is not None, one.faulty)
                for number, one in self.members.items()
            }
            raise Violation(Checker.LIVENESS, f"the nodes have not come together: {states}")
        (leading,) = self.leaders()
        assert leading.node is not None
        self._check_leader(leading, is_all_sent=True)
        self.topics.check_files(leading)
        for member in self.members.values():
            if member.replica is None:
                continue
            for path, log in member.replica.storage.logs.items():
                assert leading.leader is not None
                theirs = leading.leader.logs[path]
                if _content(log, theirs.end_offset) != _content(theirs, theirs.end_offset):
                    raise Violation(
                        Checker.OFFSET_UNIQUE, f"{path} differs on node {member.number}"
                    )


def _values(log: Log) -> dict[int, bytes]:
    """The messages of a log, by offset."""
    return {
        stored.offset: stored.data
        for head, batch in log.batches_from(log.start_offset)
        for stored in decode_messages(batch, head)
    }


def _content(log: Log, end: int) -> list[tuple[int, int, int]]:
    found = log.batches_from(log.start_offset)
    return [
        (one.base_offset, one.epoch, one.body_checksum) for one, _ in found if one.base_offset < end
    ]


def run_cluster(
    seed: int, *, nodes: int = 2, min_isr: int = 2, seconds: int = 10, is_forced: bool = False
) -> ClusterResult:
    """Run one seed. Violation: a promise was broken."""
    try:
        return ClusterWorld(
            seed, nodes=nodes, min_isr=min_isr, seconds=seconds, is_forced=is_forced
        ).run()
    except Violation as violation:
        violation.add_note(f"seed {seed}, {nodes} nodes, min_isr {min_isr}")
        raise


__all__ = ["ClusterBook", "ClusterResult", "ClusterWorld", "run_cluster"]
