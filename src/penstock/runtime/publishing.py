"""Publishing through a driver: how long to wait, and what can be said afterwards."""

from collections.abc import Sequence
from typing import NamedTuple

from ..api.publish import Acks, Guarantee, Publish, Schedule
from ..api.publish import Published as Stored
from ..broker.partition import Partition
from ..config import FsyncPolicy
from .threads import ThreadDriver


class Published(NamedTuple):
    """Where a message is. `is_duplicate`: its idempotency key was known, and this is where the first one is."""

    topic: str
    partition: int
    offset: int
    is_duplicate: bool
    guarantee: Guarantee
    # It waits for its time, and the offset is its id among those that wait.
    is_delayed: bool = False


def publish(driver: ThreadDriver, command: Publish | Schedule, acks: Acks) -> list[Published]:
    """Store messages; return when they are as safe as `acks` asks."""
    topic = command.topic
    stored = driver.execute(command) if acks is Acks.LEADER else driver.start(command)[0]
    # A repeat may be durable long since; and one whose first is not waits as long as that does.
    if acks is Acks.ALL and not driver.query(lambda _now: is_durable(driver, topic, stored)):
        driver.sync()
    is_always = driver.config.fsync is FsyncPolicy.ALWAYS
    is_safe = acks is Acks.ALL or (acks is Acks.LEADER and is_always)
    guarantee = Guarantee.FSYNCED if is_safe else Guarantee.BUFFERED
    return [
        Published(topic, one.partition, one.offset, one.is_duplicate, guarantee, one.is_delayed)
        for one in stored
    ]


def is_durable(driver: ThreadDriver, topic: str, stored: Sequence[Stored]) -> bool:
    """Whether all of these would survive a power cut now. With the lock held."""
    return all(
        durable_end(driver.node.partition(topic, one.partition), one) >= one.durable_at
        for one in stored
    )


def durable_end(partition: Partition, stored: Stored) -> int:
    """How far the log is durable that a message went to."""
    return partition.delayed.durable_end if stored.is_delayed else partition.messages.durable_end
