"""Who waits for what of a node, looked up by what has changed.

A wait has a key, which says what is watched, and a level that has to be passed: a partition ends beyond an offset, a
member holds fewer messages than so many, a group has changed more often. A change looks at the keys that it touched and
wakes those whose level is passed. What that costs does not depend on how many others wait.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from ..broker.partition.changes import Done

# Above every level: what was waited for is gone, and its waiters find out.
GONE = 1 << 62


class PartitionEnd(NamedTuple):
    """Its level is the offset where readers of a partition end."""

    topic: str
    partition: int


class MemberLoad(NamedTuple):
    """Its level is how many messages a member of a shared group holds, below zero: fewer is higher."""

    topic: str
    group: str
    member: str


class GroupChanges(NamedTuple):
    """Its level is how often a group whose members assign has changed."""

    group: str


Key = PartitionEnd | MemberLoad | GroupChanges
Wake = Callable[[Key], None]
"""Called once, by any thread, with the driver's lock held. It raises nothing."""


class Levels(Protocol):
    """Where the keys are by now: a node, or the model of a test."""

    def level_of(self, key: Key) -> int: ...
    def is_behind(self, key: Key) -> bool:
        """Whether the level will rise without another change here, as soon as other machines confirm one."""
        ...


class Waits:
    """All waits of one driver. Not thread-safe: under the driver's lock.

    `looked` counts the keys that changes have looked at, `woken` the waits that have ended.
    """

    def __init__(self, levels: Levels) -> None:
        self._levels = levels
        # By key and level: nearly all that wait for a key wait for the same level.
        self._waiting: dict[Key, dict[int, dict[Wake, None]]] = {}
        # The awaited keys of each topic, for when the topic itself changes.
        self._by_topic: dict[str, dict[Key, None]] = {}
        # Awaited keys that are behind.
        self._behind: dict[Key, None] = {}
        self.looked = self.woken = 0

    def __len__(self) -> int:
        """How many keys are awaited."""
        return len(self._waiting)

    def add(self, key: Key, level: int, wake: Wake) -> None:
        """Have `wake` called once the key is above this level, which may be now."""
        if self._levels.level_of(key) > level:
            self.woken += 1
            wake(key)
            return
        levels = self._waiting.get(key)
        if levels is None:
            levels = self._waiting[key] = {}
            if not isinstance(key, GroupChanges):
                self._by_topic.setdefault(key.topic, {})[key] = None
        levels.setdefault(level, {})[wake] = None
        if self._levels.is_behind(key):
            self._behind[key] = None

    def discard(self, key: Key, level: int, wake: Wake) -> None:
        """Wait no longer; nothing happens if it was woken."""
        levels = self._waiting.get(key)
        waiting = None if levels is None else levels.get(level)
        if levels is None or waiting is None:
            return
        waiting.pop(wake, None)
        if not waiting:
            self._take(key, levels, level)

    def _take(self, key: Key, levels: dict[int, dict[Wake, None]], level: int) -> Iterable[Wake]:
        """Those that wait for a level of a key, which do so no longer."""
        waiting = levels.pop(level, {})
        if not levels and self._waiting.get(key) is levels:
            del self._waiting[key]
            self._behind.pop(key, None)
            if not isinstance(key, GroupChanges):
                keys = self._by_topic[key.topic]
                del keys[key]
                if not keys:
                    del self._by_topic[key.topic]
        return waiting

    def wake(self, done: Done[Any]) -> None:
        """Wake those who waited for what a command has changed."""
        for partition, group in done.touched:
            if not group:
                self._look(PartitionEnd(partition.topic, partition.number))
        for load in done.loads:
            self._look(MemberLoad(*load))
        for group_name in done.groups:
            self._look(GroupChanges(group_name))
        for topic in done.topics:
            for key in [*self._by_topic.get(topic, ())]:
                self._look(key)

    def wake_all(self) -> None:
        """Wake all whose wait is over, where it is not known what has changed."""
        for key in [*self._waiting]:
            self._look(key)

    def wake_behind(self) -> None:
        """Wake those who waited for what other machines have confirmed by now."""
        for key in [*self._behind]:
            self._look(key)

    def _look(self, key: Key) -> None:
        levels = self._waiting.get(key)
        if levels is None:
            return
        self.looked += 1
        reached = self._levels.level_of(key)
        for level in [level for level in levels if level < reached]:
            for wake in self._take(key, levels, level):
                self.woken += 1
                wake(key)
        if key not in self._waiting:
            return
        if self._levels.is_behind(key):
            self._behind[key] = None
        else:
            self._behind.pop(key, None)
