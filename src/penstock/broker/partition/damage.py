"""Damaged batches that were met since the start: each is counted, listed and told once, however often it is read.

The logs of the partitions report to one ledger for the whole node. The driver logs what is new in it, metrics count it,
and `/readyz?verbose` lists it.
"""

from collections import Counter
from collections.abc import Callable
from itertools import islice

import msgspec

from ...api.health import Damage
from ...config import OnDamage, TopicConfig
from ...errors import DamagedBatch

# A file of nothing but damage must not fill the memory. A batch that was forgotten counts once more.
_KNOWN_MAX = 10_000
LISTED_MAX = 100


class Skip(msgspec.Struct, frozen=True):
    """What a group lost because the topic says that damage is skipped."""

    topic: str
    partition: int
    group: str
    offset: int
    next_offset: int
    messages: int
    reason: str


class DamageLedger:
    """Belongs to a node. `on_found` and `on_skipped` are set by the driver and called with its lock held."""

    def __init__(self) -> None:
        self.batches: Counter[str] = Counter()
        self.on_found: Callable[[Damage], None] = _ignore
        self.on_skipped: Callable[[Skip], None] = _ignore
        self._known: dict[tuple[str, int], Damage] = {}

    def found(self, topic: str, partition: int, error: DamagedBatch) -> None:
        """Take note of a damaged batch. One that is known changes nothing."""
        place = (error.path, error.position)
        if place in self._known:
            return
        if len(self._known) >= _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        found = Damage(
            topic,
            partition,
            error.path,
            error.position,
            error.offset,
            error.next_offset,
            error.reason,
        )
        self._known[place] = found
        self.batches[topic] += 1
        self.on_found(found)

    def newest(self, limit: int = LISTED_MAX) -> list[Damage]:
        """The damaged batches that were met last, the newest first."""
        return [*islice(reversed(self._known.values()), limit)]

    def forget(self, topic: str) -> None:
        """A topic was deleted, and its files with it."""
        del self.batches[topic]
        self._known = {key: one for key, one in self._known.items() if one.topic != topic}


def behind(damage: DamagedBatch, config: TopicConfig) -> int:
    """Where a reader of a topic goes on behind a damaged batch. Where the topic stops at damage it is raised again."""
    if config.on_damage is not OnDamage.SKIP or damage.next_offset is None:
        raise damage.fresh()
    return damage.next_offset


def _ignore(_found: Damage | Skip) -> None:
    return
