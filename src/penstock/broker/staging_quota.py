"""How much may be staged and not committed: on a node, in a topic, and by one producer or staging of a named commit.

It adds up what it admits, and counts anew when a limit seems to be reached: what ended since then is taken off.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..codec import Encoded
from ..errors import OverStagingQuota
from ..transactions.names import STAGING_ID_FIRST
from ..transactions.stagings import NAMED_NUMBER, TransactionKey
from .partition import Partition
from .partition.backlog import require_room

if TYPE_CHECKING:
    from .node import Node

# Topics and transactions of which it knows a sum. All are forgotten together, and counted anew.
_SUMS_MAX = 10_000
_NODE = ""


class StagingQuota:
    """Of one node. What it knows is counted anew after a restart."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        # An upper bound for each topic by name, each transaction, and the node.
        self._sums: dict[str | TransactionKey, int] = {}

    def require_room(
        self, partition: Partition, encoded: Encoded, *, may_begin_anywhere: bool = False
    ) -> None:
        """Take note of a batch that is about to be staged. OverStagingQuota, BacklogFull: there is no room for it.

        OutOfSequence: it is refused here, before its transaction or staging knows of the partition.
        """
        head = encoded.head
        producers = partition.machine.staging_producers
        if producers.repeat_of(head, may_begin_anywhere=may_begin_anywhere) is not None:
            return  # It adds nothing.
        if partition.has_backlog_limit:
            require_room(partition, head.message_count, head.length)
        self._admit(partition.topic, head.producer_id, head.length)

    def _admit(self, topic: str, producer_id: int, size: int) -> None:
        limits, sums = self._node.limits, self._sums
        key, is_beginning = self._key(producer_id)
        if is_beginning:
            # With this command: there is nothing to count.
            sums.setdefault(key, 0)
        for name, limit in (
            (_NODE, limits.staged_bytes_max),
            (topic, limits.staged_bytes_per_topic_max),
            (key, limits.staged_bytes_per_producer_max),
        ):
            known = sums.get(name)
            if known is None or known + size > limit:
                known = sums[name] = self._counted(name)
                if known + size > limit:
                    raise OverStagingQuota(_where(name), found=known, adding=size, limit=limit)
        if len(sums) > _SUMS_MAX:
            sums.clear()
            return
        for name in (_NODE, topic, key):
            sums[name] += size

    def _key(self, producer_id: int) -> tuple[TransactionKey, bool]:
        """The transaction or staging of a batch, and whether it is a transaction that has not begun."""
        if producer_id >= STAGING_ID_FIRST:
            return TransactionKey(producer_id, NAMED_NUMBER), False
        producer = self._node.transactions.coordinator(producer_id).find(producer_id)
        is_beginning = not producer.is_open
        return TransactionKey(producer_id, producer.number + is_beginning), is_beginning

    def _counted(self, name: str | TransactionKey) -> int:
        if isinstance(name, TransactionKey):
            staged = (one.machine.stagings.open.get(name) for one in self._node.partitions())
            return sum(
                each.length for one in staged if one is not None for each in one.stagings.values()
            )
        partitions: Iterable[Partition] = self._node.partitions()
        if name != _NODE:
            partitions = self._node.topic(name).partitions
        return sum(one.machine.stagings.bytes for one in partitions)


def _where(name: str | TransactionKey) -> str:
    if isinstance(name, TransactionKey):
        return "in one transaction or staging"
    return "on this node" if name == _NODE else f"in {name}"
