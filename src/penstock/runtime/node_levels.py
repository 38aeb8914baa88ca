"""What the keys of waits mean on a node."""

from typing import TYPE_CHECKING

from ..api.consume import CountHeld
from ..broker.partition import Partition
from ..broker.partition.start import visible_end
from .waits import GONE, Key, MemberLoad, PartitionEnd

if TYPE_CHECKING:
    from .threads import ThreadDriver


class NodeLevels:
    """Belongs to a driver, whose node may be replaced. With the driver's lock held."""

    def __init__(self, driver: "ThreadDriver") -> None:
        self._driver = driver

    def level_of(self, key: Key) -> int:
        """Where a key is by now; above everything if what it names is gone or cannot be used."""
        driver = self._driver
        if isinstance(key, PartitionEnd):
            partition = self._partition(key)
            return GONE if partition is None else visible_end(partition.messages)
        if isinstance(key, MemberLoad):
            if key.topic not in driver.node.open:
                return GONE
            return -driver.execute_locked(CountHeld(*key), driver.now())
        changes = driver.node.classic.changes_of(key.group)
        return GONE if changes < 0 else changes

    def is_behind(self, key: Key) -> bool:
        """Whether a partition goes on behind where readers end."""
        if not self._driver.node.reign.is_shared or not isinstance(key, PartitionEnd):
            return False
        partition = self._partition(key)
        if partition is None:
            return False
        return visible_end(partition.messages) < partition.messages.end_offset

    def _partition(self, key: PartitionEnd) -> Partition | None:
        topic = self._driver.node.open.get(key.topic)
        # Under the same name there may be another topic by now, of fewer partitions.
        return None if topic is None else topic.partitions.serving_at(key.partition)
