"""Who should read what: pure functions from members and partitions to an assignment.

A member is only given partitions of topics that it subscribes to; a partition that nobody subscribes to is left out.
Members and partitions are taken in the order of their names, so the same input always gives the same answer.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import cycle
from typing import NamedTuple

from ..api.members import Assignor
from ..model import TopicPartition

Subscriptions = Mapping[str, frozenset[str]]
"""Topics by member."""

Assignment = dict[TopicPartition, str]
"""Member by partition."""


class Held(NamedTuple):
    """Who holds what now; what is on its way out goes first if something has to go."""

    owners: Mapping[TopicPartition, str]
    leaving: Collection[TopicPartition] = ()


NOBODY = Held({})


def assign(
    how: Assignor,
    subscriptions: Subscriptions,
    partitions: Sequence[TopicPartition],
    held: Held = NOBODY,
) -> Assignment:
    """The assignment that these members should come to."""
    match how:
        case Assignor.RANGE:
            return by_range(subscriptions, partitions)
        case Assignor.ROUND_ROBIN:
            return round_robin(subscriptions, partitions)
        case Assignor.STICKY:
            return sticky(subscriptions, partitions, held)


def by_range(subscriptions: Subscriptions, partitions: Sequence[TopicPartition]) -> Assignment:
    """Neighbours together: each topic is cut into as many pieces as it has members."""
    readers, topics = _readers(subscriptions), _by_topic(partitions)
    found: Assignment = {}
    for topic, its_partitions in topics.items():
        members = readers.get(topic, [])
        for index, partition in enumerate(its_partitions):
            if members:
                found[partition] = members[index * len(members) // len(its_partitions)]
    return found


def round_robin(subscriptions: Subscriptions, partitions: Sequence[TopicPartition]) -> Assignment:
    """One each in turn; whoever does not subscribe to a topic is passed over."""
    readable = frozenset(_readers(subscriptions))
    turn = cycle(sorted(subscriptions))
    found: Assignment = {}
    for partition in sorted(partitions):
        if partition.topic in readable:
            found[partition] = next(one for one in turn if partition.topic in subscriptions[one])
    return found


def sticky(
    subscriptions: Subscriptions, partitions: Sequence[TopicPartition], held: Held
) -> Assignment:
    """Everybody keeps what they have, except what has to move so that nobody has two more than another.

    Where subscriptions differ, the same holds for every pair between whom partitions could be passed on, directly or
    through others.
    """
    hands = _Hands(subscriptions)
    homeless: list[TopicPartition] = []
    leaving = frozenset(held.leaving)
    # What leaves comes last, because what came last is the first to be passed on.
    for partition in sorted(partitions, key=lambda one: (one in leaving, one)):
        owner = held.owners.get(partition)
        if owner is not None and partition.topic in subscriptions.get(owner, ()):
            hands.give(owner, partition)
        else:
            homeless.append(partition)
    hands.take_in(homeless)
    hands.balance()
    return hands.assignment()


class _Hands:
    """What each member has, while an assignment is being made."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self.readers = _readers(subscriptions)
        self.held: dict[str, dict[str, list[TopicPartition]]] = {
            one: defaultdict(list) for one in sorted(subscriptions)
        }
        self.load = dict.fromkeys(self.held, 0)

    def give(self, member: str, partition: TopicPartition) -> None:
        self.held[member][partition.topic].append(partition)
        self.load[member] += 1

    def take_in(self, homeless: Sequence[TopicPartition]) -> None:
        """Give each to the least loaded of those who read it; topics with few readers first."""
        topics = _by_topic(homeless)
        for topic in sorted(topics, key=lambda one: (len(self.readers.get(one, ())), one)):
            lightest = [(self.load[one], one) for one in self.readers.get(topic, ())]
            heapify(lightest)
            for partition in topics[topic] if lightest else ():
                load, member = lightest[0]
                self.give(member, partition)
                heapreplace(lightest, (load + 1, member))

    def balance(self) -> None:
        """Pass partitions on while that makes the loads more even. Each time the sum of their squares shrinks."""
        while any(self._relieve(one) for one in self._overloaded()):
            pass

    def _overloaded(self) -> list[str]:
        """Those who have two more than somebody, the heaviest first."""
        lowest = min(self.load.values(), default=0)
        heavy = [(-load, one) for one, load in self.load.items() if load >= lowest + 2]
        return [one for _, one in sorted(heavy)]

    def _relieve(self, member: str) -> bool:
        """Take one partition off a member, along the shortest way to one who has at least two less."""
        way = self._way_from(member)
        for giver, topic, taker in way:
            self.held[taker][topic].append(self.held[giver][topic].pop())
        if way:
            self.load[member] -= 1
            self.load[way[-1][2]] += 1
        return bool(way)

    def _way_from(self, member: str) -> list[tuple[str, str, str]]:
        """Steps (giver, topic, taker); none if everybody who can be reached has nearly as much."""
        before: dict[str, tuple[str, str]] = {}
        waiting, met, passed = deque([member]), {member}, set[str]()
        while waiting:
            giver = waiting.popleft()
            for topic in sorted(one for one, held in self.held[giver].items() if held):
                if topic in passed:
                    continue
                passed.add(topic)
                takers = [one for one in self.readers[topic] if one not in met]
                before.update((one, (giver, topic)) for one in takers)
                lightest = min(takers, key=lambda one: (self.load[one], one), default=member)
                if self.load[lightest] <= self.load[member] - 2:
                    return _steps(before, member, lightest)
                met.update(takers)
                waiting.extend(takers)
        return []

    def assignment(self) -> Assignment:
        return {
            partition: member
            for member, topics in self.held.items()
            for partitions in topics.values()
            for partition in partitions
        }


def _steps(
    before: Mapping[str, tuple[str, str]], first: str, last: str
) -> list[tuple[str, str, str]]:
    steps: list[tuple[str, str, str]] = []
    taker = last
    while taker != first:
        giver, topic = before[taker]
        steps.append((giver, topic, taker))
        taker = giver
    return steps[::-1]


def _readers(subscriptions: Subscriptions) -> dict[str, list[str]]:
    """Members by topic."""
    readers: dict[str, list[str]] = {}
    for member in sorted(subscriptions):
        for topic in subscriptions[member]:
            readers.setdefault(topic, []).append(member)
    return readers


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition)
    return topics
