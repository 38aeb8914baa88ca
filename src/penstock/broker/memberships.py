"""Assigned groups: who is a member, what each of them reads, and what that means for the leases of its partitions.

`groups` decides who owns what; here its records take effect. A partition that passes from one member to the next takes
the leases of the former one with it, so nobody holds a message of a partition that is not theirs.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from pyroaring import BitMap64

from ..api.groups import Mode
from ..api.leased import LeasedMessages
from ..api.members import Assignor, CommitAsMember, Standing
from ..api.receipts import Place
from ..api.start import EARLIEST, Start
from ..delivery import Delivery
from ..errors import GroupBusy, ModeConflict, NoSpace, NotOwner, PartitionFaulty
from ..groups import GroupRecord, Joining, Membership, Moment
from ..groups import commands as decide
from ..groups.membership import REVOCATION_MS
from ..groups.records import Given, Gone, Released
from ..model import Priority, TopicPartition, check_name
from . import consumption, groups
from .catalogue import Catalogue
from .consumption import Wanted
from .partition import Now, Partition
from .poll_replay import PollReplay

AUTO_COMMIT_NS = 5_000_000_000
# Generations are reserved so many at a time: a join then seldom waits for the disk.
_GENERATIONS_RESERVED = 1000
_NEVER = float("inf")


class Join(NamedTuple):
    """What a member says when it joins.

    Without a `member` name it gets one. Under a name that is taken it replaces who has it; `keeps_leases` says that
    it is the same one after all, which has lost the broker for a while and still has messages in its hands.
    """

    topics: frozenset[str]
    member: str = ""
    client: str = "member"
    session_ms: int = decide.SESSION_MS_DEFAULT
    assignor: Assignor | None = None
    # None: as the group has it, and relaxed for a new one.
    mode: Mode | None = None
    start: Start = EARLIEST
    is_auto_commit: bool = False
    keeps_leases: bool = False


class Ask(NamedTuple):
    """A poll of a member. A `request_id` that comes again gets the same messages again."""

    member: str
    limit: int
    generation: int | None = None
    # None: as long as the topic says.
    duration_ms: int | None = None
    request_id: str = ""
    # Of this lane only.
    priority: Priority | None = None
    # For whoever waits: the `Standing.changes` that it knows of. A change that it does not know ends the wait.
    changes: int | None = None
    # As in `Wanted`.
    bytes_max: int | None = None


@dataclass(slots=True)
class _Session:
    """What belongs to one member besides its membership. `handed` is what auto commit has still to ack."""

    is_auto_commit: bool
    # How it reads a topic that its group has not read before; None if it does not mind.
    mode: Mode | None
    handed: list[tuple[Place, int, BitMap64]] = field(default_factory=list)
    commit_at_ns: float = _NEVER
    turn: int = 0


class Memberships:
    """All assigned groups of a node. In memory: after a restart every member has to join again."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.groups: dict[str, Membership] = {}
        self._sessions: dict[tuple[str, str], _Session] = {}
        self._repeats = PollReplay(catalogue.partition)
        self.revocation_ms = REVOCATION_MS
        # Below it, generations may have been given before.
        self._first_generation = catalogue.topics.next_generation

    def join(self, group: str, wish: Join, now: Now) -> tuple[str, Standing]:
        """Become a member: its name, and what it has to know. ModeConflict: the group shares a topic."""
        member = self._name_for(groups.check_group(group), wish)
        membership = self.membership(group)
        membership.revocation_ms = self.revocation_ms
        joining = Joining(
            member=member,
            client=wish.client,
            topics=wish.topics,
            session_ms=wish.session_ms,
            assignor=wish.assignor,
        )
        topics = wish.topics | self._topics(membership)
        generation = self._next_generation(membership, now)
        records = decide.join(
            membership, joining, self._partitions(topics), _moment(now), generation
        )
        self._open(group, wish, now)
        self.groups[group] = membership
        if not wish.keeps_leases:
            self._free(group, member, self._partitions(wish.topics), now)
        self._sessions[group, member] = _Session(wish.is_auto_commit, wish.mode)
        self._repeats.forget((group, member))
        self._record(membership, records, now)
        return member, decide.standing(membership, member)

    def _name_for(self, group: str, wish: Join) -> str:
        for topic in wish.topics:
            self._catalogue.topic(topic)
        if wish.member:
            check_name(wish.member, "member")
            return wish.member
        check_name(wish.client, "client")
        return f"{wish.client}-{self._catalogue.entropy.getrandbits(32):08x}"

    def _open(self, group: str, wish: Join, now: Now) -> None:
        """Begin, or go on, to read all topics in the mode that is wished; if one of them refuses, none is touched."""
        opened = map(self._catalogue.topic, wish.topics)
        groups.require_room(self._catalogue, opened, group)
        modes = {topic: self._mode_for(topic, group, wish.mode) for topic in sorted(wish.topics)}
        for topic, mode in modes.items():
            partitions = self._catalogue.topic(topic).partitions
            groups.open_everywhere(partitions, group, wish.start, now)
            groups.require_mode(groups.existing(partitions, group), group, mode, now)

    def _mode_for(self, topic: str, group: str, wished: Mode | None) -> Mode:
        """How a group reads a topic, or will if this is its first use."""
        partitions = self._catalogue.topic(topic).partitions
        known = groups.mode_of(
            (one, one.group(group)) for one in partitions if group in one.machine.numbers
        )
        mode = wished or (known if known.is_assigned else Mode.RELAXED)
        if known not in (Mode.UNDECIDED, mode):
            raise ModeConflict(group, topic, asked=str(mode), mode=str(known))
        return mode

    def heartbeat(self, group: str, member: str, generation: int | None, now: Now) -> Standing:
        """A sign of life, answered with all that the member has to know."""
        membership = self._of(group, member, now)
        self._record(
            membership, decide.heartbeat(membership, member, generation, _moment(now)), now
        )
        return decide.standing(membership, member)

    def leave(self, group: str, member: str, now: Now) -> None:
        """Be a member no more: what it owns passes on at once, and so does what it holds."""
        membership = self._of(group, member, now)
        decide.require_member(membership, member)
        self._auto_commit(self._sessions[group, member], now)
        generation = self._next_generation(membership, now)
        partitions = self._partitions(self._topics(membership))
        self._record(
            membership, decide.leave(membership, member, partitions, _moment(now), generation), now
        )

    def release(
        self,
        group: str,
        member: str,
        generation: int | None,
        partitions: Iterable[TopicPartition],
        now: Now,
    ) -> tuple[TopicPartition, ...]:
        """Let go of partitions that were asked back; what the member still holds there is ready again."""
        membership = self._of(group, member, now)
        outcome = decide.release(membership, member, generation, partitions, _moment(now))
        self._record(membership, outcome.records, now)
        return outcome.reply

    def commit(self, command: CommitAsMember, now: Now) -> bool:
        """Finish everything below some offsets, as the owner of all of them; whether any floor moved."""
        group, member = command.group, command.member
        membership = self._of(group, member, now)
        decide.require_current(membership, member, command.generation)
        for topic, partition, _ in command.offsets:
            decide.require_owner(membership, member, TopicPartition(topic, partition))
        self._record(membership, decide.heartbeat(membership, member, None, _moment(now)), now)
        moved = [
            groups.commit(self._catalogue.partition(topic, partition), group, offset, now)
            for topic, partition, offset in command.offsets
        ]
        return any(moved)

    def poll(self, group: str, ask: Ask, now: Now) -> LeasedMessages:
        """Lease messages of a member's own partitions to it, each time beginning with another one."""
        membership = self._of(group, ask.member, now)
        decide.require_current(membership, ask.member, ask.generation)
        seen = decide.heartbeat(membership, ask.member, None, _moment(now))
        self._record(membership, seen, now)
        session = self._sessions[group, ask.member]
        if (known := self._repeats.answer_to((group, ask.member), ask.request_id)) is not None:
            return known
        self._auto_commit(session, now)
        found = self._take(membership, session, ask, now)
        self._repeats.keep((group, ask.member), ask.request_id, found)
        if found and session.is_auto_commit:
            session.handed = [
                (one.place, one.lease, BitMap64(one.offsets)) for one in found.leased()
            ]
            session.commit_at_ns = now.monotonic_ns + AUTO_COMMIT_NS
        return found

    def _take(
        self, membership: Membership, session: _Session, ask: Ask, now: Now
    ) -> LeasedMessages:
        places = membership.readable(ask.member)
        session.turn = (session.turn + 1) % max(1, len(places))
        in_turn = (*places[session.turn :], *places[: session.turn])

        def timed() -> Iterator[tuple[Partition, Delivery, int]]:
            for one in in_turn:
                try:
                    partition = self._catalogue.partition(*one)
                except PartitionFaulty:
                    continue
                delivery = self._delivery(membership.group, session.mode, partition, now)
                yield partition, delivery, ask.duration_ms or partition.config.visibility_timeout_ms

        wanted = Wanted(ask.member, ask.limit, 0, ask.priority, bytes_max=ask.bytes_max)
        return consumption.poll_all(timed(), wanted, now)

    def _delivery(
        self, group: str, wished: Mode | None, partition: Partition, now: Now
    ) -> Delivery:
        """A group on a partition that it may not have read before, because that was added or made anew."""
        number = partition.machine.numbers.get(group)
        if number is None or number not in partition.machine.modes:
            mode = self._mode_for(partition.topic, group, wished)
            delivery = partition.open_group(group, partition.messages.start_offset, now)
            groups.require_mode([(partition, delivery)], group, mode, now)
        return partition.group(group)

    def finish_last(self, group: str, member: str, now: Now) -> None:
        """Commit what the last poll returned, for a member that leaves that to us."""
        decide.require_member(self._of(group, member, now), member)
        self._auto_commit(self._sessions[group, member], now)

    def wait(self, group: str, member: str, now: Now, *, is_over: bool) -> None:
        """A member begins to wait for messages, or ends it: so long it is not missed."""
        membership = self.groups.get(group)
        if membership is not None:
            records = decide.wait(membership, member, _moment(now), is_over=is_over)
            self._record(membership, records, now)

    def has_news(self, group: str, ask: Ask) -> bool:
        """Whether a member has to hear of something before it waits for messages."""
        membership = self.groups[group]
        if ask.changes is None:
            return bool(membership.to_release(ask.member))
        return membership.members[ask.member].changes != ask.changes

    def places(self, group: str, member: str) -> list[tuple[Partition, Delivery]]:
        """Where a member reads from, until its `Standing.changes` is another one. Without faulty partitions."""
        found = map(self._serving, self.groups[group].readable(member))
        partitions = [one for one in found if one is not None]
        return [(one, one.group(group)) for one in partitions if group in one.machine.numbers]

    def _auto_commit(self, session: _Session, now: Now) -> None:
        for place, lease, offsets in session.handed:
            partition = self._serving(TopicPartition(place.topic, place.partition))
            delivery = None if partition is None else partition.machine.groups.get(place.group)
            if partition is not None and delivery is not None:
                consumption.ack(partition, delivery, lease, offsets, now)
        session.handed, session.commit_at_ns = [], _NEVER

    def tick(self, now: Now) -> None:
        """Miss members, take what was not released in time, and commit for those who leave that to us."""
        for membership in [*self.groups.values()]:
            self._expire(membership, now)
        for session in [*self._sessions.values()]:
            if session.commit_at_ns <= now.monotonic_ns:
                self._auto_commit(session, now)

    def _expire(self, membership: Membership, now: Now) -> None:
        while membership.next_due_ns() <= now.monotonic_ns:
            partitions = self._partitions(self._topics(membership))
            generation = self._next_generation(membership, now)
            records = decide.expire(membership, partitions, _moment(now), generation)
            self._record(membership, records, now)

    def due_ns(self, group: str, member: str) -> float:
        """When something is due for one member, or infinity."""
        known = self.groups[group].members.get(member) if group in self.groups else None
        if known is None:
            return _NEVER
        return min(known.deadline_ns, self._sessions[group, member].commit_at_ns)

    def next_due_ns(self) -> float:
        due = [one.next_due_ns() for one in self.groups.values()]
        return min([*due, *(one.commit_at_ns for one in self._sessions.values())], default=_NEVER)

    def topic_changed(self, topic: str, now: Now) -> None:
        """It has more partitions now, is gone, or is there again."""
        for membership in self.groups.values():
            if topic not in self._topics(membership):
                continue
            partitions = self._partitions(self._topics(membership))
            generation = self._next_generation(membership, now)
            records = decide.repartition(membership, partitions, _moment(now), generation)
            self._record(membership, records, now)

    def members_of(self, group: str, topic: str) -> int:
        """How many members read a topic."""
        membership = self.groups.get(group)
        if membership is None:
            return 0
        return sum(topic in one.topics for one in membership.members.values())

    def forget(self, groups_gone: Iterable[str]) -> None:
        """Groups that read nothing any more. Should one come again, its generations go on where they were."""
        for group in groups_gone:
            membership = self.groups.get(group)
            if membership is not None and not membership.members:
                del self.groups[group]
                self._first_generation = max(self._first_generation, membership.generation + 1)

    def busy_groups(self) -> list[str]:
        return [group for group, one in self.groups.items() if one.members]

    def require_unowned(self, group: str, topic: str, partition: int) -> None:
        """Refuse whoever is no member to move what a member owns."""
        membership = self.groups.get(group)
        owner = (
            "" if membership is None else membership.owners.get(TopicPartition(topic, partition))
        )
        if owner:
            raise NotOwner(group, f"{topic}/{partition}", member="", owner=owner)

    def require_empty(self, group: str, topic: str) -> None:
        if members := self.members_of(group, topic):
            raise GroupBusy(group, in_flight=0, members=members)

    def membership(self, group: str) -> Membership:
        """The members of a group; one that has none is empty."""
        return self.groups.get(group) or Membership(group, self._first_generation - 1)

    def topics_of(self, group: str, member: str) -> frozenset[str]:
        """The topics that a member reads; none if there is no such member."""
        known = self.membership(group).members.get(member)
        return frozenset() if known is None else known.topics

    def _of(self, group: str, member: str, now: Now) -> Membership:
        """The group as of now: whoever is late is a member no more, also if no tick came in between."""
        membership = self.groups.get(group) or Membership(group)
        decide.require_member(membership, member)
        self._expire(membership, now)
        return membership

    def _topics(self, membership: Membership) -> frozenset[str]:
        return frozenset().union(*(one.topics for one in membership.members.values()))

    def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        opened = self._catalogue.open
        return [
            TopicPartition(topic, number)
            for topic in sorted(topics)
            if topic in opened
            for number in range(len(opened[topic].partitions))
        ]

    def _next_generation(self, membership: Membership, now: Now) -> int:
        generation = max(membership.generation + 1, self._first_generation)
        if generation >= self._catalogue.topics.next_generation:
            self._catalogue.reserve_generations(generation + _GENERATIONS_RESERVED, now)
        return generation

    def _record(self, membership: Membership, records: Iterable[GroupRecord], now: Now) -> None:
        for record in records:
            owned = self._owned_before(membership, record)
            membership.apply(record)
            match record:
                case Gone(member) | Released(member):
                    self._free(membership.group, member, owned, now)
                case Given(member, partitions):
                    self._hand_over(membership.group, member, partitions, now)
            if isinstance(record, Gone):
                del self._sessions[membership.group, record.member]

    def _owned_before(
        self, membership: Membership, record: GroupRecord
    ) -> tuple[TopicPartition, ...]:
        match record:
            case Gone(member):
                return tuple(membership.members[member].owned)
            case Released(_, partitions):
                return partitions
        return ()

    def _free(
        self, group: str, member: str, partitions: Iterable[TopicPartition], now: Now
    ) -> None:
        """What a member holds of partitions that are not its own any more is ready again."""
        for one in partitions:
            self._end_leases(one, group, lambda holder: holder == member, now)

    def _hand_over(
        self, group: str, member: str, partitions: Iterable[TopicPartition], now: Now
    ) -> None:
        """Nobody but its owner holds messages of a partition; leases of before a restart end here."""
        mode = self._sessions[group, member].mode
        for one in partitions:
            # Without room for it now, the first poll does it. A faulty one is owned as well, and gives nothing.
            with suppress(NoSpace, PartitionFaulty):
                self._delivery(group, mode, self._catalogue.partition(*one), now)
            self._end_leases(one, group, lambda holder: holder != member, now)

    def _serving(self, one: TopicPartition) -> Partition | None:
        """A partition; None if it is faulty, or its topic gone."""
        topic = self._catalogue.open.get(one.topic)
        return None if topic is None else topic.partitions.serving(one.number)

    def _end_leases(
        self, one: TopicPartition, group: str, is_ending: Callable[[str], bool], now: Now
    ) -> None:
        partition = self._serving(one)
        if partition is None or group not in partition.machine.numbers:
            return
        delivery = partition.group(group)
        held = {lease.member for lease in delivery.leases.by_number.values()}
        # On a full disk they end by themselves, at their deadline.
        with suppress(NoSpace):
            for holder in sorted(filter(is_ending, held)):
                consumption.release(partition, delivery, holder, now)


def _moment(now: Now) -> Moment:
    return Moment(now.monotonic_ns, now.wall_ns)
