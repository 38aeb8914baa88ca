"""How a group reads a topic: fixed by its first use, in the journal of every partition.

There it lives and dies with the progress that it protects: a group that is closed, or whose topic is deleted, leaves no
mode behind, and a power cut that takes the first use takes the mode with it.
"""

from collections.abc import Iterable, Sequence

from ..delivery import Delivery
from ..errors import ModeConflict
from ..groups import Mode
from .partition import Now, Partition
from .records import ModeSet

Places = Sequence[tuple[Partition, Delivery]]


def mode_of(places: Iterable[tuple[Partition, Delivery]]) -> Mode:
    """The mode of a group. Partitions that were added since may not know it yet."""
    for partition, delivery in places:
        found = partition.machine.modes.get(delivery.group)
        if found is not None:
            return found
    return Mode.UNDECIDED


def require_mode(places: Places, group: str, mode: Mode, now: Now) -> None:
    """Let this be how the group reads the topic, or refuse because it reads it in another way."""
    if all(part.machine.modes.get(delivery.group) is mode for part, delivery in places):
        return
    found = mode_of(places)
    if found not in (Mode.UNDECIDED, mode):
        raise ModeConflict(group, places[0][0].topic, asked=str(mode), mode=str(found))
    for partition, delivery in places:
        if partition.machine.modes.get(delivery.group) is not mode:
            partition.record((ModeSet(delivery.group, mode),), now)
