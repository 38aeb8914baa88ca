"""Assigned groups: who is a member, what each of them reads, and what that means for the leases of its partitions.

`groups` decides who owns what; here its records take effect. A partition that passes from one member to the next takes
the leases of the former one with it, so no member holds a message of a partition that it does not own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyroaring import BitMap64

from ..api.groups import Mode, PartitionOffset
from ..api.leased import LeasedMessages
from ..api.members import (
    CommitAsMember,
    EndWaiting,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    PollMember,
    ReleasePartitions,
    Standing,
    StartWaiting,
)
from ..api.receipts import Place
from ..config import NodeConfig
from ..delivery import Delivery
from ..errors import GroupBusy, ModeConflict, NoSpace, NotOwner, Refused
from ..groups import GroupRecord, GroupTime, JoinRequest, Membership
from ..groups import commands as decide
from ..groups.membership import REVOCATION_MS
from ..groups.records import (
    MemberRemoved,
    MemberSeen,
    PartitionsGiven,
    PartitionsReleased,
    TargetSet,
)
from ..model import TopicPartition, check_name
from . import groups
from .catalogue import Catalogue
from .partition import Now, Partition, consumption
from .partition.consumption import Wanted
from .partition.release import release
from .poll_replay import PollReplay
from .walks import Slices, partitions_in

_MS = 1_000_000
# Generations are reserved so many at a time: a join then seldom waits for the disk.
_GENERATIONS_RESERVED = 1000
# To share out so many takes as long as to look whether a group reads a topic.
_PARTITIONS_AN_ENTRY = 4
_NEVER = float("inf")


@dataclass(slots=True)
class _Session:
    """What belongs to one member besides its membership. Not recorded: after a restart the member joins again."""

    is_auto_commit: bool
    # How it reads a topic that its group has not read before; None if it does not mind.
    mode: Mode | None
    # What auto commit has still to ack: offsets of a lease.
    unfinished: list[tuple[Place, int, BitMap64]] = field(default_factory=list)
    commit_at_ns: float = _NEVER
    turn: int = 0
    # Where it joined from, and when it polled last, in wall time.
    host: str = ""
    polled_at_ns: int | None = None


class Memberships:
    """All assigned groups of a node. In memory: after a restart every member has to join again."""

    def __init__(self, catalogue: Catalogue, config: NodeConfig) -> None:
        self._catalogue, self._config = catalogue, config
        self.groups: dict[str, Membership] = {}
        self._sessions: dict[tuple[str, str], _Session] = {}
        self._replays = PollReplay(catalogue.partition)
        self.revocation_ms = REVOCATION_MS
        # Below it, generations may have been given before.
        self._first_generation = catalogue.topics.next_generation

    def join(self, command: JoinGroup, now: Now) -> Slices[JoinReply]:
        group, topics = groups.check_group(command.group), frozenset(command.topic_names)
        if command.is_auto_commit and not self._config.is_auto_commit_on:
            raise Refused(
                "this broker commits for no member: consumer.auto_commit is false",
                field="auto_commit",
            )
        if command.in_rounds:
            raise Refused("rounds are for members of shared groups", field="in_rounds")
        for topic in topics:
            self._catalogue.topic(topic)
        member = self._name_for(command)
        joining = JoinRequest(
            member=member,
            client=command.client,
            topics=topics,
            session_ms=command.session_ms or self._config.session_timeout_ms,
            assignor=command.assignor,
        )
        decide.require_joinable(self.membership(group), joining)
        now = yield from self._open(command, topics, now)
        for topic in topics:
            self._catalogue.topic(topic)
        membership = self.membership(group)
        membership.revocation_ms = self.revocation_ms
        partitions = self._partitions(topics | self._topics(membership))
        generation = self._next_generation(membership, now)
        records = decide.join(membership, joining, partitions, _moment(now), generation)
        self.groups[group] = membership
        if not command.keeps_leases:
            self._free(group, member, self._partitions(topics), now)
        session = _Session(command.is_auto_commit, command.mode, host=command.host)
        self._sessions[group, member] = session
        self._replays.forget((group, member))
        self._record(membership, records, now)
        is_first = next(iter(membership.members)) == member
        return JoinReply(member, decide.standing(membership, member), is_first)

    def _name_for(self, command: JoinGroup) -> str:
        if command.member:
            return check_name(command.member, "member")
        check_name(command.client, "client")
        return f"{command.client}-{self._catalogue.entropy.getrandbits(32):08x}"

    def _open(self, command: JoinGroup, topics: frozenset[str], now: Now) -> Slices[Now]:
        """Begin, or go on, to read all topics in the mode that is asked for; if one is refused, none is touched."""
        catalogue, group = self._catalogue, command.group
        groups.require_room(catalogue, map(catalogue.topic, topics), group)
        for name in sorted(topics):
            catalogue.topic(name).partitions.require_serving()
            self._mode_for(name, group, command.mode)
            now = yield 1
        for name in sorted(topics):
            topic = catalogue.topic(name)
            mode = self._mode_for(name, group, command.mode)
            now = yield from groups.open_everywhere(
                catalogue, topic, group, command.start, now, mode=mode
            )
            # Asked again, and set on the first partition before another member has its turn.
            mode = self._mode_for(name, group, command.mode)
            for partition in partitions_in(catalogue, [name]):
                if group in partition.machine.numbers:
                    groups.set_mode(partition, partition.group(group), mode, now)
                now = yield 1
        return now

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

    def heartbeat(self, command: Heartbeat, now: Now) -> Standing:
        group, member = command.group, command.member
        membership = self._of(group, member, now)
        records = decide.heartbeat(membership, member, command.generation, _moment(now))
        self._record(membership, records, now)
        if command.finishes_last:
            self._auto_commit(self._sessions[group, member], now)
        return decide.standing(membership, member)

    def leave(self, command: LeaveGroup, now: Now) -> None:
        group, member = command.group, command.member
        membership = self._of(group, member, now)
        decide.require_member(membership, member, command.generation)
        self._auto_commit(self._sessions[group, member], now)
        generation = self._next_generation(membership, now)
        partitions = self._partitions(self._topics(membership))
        self._record(
            membership, decide.leave(membership, member, partitions, _moment(now), generation), now
        )

    def release(self, command: ReleasePartitions, now: Now) -> tuple[TopicPartition, ...]:
        group, member, partitions = command.group, command.member, command.partitions
        membership = self._of(group, member, now)
        if command.keeps_held:
            partitions = tuple(one for one in partitions if not self._is_held(group, member, one))
        outcome = decide.release(membership, member, command.generation, partitions, _moment(now))
        self._record(membership, outcome.records, now)
        return outcome.reply

    def _is_held(self, group: str, member: str, one: TopicPartition) -> bool:
        """Whether a member holds messages of a partition. What it had of a faulty one it cannot answer any more."""
        partition = self._serving(one)
        if partition is None or group not in partition.machine.numbers:
            return False
        return partition.group(group).leases.held_by.get(member, 0) > 0

    def commit(self, command: CommitAsMember, now: Now) -> Slices[bool]:
        group, member = command.group, command.member
        membership = self._of(group, member, now)
        self._record(membership, decide.heartbeat(membership, member, None, _moment(now)), now)
        decide.require_current(membership, member, command.generation)
        for place in command.offsets:
            partition = self._catalogue.partition(place.topic, place.partition)
            self._require_owner(command, place)
            groups.require_offset(partition, place.offset)
            now = yield 1
        has_moved = False
        for place in command.offsets:
            # It may have lost the partition in the slices before.
            self._require_owner(command, place)
            partition = self._catalogue.partition(place.topic, place.partition)
            has_moved |= groups.commit(partition, group, place.offset, now, member=member)
            now = yield 1
        return has_moved

    def _require_owner(self, command: CommitAsMember, place: PartitionOffset) -> None:
        membership = self.membership(command.group)
        decide.require_current(membership, command.member, command.generation)
        partition = TopicPartition(place.topic, place.partition)
        decide.require_owner(membership, command.member, partition)

    def poll(self, command: PollMember, now: Now) -> LeasedMessages:
        """Lease messages of a member's own partitions to it, each time beginning with another one."""
        group, member = command.group, command.member
        membership = self._of(group, member, now)
        decide.require_current(membership, member, command.generation)
        self._record(membership, decide.heartbeat(membership, member, None, _moment(now)), now)
        session = self._sessions[group, member]
        session.polled_at_ns = now.wall_ns
        if (known := self._replays.answer_to((group, member), command.request_id)) is not None:
            return known
        self._auto_commit(session, now)
        found = self._take(membership, session, command, now)
        self._replays.keep((group, member), command.request_id, found)
        if found and session.is_auto_commit:
            session.unfinished = [
                (one.place, one.lease, BitMap64(one.offsets)) for one in found.leased()
            ]
            interval_ms = self._config.auto_commit_interval_ms
            session.commit_at_ns = now.monotonic_ns + interval_ms * _MS
            self._expect(session.commit_at_ns)
        return found

    def _take(
        self, membership: Membership, session: _Session, command: PollMember, now: Now
    ) -> LeasedMessages:
        places = membership.readable(command.member)
        session.turn = (session.turn + 1) % max(1, len(places))
        in_turn = (*places[session.turn :], *places[: session.turn])

        def serving() -> Iterator[tuple[Partition, Delivery]]:
            for one in in_turn:
                partition = self._serving(one)
                if partition is None:
                    continue
                delivery = self._delivery(membership.group, session.mode, partition, now)
                if command.visibility_ms:
                    consumption.check_duration(partition.rules, command.visibility_ms)
                yield partition, delivery

        wanted = Wanted(
            command.member,
            command.limit,
            command.visibility_ms or None,
            command.priority,
            bytes_max=command.bytes_max,
        )
        return consumption.poll_all(serving(), wanted, now)

    def _delivery(
        self, group: str, wished: Mode | None, partition: Partition, now: Now
    ) -> Delivery:
        """A group on a partition that it may not have read before, because that was added or made anew."""
        number = partition.machine.numbers.get(group)
        if number is None or number not in partition.machine.modes:
            mode = self._mode_for(partition.topic, group, wished)
            start, owner = partition.messages.start_offset, self._catalogue.principal.key_id
            delivery = partition.open_group(group, start, now, owner=owner)
            groups.require_mode([(partition, delivery)], group, mode, now)
        return partition.group(group)

    def start_waiting(self, command: StartWaiting, now: Now) -> Standing | None:
        member, membership = command.member, self._of(command.group, command.member, now)
        decide.require_member(membership, member)
        standing = decide.standing(membership, member)
        known = command.changes
        if standing.to_release if known is None else standing.changes != known:
            return None
        records = decide.wait(membership, member, _moment(now), is_over=False)
        self._record(membership, records, now)
        return standing

    def end_waiting(self, command: EndWaiting, now: Now) -> None:
        membership = self.membership(command.group)
        records = decide.wait(membership, command.member, _moment(now), is_over=True)
        self._record(membership, records, now)

    def _auto_commit(self, session: _Session, now: Now) -> None:
        for place, lease, offsets in session.unfinished:
            partition = self._serving(TopicPartition(place.topic, place.partition))
            delivery = None if partition is None else partition.machine.groups.get(place.group)
            if partition is not None and delivery is not None:
                consumption.ack(partition, delivery, lease, offsets, now)
        session.unfinished, session.commit_at_ns = [], _NEVER

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

    def next_due_ns(self) -> float:
        due = [one.next_due_ns() for one in self.groups.values()]
        return min([*due, *(one.commit_at_ns for one in self._sessions.values())], default=_NEVER)

    def topic_changed(self, topic: str) -> Slices[None]:
        """It has more partitions now, is gone, or is there again. A group whose turn has not come yet still has those
        that there were."""
        now = yield 1
        for group in [*self.groups]:
            membership = self.membership(group)
            topics = self._topics(membership)
            if topic not in topics:
                now = yield 1
                continue
            partitions = self._partitions(topics)
            generation = self._next_generation(membership, now)
            records = decide.repartition(membership, partitions, _moment(now), generation)
            self._record(membership, records, now)
            now = yield 1 + len(partitions) // _PARTITIONS_AN_ENTRY

    def last_poll(self, group: str, member: str) -> tuple[str, int | None]:
        """Where a member joined from, and when it polled last, in wall time."""
        session = self._sessions.get((group, member))
        return ("", None) if session is None else (session.host, session.polled_at_ns)

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
        """Refuse a client that is no member to move what a member owns."""
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
        """The group as of now: a member that is late is one no more, also if no tick came in between."""
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

    def _record(self, membership: Membership, records: Sequence[GroupRecord], now: Now) -> None:
        """Apply records, let them take effect on the partitions, and note for the driver which members they concern."""
        group, changes = membership.group, self._catalogue.changes
        for record in records:
            owned, known = self._owned_before(membership, record), _changes_of(membership, record)
            membership.apply(record)
            match record:
                case MemberRemoved(member) | PartitionsReleased(member):
                    self._free(group, member, owned, now)
                case PartitionsGiven(member, partitions):
                    self._hand_over(group, member, partitions, now)
            if isinstance(record, MemberRemoved):
                del self._sessions[group, record.member]
            if not isinstance(record, TargetSet) and _changes_of(membership, record) != known:
                changes.members.add((group, record.member))
        if len(records) == 1 and isinstance(records[0], MemberSeen):
            self._expect(membership.members[records[0].member].deadline_ns)
        elif records:
            self._expect(membership.next_due_ns())

    def _expect(self, due_ns: float) -> None:
        """Have the driver tick no later than this."""
        changes = self._catalogue.changes
        changes.due_ns = min(changes.due_ns, due_ns)

    def _owned_before(
        self, membership: Membership, record: GroupRecord
    ) -> tuple[TopicPartition, ...]:
        match record:
            case MemberRemoved(member):
                # In order: what is recorded for them does not depend on where their names lie in memory.
                return tuple(sorted(membership.members[member].owned))
            case PartitionsReleased(_, partitions):
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
        """Only its owner holds messages of a partition; leases of before a restart end here."""
        mode = self._sessions[group, member].mode
        for one in partitions:
            # A faulty one is owned as well, and one that is gone until the group hears of it: both give nothing.
            if (partition := self._serving(one)) is None:
                continue
            # Without room for it now, the first poll does it.
            with suppress(NoSpace):
                self._delivery(group, mode, partition, now)
            self._end_leases(one, group, lambda holder: holder != member, now)

    def _serving(self, one: TopicPartition) -> Partition | None:
        """A partition; None if it is faulty, or its topic gone."""
        topic = self._catalogue.open.get(one.topic)
        return None if topic is None else topic.partitions.serving_at(one.number)

    def _end_leases(
        self, one: TopicPartition, group: str, is_ending: Callable[[str], bool], now: Now
    ) -> None:
        partition = self._serving(one)
        if partition is None or group not in partition.machine.numbers:
            return
        delivery = partition.group(group)
        held = set(delivery.leases.held_by)
        # On a full disk they end by themselves, at their deadline.
        with suppress(NoSpace):
            for holder in sorted(filter(is_ending, held)):
                release(partition, delivery, holder, now)


def _moment(now: Now) -> GroupTime:
    return GroupTime(now.monotonic_ns, now.wall_ns)


def _changes_of(membership: Membership, record: GroupRecord) -> int:
    """How often the assignment of the member of a record has changed; -1 if it is no member."""
    known = None if isinstance(record, TargetSet) else membership.members.get(record.member)
    return -1 if known is None else known.changes
