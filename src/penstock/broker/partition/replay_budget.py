"""How much a start would read again: what lies behind the snapshots of all partitions of a node.

A start reads the entries behind the newest snapshot of each partition, one after the other: batches of messages, of
decisions, of delayed and staged messages. Once all partitions together are over the budget, the one with most has a
snapshot taken. It takes few to be under it again where few partitions are busy; where thousands are, a snapshot of each
would cost more than it saves, so a partition with little behind it waits until it has more.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .partition import Partition

ENTRIES_MAX, BYTES_MAX = 5_000, 16 << 20
# A snapshot takes as long as some hundred entries take a start, and two fsyncs.
_ENTRIES_MIN, _BYTES_MIN = 250, 2 << 20
# A large state takes long to write, and a start long to read: entries that take as long are worth a new snapshot.
_SNAPSHOT_BYTES_AN_ENTRY, _BYTES_A_SNAPSHOT_BYTE = 128, 4
# To look at thousands of partitions costs as much as some ten commands, so it is not done for each of them.
_STEP = 0.25


class Behind(NamedTuple):
    """What lies behind the newest snapshot of a partition."""

    entries: int
    size: int


_NOTHING = Behind(0, 0)


class ReplayBudget:
    """Of one node. Partitions are noted when they are synced, so that a publish has only to count.

    `waiting` are those with a snapshot that other nodes have to hear of first.
    """

    __slots__ = ("_behind", "_look_at", "entries", "entries_max", "entries_min", "size", "waiting")

    def __init__(self, *, entries_max: int = ENTRIES_MAX, entries_min: int = _ENTRIES_MIN) -> None:
        self.entries_max, self.entries_min = entries_max, entries_min
        self.entries = self.size = 0
        self._behind: dict[Partition, Behind] = {}
        self.waiting: dict[Partition, None] = {}
        # No partition is worth a snapshot before the sum is at this share of the budget.
        self._look_at = 1.0

    def note(self, partition: "Partition") -> None:
        """Take note of what lies behind the snapshot of a partition now."""
        self._replace(partition, Behind(partition.entries_behind, partition.bytes_behind))

    def forget(self, partition: "Partition") -> None:
        """It is used no more."""
        self._replace(partition, _NOTHING)
        self.waiting.pop(partition, None)

    def _replace(self, partition: "Partition", behind: Behind) -> None:
        before = self._behind.pop(partition, _NOTHING)
        self.entries += behind.entries - before.entries
        self.size += behind.size - before.size
        if any(behind):
            self._behind[partition] = behind

    def partitions(self) -> list["Partition"]:
        """Those with something behind their snapshots."""
        return [*self._behind]

    def most(self) -> "Partition | None":
        """The partition of which a snapshot is to be taken now, if there is one."""
        share = self._share
        if share < self._look_at:
            # If it is less than it was, some may be worth it sooner.
            self._look_at = max(1.0, min(self._look_at, share + _STEP))
            return None
        worth = [one for one, behind in self._behind.items() if self._is_worth_it(one, behind)]
        if not worth:
            self.put_off()
            return None
        return max(worth, key=lambda one: self._share_of(self._behind[one]))

    def put_off(self) -> None:
        """Nothing can be done about it now: look again when there is more."""
        self._look_at = self._share + _STEP

    @property
    def _share(self) -> float:
        return self._share_of(Behind(self.entries, self.size))

    def _share_of(self, behind: Behind) -> float:
        return max(behind.entries / self.entries_max, behind.size / BYTES_MAX)

    def _is_worth_it(self, partition: "Partition", behind: Behind) -> bool:
        size = partition.journal.snapshot_bytes
        return not partition.is_snapshot_held and (
            behind.entries >= max(self.entries_min, size // _SNAPSHOT_BYTES_AN_ENTRY)
            or behind.size >= max(_BYTES_MIN, size * _BYTES_A_SNAPSHOT_BYTE)
        )
