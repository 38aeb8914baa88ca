"""One event of a simulation: what a client does, which the code under test cannot know."""

from dataclasses import dataclass
from typing import NamedTuple


class EventTime(NamedTuple):
    """Wall time as the node sees it, and true time, which never steps and outlives every restart."""

    wall_ns: int
    true_ns: int


@dataclass(frozen=True, slots=True)
class Event:
    """What a client asks for, and when. `values` are those that a producer may have stored by this call."""

    time: EventTime
    what: str = "nothing"
    values: frozenset[bytes] = frozenset()
    leaving: str = ""
    rejecting: bool = False
    # The offset that a client commits or resets a group to, or -1.
    moving_to: int = -1
