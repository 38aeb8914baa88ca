"""When each topic is swept: by retention, and, where it is compacted, by compaction.

Nothing of it is journaled: a start counts from its own time.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from ..config import Cleanup, TopicConfig

_MS = 1_000_000
_LONG_AGO_NS = -(1 << 63)
_USUAL = TopicConfig()


class Sweep(Enum):
    """What is done to a topic now and then."""

    RETENTION = "retention"
    COMPACTION = "compaction"


class Due(NamedTuple):
    """A sweep whose time has come."""

    topic: str
    sweep: Sweep


class Sweeps:
    """The times of all topics, monotonic. `next_ns` is the earliest; infinity while there is no topic.

    `usual_times`: topics that leave an interval as it is have one that is so many times as long. Tests that let a
    year pass have no use for a hundred thousand sweeps.
    """

    def __init__(self, *, usual_times: int) -> None:
        self.next_ns = float("inf")
        self._usual_times = usual_times
        self._last_ns: dict[Due, int] = {}

    def plan(self, topic: str, config: TopicConfig, now_ns: int) -> None:
        """Take note of a topic that is new, or has new settings."""
        for sweep, interval_ns in self._intervals(config):
            last_ns = self._last_ns.setdefault(Due(topic, sweep), now_ns)
            self.next_ns = min(self.next_ns, last_ns + interval_ns)

    def take_due(self, configs: Mapping[str, TopicConfig], now_ns: int) -> list[Due]:
        """The sweeps whose time has come; their next time counts from now."""
        found: list[Due] = []
        last_ns, self._last_ns, self.next_ns = self._last_ns, {}, float("inf")
        for topic, config in configs.items():
            for sweep, interval_ns in self._intervals(config):
                due = Due(topic, sweep)
                begun_ns = last_ns.get(due, now_ns)
                if begun_ns + interval_ns <= now_ns:
                    found.append(due)
                    begun_ns = now_ns
                self._last_ns[due] = begun_ns
                self.next_ns = min(self.next_ns, begun_ns + interval_ns)
        return found

    def put_back(self, topic: str, sweeps: Iterable[Sweep], now_ns: int) -> None:
        """Sweeps that were taken could not be done: they are still due."""
        for sweep in sweeps:
            self._last_ns[Due(topic, sweep)] = _LONG_AGO_NS
        self.next_ns = min(self.next_ns, now_ns)

    def _intervals(self, config: TopicConfig) -> Iterator[tuple[Sweep, int]]:
        yield Sweep.RETENTION, self._ns(config.retention_check_ms, _USUAL.retention_check_ms)
        if config.cleanup is Cleanup.COMPACT:
            yield Sweep.COMPACTION, self._ns(config.compaction_check_ms, _USUAL.compaction_check_ms)

    def _ns(self, interval_ms: int, usual_ms: int) -> int:
        return interval_ms * _MS * (self._usual_times if interval_ms == usual_ms else 1)
