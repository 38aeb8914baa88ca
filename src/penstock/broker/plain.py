"""Values without anything else, as most producers send them: straight into columns, no message is ever made."""

from collections.abc import Sequence

from ..codec import Columns, encode
from ..config import OFF
from .backlog import is_limited, require_room
from .node import Node
from .partition import Now, Published

_MS = 1_000_000


def publish_values(node: Node, topic: str, values: Sequence[bytes], now: Now) -> Published:
    """Append all values to the partition whose turn it is, as one batch; where the first is. All of them or none.

    The rest follows at the next offsets.
    """
    target = node.topic(topic)
    node.guard.admit_bytes(sum(map(len, values)), now)
    target.router.next_call(target.partitions)
    partition, ttl_ms = target.partitions[target.router.turn], target.facts.config.ttl_ms
    if is_limited(partition):
        require_room(partition, len(values), sum(map(len, values)))
    columns = Columns(
        values=values,
        timestamps=now.wall_ns,
        expires_at=None if ttl_ms == OFF else now.wall_ns + ttl_ms * _MS,
    )
    encoded = encode(columns, compression=partition.compression, limits=partition.limits)
    return partition.append(encoded, now)
